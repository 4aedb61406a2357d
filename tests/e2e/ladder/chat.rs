//! A server that plays a language model.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What a request is answered with.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The names of the tools that it was told of, the last one first.
    Reverse,
    /// This text.
    Says(&'static str),
    /// A status without a body.
    Status(u16),
    /// An answer of megabytes.
    Huge,
    /// Something that is no JSON.
    Garbage,
    /// Nothing, for a long time.
    Hang,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Its head, in lower case.
    pub(super) head: String,
    body: Value,
}

impl Request {
    /// Returns what the model was asked.
    pub(super) fn question(&self) -> &str {
        self.body["messages"][1]["content"].as_str().unwrap()
    }

    /// Returns the names of the tools that the model was told of.
    pub(super) fn tools(&self) -> Vec<String> {
        let lines = self.question().lines().filter_map(|line| {
            let tool: Value = serde_json::from_str(line).ok()?;
            tool["name"].as_str().map(str::to_owned)
        });
        lines.collect()
    }
}

/// Answers with the planned answers first, then with [`Answer::Reverse`].
#[derive(Clone, Debug)]
pub(super) struct Chat {
    pub(super) url: String,
    plan: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Chat {
    pub(super) async fn start(plan: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chat = Self {
            url: format!("http://{}/v1", listener.local_addr().unwrap()),
            plan: Arc::new(Mutex::new(plan.into_iter().collect())),
            requests: Arc::default(),
        };
        let answering = chat.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answering.clone().answer(stream));
            }
        });
        chat
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    async fn answer(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let body = serde_json::from_slice(&body).unwrap();
        let request = Request { head, body };
        self.requests.lock().unwrap().push(request.clone());
        let planned = self.plan.lock().unwrap().pop_front();
        let (status, body) = match planned.unwrap_or(Answer::Reverse) {
            Answer::Reverse => {
                let mut names = request.tools();
                names.reverse();
                (200, said(&json!(names).to_string()))
            }
            Answer::Says(text) => (200, said(text)),
            Answer::Status(status) => (status, String::new()),
            Answer::Huge => (200, said(&"x".repeat(8 << 20))),
            Answer::Garbage => (200, "<html>no</html>".into()),
            Answer::Hang => return tokio::time::sleep(Duration::from_hours(1)).await,
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        // The client may not wait for all of it.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

fn said(text: &str) -> String {
    json!({
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 7},
    })
    .to_string()
}
