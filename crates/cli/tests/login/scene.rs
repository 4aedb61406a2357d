//! A directory with a configuration, the program in it, and a person with a browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use url::Url;

use crate::authority::Authority;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// The text before the address in its line.
const INVITATION: &str = "riglm: open this address to log in to files: ";

pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

/// Runs the program in `directory`, without the environment of the user.
pub(crate) fn riglm(directory: &Path, arguments: &[&str]) -> Running {
    let mut child = Command::new(env!("CARGO_BIN_EXE_riglm"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory)
        .env("PATH", directory.join("programs"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = child.stderr.take().unwrap();
    let (line, lines) = channel();
    std::thread::spawn(move || {
        for text in BufReader::new(errors).lines().map_while(Result::ok) {
            if line.send(text).is_err() {
                return;
            }
        }
    });
    Running {
        child,
        lines,
        seen: Vec::new(),
    }
}

impl Running {
    /// Waits for the address of the login page, and returns it.
    pub(crate) fn address(&mut self) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
                panic!("no address is named: {:?}", self.seen);
            };
            let address = line.strip_prefix(INVITATION).map(str::to_owned);
            self.seen.push(line);
            if let Some(address) = address {
                return address;
            }
        }
    }

    /// Waits for the end, and returns the exit code, the output and the notes.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        // The notes end with the program.
        let start = Instant::now();
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.seen.push(line);
        }
        assert!(start.elapsed() < DEADLINE, "it goes on: {:?}", self.seen);
        let mut stdout = String::new();
        let mut output = self.child.stdout.take().unwrap();
        output.read_to_string(&mut stdout).unwrap();
        let status = self.child.wait().unwrap();
        (status.code(), stdout, self.seen.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An upstream `files` that requires a login.
pub(crate) struct Scene {
    pub(crate) directory: tempfile::TempDir,
    issuer: String,
}

impl Scene {
    pub(crate) fn new(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = format!(
            "[upstreams.files]\nurl = \"{}/mcp\"\ncredentials = {{ type = \"oauth\" }}\n",
            authority.url
        );
        std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
        std::fs::create_dir(directory.path().join("programs")).unwrap();
        Self {
            directory,
            issuer: format!("{}/as", authority.url),
        }
    }

    /// Starts `riglm login files` with further arguments.
    pub(crate) fn login(&self, arguments: &[&str]) -> Running {
        let all = [&["login", "files", "--data-dir", "data"], arguments].concat();
        riglm(self.directory.path(), &all)
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.directory.path().join("data/credentials/files.json")
    }

    /// Acts as the browser of a user who agrees.
    pub(crate) fn allow(&self, address: &str) {
        self.come_back(address, "code=one-time-code");
    }

    /// Acts as the browser of a user who declines.
    pub(crate) fn deny(&self, address: &str) {
        self.come_back(address, "error=access_denied");
    }

    fn come_back(&self, address: &str, outcome: &str) {
        let address = Url::parse(address).unwrap();
        let value = |key: &str| {
            let mut pairs = address.query_pairs();
            pairs
                .find(|(found, _)| found == key)
                .unwrap()
                .1
                .into_owned()
        };
        let back = Url::parse(&value("redirect_uri")).unwrap();
        let port = back.port().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let (path, state, issuer) = (back.path(), value("state"), &self.issuer);
        let request = format!(
            "GET {path}?{outcome}&state={state}&iss={issuer} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    }

    /// Installs a program for opening addresses that records its argument.
    pub(crate) fn install_opener(&self) {
        for name in ["xdg-open", "open"] {
            let path = self.directory.path().join("programs").join(name);
            let script = "#!/bin/sh\nprintf %s \"$*\" > writing && exec /bin/mv writing opened\n";
            std::fs::write(&path, script).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
        }
    }

    /// Waits until an address was opened, and returns it.
    pub(crate) fn opened_address(&self) -> String {
        let start = Instant::now();
        loop {
            if let Ok(text) = std::fs::read_to_string(self.directory.path().join("opened")) {
                return text;
            }
            assert!(start.elapsed() < DEADLINE, "nothing was opened");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
