//! Child processes of tests: each in its own process group, ready after a printed line, killed at
//! the end.
//!
//! Dropping a [`Process`] kills it and all its descendants, by process id.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

/// The maximum of captured lines for one process.
const KEPT_LINES: usize = 2_000;

/// A running child process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: u32,
    lines: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts a command in its own process group and captures its standard error.
    ///
    /// Standard output is captured into the same lines. [`Process::spawn_piped`] leaves it to the
    /// caller.
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let (mut process, sender) = Self::start(command);
        if let Some(stdout) = process.child.stdout.take() {
            keep_lines(stdout, sender);
        }
        process
    }

    /// Starts a command and returns its standard input and output as pipes.
    pub fn spawn_piped(mut command: Command) -> (Self, ChildStdin, ChildStdout) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (mut process, _) = Self::start(command);
        let stdin = process.child.stdin.take().expect("stdin is piped");
        let stdout = process.child.stdout.take().expect("stdout is piped");
        (process, stdin, stdout)
    }

    fn start(mut command: Command) -> (Self, watch::Sender<Vec<String>>) {
        command.stderr(Stdio::piped()).process_group(0);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        let pid = child.id().expect("a child that was just started has an id");
        let (sender, lines) = watch::channel(Vec::new());
        if let Some(stderr) = child.stderr.take() {
            keep_lines(stderr, sender.clone());
        }
        (Self { child, pid, lines }, sender)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the captured lines as text.
    pub fn output(&self) -> String {
        self.lines.borrow().join("\n")
    }

    /// Waits for a captured line for which `find` returns a value.
    pub async fn line<T>(
        &self,
        deadline: Duration,
        what: &str,
        find: impl Fn(&str) -> Option<T>,
    ) -> T {
        let search = |lines: &Vec<String>| lines.iter().find_map(|line| find(line));
        let mut lines = self.lines.clone();
        let waited =
            tokio::time::timeout(deadline, lines.wait_for(|lines| search(lines).is_some())).await;
        let found = match waited {
            Ok(Ok(lines)) => search(&lines),
            _ => None,
        };
        found.unwrap_or_else(|| {
            panic!(
                "no line with {what} within {deadline:?}; the process printed:\n{}",
                self.output()
            )
        })
    }

    /// Sends a signal to the process, but not to its children.
    pub fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// Waits until the process has ended.
    pub async fn wait_for_end(&mut self, deadline: Duration) -> ExitStatus {
        match tokio::time::timeout(deadline, self.child.wait()).await {
            Ok(Ok(status)) => status,
            other => panic!(
                "process {} did not end within {deadline:?} ({other:?}); it printed:\n{}",
                self.pid,
                self.output()
            ),
        }
    }

    /// Kills the process and waits for its end. Its children keep running.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait_for_end(Duration::from_secs(10)).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Collected before the kill: orphans lose their parent id.
        let below = descendants(self.pid);
        self.signal(Signal::KILL);
        for pid in below {
            send(pid, Signal::KILL);
        }
    }
}

/// Returns a command with these arguments.
pub fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Returns the ids of all descendants of `pid`, parents before children.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (process, parent) in parents() {
        children.entry(parent).or_default().push(process);
    }
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        found.extend(children.get(&found[next]).into_iter().flatten());
        next += 1;
    }
    found.remove(0);
    found
}

/// Returns whether a process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    status_fields(pid).is_some_and(|fields| fields.first().is_some_and(|state| state != "Z"))
}

/// Returns the command line of a process with spaces between its words. Empty if the process has
/// ended.
pub fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .replace('\0', " ")
}

/// Returns the number of open file descriptors of a process.
pub fn n_descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Returns the resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap_or_default()
}

/// Waits until none of these processes is alive, and returns the ones that are alive after
/// `deadline`.
pub async fn survivors(pids: &[u32], deadline: Duration) -> Vec<u32> {
    let alive = || pids.iter().copied().filter(|pid| is_alive(*pid)).collect();
    eventually(deadline, || {
        let left: Vec<u32> = alive();
        left.is_empty().then_some(())
    })
    .await;
    alive()
}

/// Polls `check` every 10 ms until it returns a value or the deadline has passed.
pub async fn eventually<T>(deadline: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = check() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns a port of the loopback interface that is free at the moment.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .expect("the loopback interface has a free port")
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The process may have ended already.
        let _ = kill_process(pid, signal);
    }
}

fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, status_fields(pid)?.get(1)?.parse().ok()?)))
        .collect()
}

/// Returns the fields of `/proc/PID/stat` after the name of the program: state, parent, ...
fn status_fields(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and parentheses.
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn keep_lines(source: impl AsyncRead + Unpin + Send + 'static, sender: watch::Sender<Vec<String>>) {
    tokio::spawn(async move {
        let mut reader = BufReader::new(source);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line).await, Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            sender.send_modify(|lines| {
                if lines.len() < KEPT_LINES {
                    lines.push(text);
                }
            });
        }
    });
}
