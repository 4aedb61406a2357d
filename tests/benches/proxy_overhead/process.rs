//! Programs that are measured, as processes of their own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that says on which port it listens.
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
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command that starts a proxy before the server at `upstream`, which keeps its files
/// in `data_dir`.
pub(crate) fn serve(
    program: &Path,
    upstream: SocketAddr,
    data_dir: &Path,
    strategy: &str,
) -> Command {
    serve_operators(program, upstream, data_dir, (strategy, "off"))
}

/// Returns the same command for a proxy whose control port is at `control`.
pub(crate) fn serve_operators(
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

/// Returns the release build of riglm beside this bench's own build.
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
