//! The measured programs, as child processes that end with their owner.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;

use crate::affinity::Cores;
use crate::usage;

/// The deadline for the port of a program.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// The time for a program to end by itself when it is asked to.
const END_DEADLINE: Duration = Duration::from_secs(3);
/// The pause between looks at a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The number of lines of output in the text of an error.
const SHOWN_LINES: usize = 20;

/// A running program with a port and a temporary folder for its data.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// The address of its HTTP port.
    pub(crate) address: SocketAddr,
    /// The folder of its data.
    pub(crate) data: TempDir,
}

impl Process {
    /// Starts a program in its own process group and waits until its port accepts connections.
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        address: SocketAddr,
        data: TempDir,
        cores: Option<Cores>,
    ) -> anyhow::Result<Self> {
        let log = data.path().join("riglm-bench-output.log");
        let output = File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let child = spawn_on(cores, &mut command)
            .with_context(|| format!("{name}: {command:?} does not start"))?;
        let mut process = Self {
            name: name.to_owned(),
            child,
            log,
            address,
            data,
        };
        process.wait_for_port()?;
        Ok(process)
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns an error with the last lines of output if the process has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!(self.failure(&format!("has ended with {status}"))),
            None => Ok(()),
        }
    }

    fn wait_for_port(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        while TcpStream::connect(self.address).is_err() {
            self.check()?;
            if Instant::now() > deadline {
                let what = format!("has no port at {} after 30 s", self.address);
                bail!(self.failure(&what));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn failure(&self, what: &str) -> String {
        let output = fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<&str> = output.lines().collect();
        let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        if last.is_empty() {
            format!("{}: the process {what} and has printed nothing", self.name)
        } else {
            format!(
                "{}: the process {what}; its output ends with\n  {last}",
                self.name
            )
        }
    }

    fn wait_for_end(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_INTERVAL),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Process {
    /// Asks the process to end, then kills it and all its descendants by their ids.
    fn drop(&mut self) {
        let others = usage::tree(self.id());
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.id(), Signal::TERM);
        }
        if self.wait_for_end(END_DEADLINE).is_none() {
            // It may have ended in this moment.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for other in others.iter().filter(|other| other.id != self.id()) {
            if other.is_alive() {
                signal(other.id, Signal::KILL);
            }
        }
    }
}

fn signal(process: u32, signal: Signal) {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        // It may have ended already.
        let _ = kill_process(id, signal);
    }
}

/// Starts a command on some cores. A process inherits them from the thread that starts it.
fn spawn_on(cores: Option<Cores>, command: &mut Command) -> anyhow::Result<Child> {
    let Some(cores) = cores else {
        return Ok(command.spawn()?);
    };
    std::thread::scope(|scope| {
        let spawned = scope.spawn(|| -> anyhow::Result<Child> {
            cores.pin_thread()?;
            Ok(command.spawn()?)
        });
        spawned
            .join()
            .unwrap_or_else(|_| bail!("the thread that starts it has failed"))
    })
}

/// Raises the limit of open files of this process, and of those that it starts, to the maximum.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // With the lower limit, connections may fail, and they say so.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Returns an address on which nothing listens.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

/// Builds riglm as packages contain it and returns its path.
pub(crate) fn build_riglm() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let output = Command::new(cargo)
        .args(["build", "--profile", "dist", "--locked", "-p", "riglm-cli"])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(manifest)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start; name a program with --riglm")?;
    if !output.status.success() {
        bail!("riglm does not build; name a program with --riglm");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "riglm")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo has built no program named riglm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::ProcessEntry;

    fn start(script: &str, address: SocketAddr) -> anyhow::Result<Process> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start("it", command, address, TempDir::new().unwrap(), None)
    }

    #[test]
    fn programs_that_end_early_are_reported_with_their_output() {
        let error = start("echo a; echo b >&2; exit 3", free_address().unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.ends_with("a\n  b"), "{text}");
    }

    #[test]
    fn dropped_programs_end_with_all_their_children() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let script = "setsid sleep 600 & sleep 600 & wait";
        let process = start(script, listener.local_addr().unwrap()).unwrap();
        let deadline = Instant::now() + START_DEADLINE;
        let all = loop {
            let all = usage::tree(process.id());
            if all.len() == 3 || Instant::now() > deadline {
                break all;
            }
            std::thread::sleep(LOOK_INTERVAL);
        };
        assert_eq!(all.len(), 3, "{all:?}");
        drop(process);
        while all.iter().any(ProcessEntry::is_alive) {
            assert!(Instant::now() < deadline, "{all:?}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}
