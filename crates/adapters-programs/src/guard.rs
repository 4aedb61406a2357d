//! A helper process that ends the children of a proxy that was killed.
//!
//! A process that dies of SIGKILL cannot clean up. So a second process, started before the first
//! child, holds the reading end of a pipe; only the proxy has its writing end. The helper receives
//! the process groups as lines `+PGID` and `-PGID`. The end of its input means that the proxy is
//! gone, and the groups that are still registered then are ended.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// The time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// The time that a helper without work gets to end, before it is killed.
const DROP_GRACE: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longer lines cannot be a group number and are truncated.
const MAX_LINE_BYTES: u64 = 32;

/// The proxy's side of the helper process.
///
/// The helper is started with the first registered group, and again if it ends.
#[derive(Debug)]
pub struct Guard {
    argv: Vec<String>,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    groups: BTreeSet<i32>,
    helper: Option<HelperProcess>,
}

#[derive(Debug)]
struct HelperProcess {
    process: Child,
    input: ChildStdin,
}

impl Guard {
    /// Returns a guard that starts its helper with `argv`, a program and its arguments. The program
    /// must call [`run_guard`] with its standard input.
    #[must_use]
    pub fn new(argv: Vec<String>) -> Self {
        Self {
            argv,
            state: Mutex::default(),
        }
    }

    /// Registers `group`, which is ended if this process dies.
    pub(crate) fn register(&self, group: Pid) {
        let mut state = self.state.lock();
        state.groups.insert(group.as_raw_pid());
        self.send_line(&mut state, &format!("+{}\n", group.as_raw_pid()));
    }

    pub(crate) fn unregister(&self, group: Pid) {
        let mut state = self.state.lock();
        state.groups.remove(&group.as_raw_pid());
        if state.helper.is_some() {
            self.send_line(&mut state, &format!("-{}\n", group.as_raw_pid()));
        }
    }

    /// Sends one line to the helper. If the helper is gone, starts a new one with all registered
    /// groups.
    fn send_line(&self, state: &mut GuardState, line: &str) {
        if let Some(helper) = &mut state.helper
            && helper.input.write_all(line.as_bytes()).is_ok()
        {
            return;
        }
        if let Some(mut gone) = state.helper.take() {
            kill_and_reap(&mut gone.process);
        }
        match self.start(&state.groups) {
            Ok(helper) => state.helper = Some(helper),
            Err(error) => tracing::warn!(
                %error,
                "failed to start the guard process: upstream processes may survive if riglm is \
                 killed"
            ),
        }
    }

    fn start(&self, known: &BTreeSet<i32>) -> io::Result<HelperProcess> {
        let (program, arguments) = self
            .argv
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program configured"))?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A signal from a terminal to the proxy's group must not end the guard first.
            .process_group(0)
            .spawn()?;
        let Some(mut input) = process.stdin.take() else {
            return Err(io::Error::other("the guard has no input"));
        };
        if let Err(error) = send_registered(&mut input, known) {
            // If its input were closed first, it would end the groups that it already knows.
            kill_and_reap(&mut process);
            return Err(error);
        }
        Ok(HelperProcess { process, input })
    }
}

/// Sends the registered groups to a new helper.
fn send_registered(input: &mut ChildStdin, known: &BTreeSet<i32>) -> io::Result<()> {
    // A helper that does not read must not block the proxy. Each line is short enough to be written
    // completely or not at all.
    rustix::io::ioctl_fionbio(&*input, true)?;
    for group in known {
        input.write_all(format!("+{group}\n").as_bytes())?;
    }
    Ok(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let Some(HelperProcess { mut process, input }) = state.helper.take() else {
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
        kill_and_reap(&mut process);
    }
}

fn kill_and_reap(process: &mut Child) {
    // Both fail only for a process that was already waited for.
    let _ = process.kill();
    let _ = process.wait();
}

/// Runs the helper process: reads `input` to its end, then ends every group that is still
/// registered, with SIGTERM and a second later SIGKILL, and returns.
///
/// Ignores lines that are neither `+PGID` nor `-PGID`, and the numbers 0 and 1. Blocks the thread.
pub fn run_guard(input: impl Read) {
    let groups = read_registered(input);
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

/// Returns the registered groups at the end of `input`. An error counts as the end.
fn read_registered(input: impl Read) -> HashSet<Pid> {
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

/// Returns the group with this number, unless a signal must never be sent to it: 0 is the group of
/// the caller, and 1 stands for all processes.
pub(super) fn group_id(number: i32) -> Option<Pid> {
    if number > 1 {
        Pid::from_raw(number)
    } else {
        None
    }
}

/// Sends a signal to a group. A group that is gone is ignored.
pub(super) fn signal(group: Pid, signal: Signal) {
    if let Err(error) = kill_process_group(group, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(
            process.group = group.as_raw_pid(),
            %error,
            "failed to signal a process group"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(input: &str) -> Vec<i32> {
        read_registered(input.as_bytes())
            .iter()
            .map(|group| group.as_raw_pid())
            .collect()
    }

    #[test]
    fn groups_are_added_and_removed_by_line() {
        assert_eq!(numbers("+20\n+30\n-20\n"), [30]);
    }

    #[test]
    fn invalid_group_ids_are_ignored() {
        assert_eq!(numbers("+0\n+1\n+-1\n-\nx\n+99999999999\n+40"), [0_i32; 0]);
    }
}
