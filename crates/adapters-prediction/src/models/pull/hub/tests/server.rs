//! A server with the part of the hub's protocol that its client needs, which can simulate faults.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// The commit of every file.
pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file, and the way in which it is served.
#[derive(Clone, Debug, Default)]
pub(super) struct ServedFile {
    pub(super) content: Vec<u8>,
    pub(super) etag: String,
    /// Bodies and connections end after this many bytes.
    pub(super) cut: Option<usize>,
    /// After a cut body, connections are closed without a response.
    pub(super) is_gone_after_cut: bool,
    /// Ranges other than the first byte are ignored.
    pub(super) ignores_ranges: bool,
    /// Whether the content is redirected to another URL, as for large files.
    pub(super) is_redirected: bool,
    /// A complete response in place of the normal one. An empty one means no response.
    pub(super) answer: Option<&'static str>,
}

/// A request: path and range.
pub(super) type HubRequest = (String, String);

#[derive(Debug, Default)]
struct HubState {
    files: HashMap<String, ServedFile>,
    asked: Vec<HubRequest>,
    authorizations: Vec<String>,
    is_gone: bool,
}

/// The server. It runs until the process ends.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    state: Arc<Mutex<HubState>>,
    pub(super) endpoint: String,
}

impl Hub {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(HubState::default()));
        let hub = Self { state, endpoint };
        let served = hub.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = served.clone();
                thread::spawn(move || hub.serve(&stream));
            }
        });
        hub
    }

    /// Serves a file of the model. A server that refuses connections accepts them again.
    pub(super) fn put(&self, name: &str, file: ServedFile) {
        let mut state = self.state.lock();
        state.files.insert(name.to_owned(), file);
        state.is_gone = false;
    }

    /// Returns the requested ranges of a file, except for the metadata request.
    pub(super) fn ranges(&self, name: &str) -> Vec<String> {
        let state = self.state.lock();
        let of_file = |(path, range): &&HubRequest| path.ends_with(name) && range != "bytes=0-0";
        let asked = state.asked.iter().filter(of_file);
        asked.map(|(_, range)| range.clone()).collect()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let state = self.state.lock();
        state.asked.iter().map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn authorizations(&self) -> Vec<String> {
        self.state.lock().authorizations.clone()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut range = String::new();
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "range" => value.clone_into(&mut range),
                "authorization" => {
                    let mut state = self.state.lock();
                    state.authorizations.push(value.to_owned());
                }
                _ => {}
            }
        }
        let (name, file) = {
            let mut state = self.state.lock();
            if state.is_gone {
                return;
            }
            state.asked.push((path.clone(), range.clone()));
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            let file = state.files.get(&name).cloned();
            (name, file)
        };
        // A client that was aborted does not read the response.
        let _ = self.answer(stream, &path, &name, &range, file);
    }

    fn answer(
        &self,
        mut stream: &TcpStream,
        path: &str,
        name: &str,
        range: &str,
        file: Option<ServedFile>,
    ) -> std::io::Result<()> {
        let Some(file) = file else {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        };
        if let Some(answer) = file.answer {
            if answer.is_empty() {
                thread::sleep(Duration::from_secs(30));
            }
            return stream.write_all(answer.as_bytes());
        }
        let names = format!("etag: \"{}\"\r\nx-repo-commit: {COMMIT}\r\n", file.etag);
        if file.is_redirected && !path.starts_with("/elsewhere") {
            return write!(
                stream,
                "HTTP/1.1 302 Found\r\nlocation: {}/elsewhere/{name}\r\nx-linked-{names}\
                 content-length: 0\r\nconnection: close\r\n\r\n",
                self.endpoint
            );
        }
        let asked = range.strip_prefix("bytes=").unwrap_or("0-");
        let (from, to) = asked.split_once('-').unwrap();
        let is_look = asked == "0-0";
        let mut from: usize = from.parse().unwrap();
        if file.ignores_ranges && !is_look {
            from = 0;
        }
        let length = file.content.len();
        if from >= length {
            return stream.write_all(b"HTTP/1.1 416 No\r\ncontent-length: 0\r\n\r\n");
        }
        let to = to.parse().map_or(length, |to: usize| to + 1);
        let body = &file.content[from..to];
        let mut head = format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\n",
            body.len()
        );
        write!(head, "content-range: bytes {from}-{}/{length}\r\n", to - 1).unwrap();
        write!(head, "{names}connection: close\r\n\r\n").unwrap();
        stream.write_all(head.as_bytes())?;
        match file.cut {
            Some(cut) if !is_look && cut < body.len() => {
                self.state.lock().is_gone = file.is_gone_after_cut;
                stream.write_all(&body[..cut])
            }
            _ => stream.write_all(body),
        }
    }
}
