//! The configuration of a running proxy, changed in its file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_riglm");

/// Far longer than the detection of a change takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// `riglm serve` with its log lines.
struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0", "--control", "off"])
            .args(["--data-dir", "data"])
            .current_dir(directory)
            .env_clear()
            .env("HOME", directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let errors = child.stderr.take().expect("standard error is a pipe");
        let (line, lines) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(errors).lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for a line with this text, and returns it.
    fn wait_for(&self, text: &str) -> String {
        let start = Instant::now();
        let mut seen = Vec::new();
        loop {
            let left = DEADLINE.saturating_sub(start.elapsed());
            let received = self.lines.recv_timeout(left);
            assert!(received.is_ok(), "{text:?} is not among {seen:?}");
            let line = received.unwrap_or_default();
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill can be run").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn reload_applies_upstreams_and_limits_and_names_fixed_keys() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let write = |text: &str| {
        let new = directory.path().join("new");
        std::fs::write(&new, text).expect("a file can be written");
        std::fs::rename(new, directory.path().join("riglm.toml")).expect("a file can be renamed");
    };
    write("[upstreams.one]\ncommand = [\"one\"]\n");
    let mut server = Server::start(directory.path());
    server.wait_for("listening on");

    write("[upstreams.one]\ncommand = [\"one\"]\n[upstreams.two]\ncommand = [\"two\"]\n");
    let line = server.wait_for("configuration changed: upstreams");
    assert!(line.ends_with("upstreams are now one, two"), "{line}");

    write("[upstreams.one]\ncommand = [\"one\"]\nheaders = { X = \"hunter2\" }\n");
    let line = server.wait_for("configuration reload failed");
    assert!(
        line.contains("ERROR") && line.contains("upstreams.one"),
        "{line}"
    );
    assert!(!line.contains("hunter2"), "{line}");

    write("limits.sessions = 7\nnaming = \"collision\"\n[upstreams.two]\ncommand = [\"two\"]\n");
    let line = server.wait_for("cannot be changed while riglm runs");
    assert!(
        line.contains("WARN") && line.contains("naming cannot be changed"),
        "{line}"
    );
    let line = server.wait_for("configuration changed: upstreams");
    assert!(line.ends_with("upstreams are now two"), "{line}");
    let line = server.wait_for("configuration changed: limits");
    assert!(
        line.ends_with("configuration changed: limits.sessions"),
        "{line}"
    );

    server.signal("-HUP");
    server.wait_for("configuration reloaded: no runtime change");
    server.signal("-TERM");
    let status = server.child.wait().expect("the program ends");
    assert_eq!(status.code(), Some(0));
}
