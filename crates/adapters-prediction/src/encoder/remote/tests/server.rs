//! A local server with scripted responses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_ports::encoder::{Encoder as _, TextRole};
use riglm_ports::fake::WordEncoder;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A scripted response.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// A status, further header lines, and a body.
    Reply(u16, &'static str, String),
    /// One vector for each text: its length in bytes, and 1.
    Lengths,
    /// The vectors of [`WordEncoder`].
    Words,
    /// No response for a long time.
    Hang,
}

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: Value,
}

impl Request {
    pub(super) fn inputs(&self) -> Vec<&str> {
        let inputs = self.body["input"].as_array().unwrap();
        inputs.iter().map(|text| text.as_str().unwrap()).collect()
    }
}

/// A server that returns the scripted responses first, then [`Answer::Lengths`].
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) url: String,
    plan: Arc<Mutex<VecDeque<Answer>>>,
    after_plan: Answer,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(super) async fn start(plan: impl IntoIterator<Item = Answer>) -> Self {
        Self::start_with(plan, Answer::Lengths).await
    }

    /// Starts a server that gives every answer in this way.
    pub(super) async fn always(answer: Answer) -> Self {
        Self::start_with([], answer).await
    }

    async fn start_with(plan: impl IntoIterator<Item = Answer>, after_plan: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}/v1", listener.local_addr().unwrap()),
            plan: Arc::new(Mutex::new(plan.into_iter().collect())),
            after_plan,
            requests: Arc::default(),
        };
        let answering = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answering.clone().answer(stream));
            }
        });
        server
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    async fn answer(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap() == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        let request = Request {
            head,
            body: serde_json::from_slice(&body).unwrap(),
        };
        self.requests.lock().push(request.clone());
        let planned = self.plan.lock().pop_front();
        let (status, lines, body) = match planned.unwrap_or(self.after_plan) {
            Answer::Reply(status, lines, body) => (status, lines, body),
            Answer::Lengths => (200, "", lengths(&request.inputs())),
            Answer::Words => (200, "", words(&request.inputs()).await),
            Answer::Hang => return tokio::time::sleep(Duration::from_hours(1)).await,
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-length: {length}\r\n{lines}\r\n"
        );
        // The client may close the connection early.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

async fn words(inputs: &[&str]) -> String {
    let texts = inputs.iter().map(|text| (*text).to_owned()).collect();
    let vectors = WordEncoder.encode(texts, TextRole::Query).await.unwrap();
    let entry = |(index, vector)| json!({"index": index, "embedding": vector});
    let data: Vec<Value> = vectors.iter().enumerate().map(entry).collect();
    json!({"object": "list", "data": data}).to_string()
}

fn lengths(inputs: &[&str]) -> String {
    let entry =
        |(index, text): (usize, &&str)| json!({"index": index, "embedding": [text.len(), 1]});
    let data: Vec<Value> = inputs.iter().enumerate().map(entry).collect();
    json!({"object": "list", "data": data}).to_string()
}
