//! A fake chat endpoint of a language model.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A planned response.
#[derive(Clone, Debug)]
pub(super) enum ChatAnswer {
    /// The names of the tools in the question, in reverse order.
    Reverse,
    Says(&'static str),
    /// A status without a body.
    Status(u16),
    /// A response of several megabytes.
    Huge,
    /// A response that is not JSON.
    Garbage,
    /// No response for a long time.
    Hang,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The head in lower case.
    pub(super) head: String,
    body: Value,
}

impl Request {
    /// Returns the prompt of the user.
    pub(super) fn question(&self) -> &str {
        self.body["messages"][1]["content"].as_str().unwrap()
    }

    /// Returns the names of the tools in the prompt.
    pub(super) fn tools(&self) -> Vec<String> {
        let lines = self.question().lines().filter_map(|line| {
            let tool: Value = serde_json::from_str(line).ok()?;
            tool["name"].as_str().map(str::to_owned)
        });
        lines.collect()
    }
}

/// Responds with the planned responses first, then with [`Answer::Reverse`].
#[derive(Clone, Debug)]
pub(super) struct FakeChatServer {
    pub(super) url: String,
    plan: Arc<Mutex<VecDeque<ChatAnswer>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl FakeChatServer {
    pub(super) async fn start(plan: impl IntoIterator<Item = ChatAnswer>) -> Self {
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
        self.requests.lock().clone()
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
        self.requests.lock().push(request.clone());
        let planned = self.plan.lock().pop_front();
        let (status, body) = match planned.unwrap_or(ChatAnswer::Reverse) {
            ChatAnswer::Reverse => {
                let mut names = request.tools();
                names.reverse();
                (200, completion_body(&json!(names).to_string()))
            }
            ChatAnswer::Says(text) => (200, completion_body(text)),
            ChatAnswer::Status(status) => (status, String::new()),
            ChatAnswer::Huge => (200, completion_body(&"x".repeat(8 << 20))),
            ChatAnswer::Garbage => (200, "<html>no</html>".into()),
            ChatAnswer::Hang => return tokio::time::sleep(Duration::from_hours(1)).await,
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        // The client may disconnect before the end.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

fn completion_body(text: &str) -> String {
    json!({
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 7},
    })
    .to_string()
}
