//! Runner of a program: watches its output, and kills it with all its children.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::models::job::Job;
use crate::models::pull::watch::{CHECK_INTERVAL, HaltReason, Pulse, StallDetector};

/// The number of last lines of output that are kept.
const TAIL_LINES: usize = 12;

/// Maximum length of a kept part of a line in bytes.
const MAX_LINE_BYTES: u64 = 500;

/// Maximum wait for the output of a program that has exited.
const OUTPUT_WAIT: Duration = Duration::from_secs(1);

/// Result of a program that has exited.
#[derive(Debug)]
pub(super) struct ProcessResult {
    pub(super) is_success: bool,
    /// The last lines of its standard error.
    pub(super) said: String,
}

/// Runs a program as long as it writes output or files in `directory` grow. `look` gets their total
/// size at intervals.
///
/// # Errors
///
/// Returns an error when the program cannot be started, and an inner [`HaltReason`] when it was killed.
pub(super) fn run(
    mut command: Command,
    directory: Option<&Path>,
    patience: Duration,
    job: &Job,
    look: impl Fn(u64),
) -> io::Result<Result<ProcessResult, HaltReason>> {
    // A process group of its own, because a wrapper may run the real Python as its child.
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut running = Running { child: Some(child) };
    let pulse = Pulse::default();
    let said = OutputTail::default();
    let finished = running
        .take_stderr()
        .map(|stderr| said.listen(stderr, pulse.clone()));
    let mut stillness = StallDetector::new(patience);
    loop {
        if let Some(is_success) = running.poll_exit()? {
            if let Some(finished) = finished {
                // A surviving child may keep the standard error open, so the wait is limited.
                let _ = finished.recv_timeout(OUTPUT_WAIT);
            }
            let said = said.text();
            return Ok(Ok(ProcessResult { is_success, said }));
        }
        let bytes = directory.map_or(0, |directory| bytes_in(directory, 0));
        look(bytes);
        let checked = job
            .check()
            .map_err(HaltReason::from)
            .and_then(|()| stillness.check(bytes.wrapping_add(pulse.get())));
        if let Err(halted) = checked {
            return Ok(Err(halted));
        }
        thread::sleep(CHECK_INTERVAL);
    }
}

/// A child process. It is killed with its process group if this is dropped before it has exited.
#[derive(Debug)]
struct Running {
    child: Option<Child>,
}

impl Running {
    fn take_stderr(&mut self) -> Option<impl Read + Send + use<>> {
        self.child.as_mut()?.stderr.take()
    }

    /// Returns whether the child succeeded, or `None` if it still runs.
    fn poll_exit(&mut self) -> io::Result<Option<bool>> {
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
                // The child may have exited just now.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
        }
    }
}

/// The last lines of a program's output.
#[derive(Clone, Debug, Default)]
struct OutputTail(Arc<Mutex<VecDeque<String>>>);

impl OutputTail {
    /// Collects the lines of a reader on a thread. The receiver is closed at the end.
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
        let mut lines = self.0.lock();
        lines.push_back(line.to_owned());
        if lines.len() > TAIL_LINES {
            lines.pop_front();
        }
    }

    fn text(&self) -> String {
        let lines = self.0.lock();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

/// Returns the total size of all files in a directory, down to two levels.
fn bytes_in(directory: &Path, depth: u32) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(metadata) if metadata.is_dir() && depth < 2 => bytes_in(&entry.path(), depth + 1),
        _ => 0,
    });
    bytes.sum()
}
