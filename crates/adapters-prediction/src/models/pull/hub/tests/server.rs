//! A server that speaks as much of the hub's protocol as its client needs, and can misbehave.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The commit that every file is at.
pub(super) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file, and how it is handed out.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    pub(super) content: Vec<u8>,
    pub(super) etag: String,
    /// Bodies end after so many bytes, with the connection.
    pub(super) cut: Option<usize>,
    /// After a body was cut, connections are closed without an answer.
    pub(super) is_gone_after_cut: bool,
    /// Ranges other than the first byte are not heeded.
    pub(super) ignores_ranges: bool,
    /// Where another address hands the content out, as for large files.
    pub(super) is_redirected: bool,
    /// The whole answer, instead of one of a hub; an empty one is awaited in vain.
    pub(super) answer: Option<&'static str>,
}

/// What was asked for: path and range.
pub(super) type Asked = (String, String);

#[derive(Debug, Default)]
struct State {
    files: HashMap<String, Served>,
    asked: Vec<Asked>,
    authorizations: Vec<String>,
    is_gone: bool,
}

/// The server, as long as the process lives.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    state: Arc<Mutex<State>>,
    pub(super) endpoint: String,
}

impl Hub {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
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

    /// Serves a file of the model, and mends a server that is gone.
    pub(super) fn put(&self, name: &str, file: Served) {
        let mut state = self.state.lock().unwrap();
        state.files.insert(name.to_owned(), file);
        state.is_gone = false;
    }

    /// Returns the ranges that were asked of a file beyond the first look.
    pub(super) fn ranges(&self, name: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let of_file = |(path, range): &&Asked| path.ends_with(name) && range != "bytes=0-0";
        let asked = state.asked.iter().filter(of_file);
        asked.map(|(_, range)| range.clone()).collect()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.asked.iter().map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn authorizations(&self) -> Vec<String> {
        self.state.lock().unwrap().authorizations.clone()
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
                    let mut state = self.state.lock().unwrap();
                    state.authorizations.push(value.to_owned());
                }
                _ => {}
            }
        }
        let (name, file) = {
            let mut state = self.state.lock().unwrap();
            if state.is_gone {
                return;
            }
            state.asked.push((path.clone(), range.clone()));
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            let file = state.files.get(&name).cloned();
            (name, file)
        };
        // A client that gave up does not read the answer.
        let _ = self.answer(stream, &path, &name, &range, file);
    }

    fn answer(
        &self,
        mut stream: &TcpStream,
        path: &str,
        name: &str,
        range: &str,
        file: Option<Served>,
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
                self.state.lock().unwrap().is_gone = file.is_gone_after_cut;
                stream.write_all(&body[..cut])
            }
            _ => stream.write_all(body),
        }
    }
}
