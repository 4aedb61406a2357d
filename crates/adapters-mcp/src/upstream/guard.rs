//! A helper process that ends the children of a proxy which was killed outright.
//!
//! A process that dies of SIGKILL cannot clean up. So a second process, started before the first
//! child, holds the reading end of a pipe whose writing end only the proxy has. It learns the
//! process groups as lines `+PGID` and `-PGID`; the end of its input means that the proxy is
//! gone, and what is still registered then is ended.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, test_kill_process_group};

use super::process_group::{group_id, signal};

/// How long the groups may take to follow SIGTERM before SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long a helper without work may take to end, before it is killed.
const DROP_GRACE: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longer lines are no group number; they are cut.
const MAX_LINE_BYTES: u64 = 32;

/// The proxy's end of the helper process.
///
/// The helper is started with the first group that is registered, and again should it end.
#[derive(Debug)]
pub struct Guard {
    argv: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: BTreeSet<i32>,
    helper: Option<Helper>,
}

#[derive(Debug)]
struct Helper {
    process: Child,
    input: ChildStdin,
}

impl Guard {
    /// Returns a guard whose helper is started by `argv`, a program and its arguments; that
    /// program must do what [`run_guard`] does with its standard input.
    #[must_use]
    pub fn new(argv: Vec<String>) -> Self {
        Self {
            argv,
            state: Mutex::default(),
        }
    }

    /// Has `group` ended should this process die.
    pub(crate) fn register(&self, group: Pid) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.insert(group.as_raw_pid());
        self.tell(&mut state, &format!("+{}\n", group.as_raw_pid()));
    }

    /// Forgets `group`.
    pub(crate) fn unregister(&self, group: Pid) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.remove(&group.as_raw_pid());
        if state.helper.is_some() {
            self.tell(&mut state, &format!("-{}\n", group.as_raw_pid()));
        }
    }

    /// Sends one line, to a new helper with everything it must know where the old one is gone.
    fn tell(&self, state: &mut State, line: &str) {
        if let Some(helper) = &mut state.helper
            && helper.input.write_all(line.as_bytes()).is_ok()
        {
            return;
        }
        if let Some(mut gone) = state.helper.take() {
            end(&mut gone.process);
        }
        match self.start(&state.groups) {
            Ok(helper) => state.helper = Some(helper),
            Err(error) => tracing::warn!(
                %error,
                "failed to start the guard: children may outlive a proxy that is killed"
            ),
        }
    }

    fn start(&self, known: &BTreeSet<i32>) -> io::Result<Helper> {
        let (program, arguments) = self
            .argv
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program configured"))?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A signal that a terminal sends to the proxy's group must not end the guard first.
            .process_group(0)
            .spawn()?;
        let Some(mut input) = process.stdin.take() else {
            return Err(io::Error::other("the guard has no input"));
        };
        if let Err(error) = introduce(&mut input, known) {
            // Were its input closed first, it would end the groups that it knows already.
            end(&mut process);
            return Err(error);
        }
        Ok(Helper { process, input })
    }
}

/// Tells a new helper what is registered.
fn introduce(input: &mut ChildStdin, known: &BTreeSet<i32>) -> io::Result<()> {
    // A helper that does not read must not stop the proxy. Each line is short enough to be
    // written whole or not at all.
    rustix::io::ioctl_fionbio(&*input, true)?;
    for group in known {
        input.write_all(format!("+{group}\n").as_bytes())?;
    }
    Ok(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(Helper { mut process, input }) = state.helper.take() else {
            return;
        };
        drop(input);
        if !state.groups.is_empty() {
            return; // The helper still has work to do; init reaps it.
        }
        let deadline = Instant::now() + DROP_GRACE;
        while Instant::now() < deadline {
            if !matches!(process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        end(&mut process);
    }
}

fn end(process: &mut Child) {
    // Both fail only for a process that has been waited for already.
    let _ = process.kill();
    let _ = process.wait();
}

/// Does the work of the helper process: reads `input` to its end, then ends every group that is
/// still registered, with SIGTERM and a second later SIGKILL, and returns.
///
/// Lines that are neither `+PGID` nor `-PGID` are ignored, and so are the numbers 0 and 1. Blocks
/// the thread.
pub fn run_guard(input: impl Read) {
    let groups = registered(input);
    for group in &groups {
        signal(*group, Signal::TERM);
    }
    let deadline = Instant::now() + TERM_GRACE;
    let any_left = || {
        groups
            .iter()
            .any(|group| test_kill_process_group(*group).is_ok())
    };
    while any_left() && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    for group in &groups {
        signal(*group, Signal::KILL);
    }
}

/// Reads `input` to its end, or to an error, which is an end too.
fn registered(input: impl Read) -> HashSet<Pid> {
    let mut input = BufReader::new(input);
    let mut groups = HashSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => return groups,
            Ok(_) => {}
        }
        match parse(&line) {
            Some((true, group)) => groups.insert(group),
            Some((false, group)) => groups.remove(&group),
            None => false,
        };
    }
}

/// Parses `+PGID` as `(true, PGID)` and `-PGID` as `(false, PGID)`.
fn parse(line: &[u8]) -> Option<(bool, Pid)> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (is_added, number) = match text.strip_prefix('+') {
        Some(number) => (true, number),
        None => (false, text.strip_prefix('-')?),
    };
    Some((is_added, group_id(number.parse().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(input: &str) -> Vec<i32> {
        registered(input.as_bytes())
            .iter()
            .map(|group| group.as_raw_pid())
            .collect()
    }

    #[test]
    fn groups_are_added_and_removed_by_line() {
        assert_eq!(numbers("+20\n+30\n-20\n"), [30]);
    }

    #[test]
    fn what_is_no_group_is_ignored() {
        assert_eq!(numbers("+0\n+1\n+-1\n-\nx\n+99999999999\n+40"), [0_i32; 0]);
    }
}
