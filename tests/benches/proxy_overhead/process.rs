//! The measured programs, as child processes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that prints its port.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the process starts");
        let stderr = child.stderr.take().expect("standard error is a pipe");
        let mut lines = BufReader::new(stderr).lines();
        let address = loop {
            let line = lines
                .next()
                .expect("the process says where it listens")
                .expect("UTF-8");
            if let Some((_, rest)) = line.split_once("http://") {
                break rest
                    .split('/')
                    .next()
                    .unwrap_or(rest)
                    .parse()
                    .expect("an address");
            }
        };
        // Reads on, so that the process never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command for a proxy in front of the server at `upstream`, with its data in
/// `data_dir`.
pub(crate) fn serve_command(
    program: &Path,
    upstream: SocketAddr,
    data_dir: &Path,
    strategy: &str,
) -> Command {
    serve_command_with_control(program, upstream, data_dir, (strategy, "off"))
}

/// Returns the same command with the control port at `control`.
pub(crate) fn serve_command_with_control(
    program: &Path,
    upstream: SocketAddr,
    data_dir: &Path,
    (strategy, control): (&str, &str),
) -> Command {
    let mut command = Command::new(program);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--control", control])
        .args(["--strategy", strategy])
        .args(["--upstream", &format!("http://{upstream}/mcp")])
        .arg("--data-dir")
        .arg(data_dir)
        .stderr(Stdio::piped());
    command
}

/// Builds the release version of riglm and returns its path, in the folder of this bench's own
/// build.
pub(crate) fn riglm_program() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "-p", "riglm-cli"])
        .status()
        .expect("cargo runs");
    assert!(built.success(), "riglm does not build");
    let own = std::env::current_exe().expect("the path of this program");
    own.ancestors()
        .find(|path| path.ends_with("release"))
        .expect("benches are built in a folder named release")
        .join("riglm")
}
