//! Tests of reading lines, and of the client link.

use std::future::ready;

use riglm_ports::contract::downstream::ClientScene;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;

async fn lines(text: &[u8], limit: usize) -> Vec<String> {
    let mut input = BufReader::with_capacity(4, text);
    let mut found = Vec::new();
    loop {
        match read_line(&mut input, limit).await.unwrap() {
            InputLine::Text(line) => found.push(String::from_utf8_lossy(&line).into_owned()),
            InputLine::TooLong => found.push("too long".into()),
            InputLine::End => return found,
        }
    }
}

#[tokio::test]
async fn lines_are_split_and_empty_ones_skipped() {
    assert_eq!(
        lines(b"one\r\n\n \ntwo\nthree", 100).await,
        ["one\r", "two", "three"]
    );
}

#[tokio::test]
async fn oversized_lines_are_dropped_and_the_next_is_read() {
    assert_eq!(
        lines(b"123456789\nok\n123456789", 5).await,
        ["too long", "ok", "too long"]
    );
}

/// A client that reads lines.
#[derive(Debug)]
struct Client {
    link: Arc<StdioLink>,
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Client {
    fn new() -> Self {
        let (output, input) = tokio::io::duplex(64 << 10);
        let lines = Arc::default();
        Self {
            link: Arc::new(StdioLink::start(output, CancellationToken::new())),
            reader: tokio::spawn(read_all_lines(input, Arc::clone(&lines))),
            lines,
        }
    }
}

async fn read_all_lines(input: DuplexStream, lines: Arc<Mutex<Vec<String>>>) {
    let mut input = BufReader::new(input).lines();
    while let Ok(Some(line)) = input.next_line().await {
        lines.lock().push(line);
    }
}

#[async_trait]
impl ClientScene for Client {
    fn link(&self) -> Arc<dyn ClientLink> {
        self.link.clone()
    }

    async fn open_request(&self, _id: &RequestId) {}

    fn received(&self, _route: &Route) -> Vec<String> {
        self.lines.lock().clone()
    }

    fn has_stream_ended(&self, _id: &RequestId) -> Option<bool> {
        None
    }

    /// The end of the output is the end of the session.
    fn has_session_ended(&self) -> bool {
        self.reader.is_finished()
    }

    async fn leave(&self) {
        self.reader.abort();
        while !self.reader.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}

riglm_ports::client_link_contract!(client_link, ready(Box::new(Client::new())));
