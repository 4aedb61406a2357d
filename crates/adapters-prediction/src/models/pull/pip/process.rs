//! A program that is run for what it writes: watched, and ended with all that it started.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::models::job::Job;
use crate::models::pull::watch::{Halted, LOOK, Pulse, Stillness};

/// How many of the last lines that a program says are kept.
const KEPT_LINES: usize = 12;

/// The longest part of a line that is kept, in bytes.
const MAX_LINE_BYTES: u64 = 500;

/// How long the output of a program that has ended is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A program that has ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) is_success: bool,
    /// The last lines that it wrote to standard error.
    pub(super) said: String,
}

/// Runs a program as long as it says something or files in `directory` grow, and calls `look` with
/// their length meanwhile.
///
/// # Errors
///
/// Returns an error when the program cannot be started, and [`Halted`] within when it was ended.
pub(super) fn run(
    mut command: Command,
    directory: Option<&Path>,
    patience: Duration,
    job: &Job,
    look: impl Fn(u64),
) -> io::Result<Result<Ended, Halted>> {
    // A group of its own: a wrapper of Python may have the real one below it.
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut running = Running { child: Some(child) };
    let pulse = Pulse::default();
    let said = Said::default();
    let finished = running
        .take_stderr()
        .map(|stderr| said.listen(stderr, pulse.clone()));
    let mut stillness = Stillness::new(patience);
    loop {
        if let Some(is_success) = running.ended()? {
            if let Some(finished) = finished {
                // Something that outlives it may hold its standard error open.
                let _ = finished.recv_timeout(LAST_WORDS);
            }
            let said = said.text();
            return Ok(Ok(Ended { is_success, said }));
        }
        let bytes = directory.map_or(0, |directory| bytes_in(directory, 0));
        look(bytes);
        let checked = job
            .check()
            .map_err(Halted::from)
            .and_then(|()| stillness.look(bytes.wrapping_add(pulse.get())));
        if let Err(halted) = checked {
            return Ok(Err(halted));
        }
        thread::sleep(LOOK);
    }
}

/// A child that is killed with its group when this is dropped before it has ended.
#[derive(Debug)]
struct Running {
    child: Option<Child>,
}

impl Running {
    fn take_stderr(&mut self) -> Option<impl Read + Send + use<>> {
        self.child.as_mut()?.stderr.take()
    }

    /// Returns whether it ended well, when it has ended.
    fn ended(&mut self) -> io::Result<Option<bool>> {
        let Some(child) = &mut self.child else {
            return Ok(Some(false));
        };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status.map(|status| status.success()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = pid {
                // It may have ended just now.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
        }
    }
}

/// The last lines of a program.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    /// Keeps the lines of a reader on a thread; the receiver tells when it has ended.
    fn listen(&self, reader: impl Read + Send + 'static, pulse: Pulse) -> Receiver<()> {
        let (sender, receiver) = channel::<()>();
        let lines = self.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while let Ok(1..) = (&mut reader)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)
            {
                pulse.add(1);
                lines.keep(String::from_utf8_lossy(&line).trim_end());
                line.clear();
            }
            drop(sender);
        });
        receiver
    }

    fn keep(&self, line: &str) {
        if line.is_empty() {
            return;
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line.to_owned());
        if lines.len() > KEPT_LINES {
            lines.pop_front();
        }
    }

    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

/// Returns the length of all files in a directory and those in it, two levels deep.
fn bytes_in(directory: &Path, depth: u32) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(metadata) if metadata.is_dir() && depth < 2 => bytes_in(&entry.path(), depth + 1),
        _ => 0,
    });
    bytes.sum()
}
