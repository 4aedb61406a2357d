//! The received messages of a client, in the order of receipt, and waits for more of them.

use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::envelope::Envelope;

/// The stream that carried a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output of a child process.
    Stdio,
    /// The response to the POST of the request with this raw id (`-` for none).
    Post(String),
    /// The stream that a GET opened.
    Standalone,
    /// The only stream of the HTTP+SSE transport of 2024-11-05.
    Legacy,
}

/// One received message.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    /// The stream that carried the message.
    pub stream: Stream,
    /// The text as it was on the wire, without the framing of the transport.
    pub text: String,
    /// The id of the event that carried the message.
    pub event_id: Option<String>,
}

impl ReceivedMessage {
    /// Returns whether the message, or a member of a batch, is the response to this raw id.
    pub fn answers(&self, id: &str) -> bool {
        Envelope::all(&self.text)
            .iter()
            .any(|envelope| envelope.answers(id))
    }

    /// Returns whether the message is a request or notification of this method.
    pub fn is_method(&self, method: &str) -> bool {
        Envelope::all(&self.text)
            .iter()
            .any(|envelope| envelope.method().as_deref() == Some(method))
    }
}

/// The received messages of one client, and the history of both directions for failure reports.
#[derive(Debug)]
pub struct Inbox {
    messages: watch::Sender<Vec<ReceivedMessage>>,
    history: Mutex<Vec<String>>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            messages: watch::Sender::new(Vec::new()),
            history: Mutex::new(Vec::new()),
        }
    }
}

impl Inbox {
    /// Adds a message and wakes all waiting tasks.
    pub fn push(&self, message: ReceivedMessage) {
        self.note(format!("<- {:?} {}", message.stream, message.text));
        self.messages.send_modify(|messages| messages.push(message));
    }

    /// Adds a line to the history. Lines of more than 600 characters are truncated.
    pub fn note(&self, line: String) {
        const SHOWN: usize = 600;
        let line = match line.char_indices().nth(SHOWN) {
            Some((cut, _)) => format!("{} .. ({} bytes)", &line[..cut], line.len()),
            None => line,
        };
        self.history.lock().push(line);
    }

    /// Returns a copy of all messages.
    pub fn all(&self) -> Vec<ReceivedMessage> {
        self.messages.borrow().clone()
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.borrow().len()
    }

    /// Returns whether no message was received so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the history as text, one line for each entry.
    pub fn history(&self) -> String {
        let lines = self.history.lock();
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "  {line}");
            text
        })
    }

    /// Waits until `find` returns a value for the messages, and returns it.
    ///
    /// Returns `None` after `deadline`.
    pub async fn find<T>(
        &self,
        deadline: Duration,
        find: impl Fn(&[ReceivedMessage]) -> Option<T>,
    ) -> Option<T> {
        let mut watcher = self.messages.subscribe();
        let found = tokio::time::timeout(
            deadline,
            watcher.wait_for(|messages| find(messages).is_some()),
        )
        .await;
        match found {
            Ok(Ok(messages)) => find(&messages),
            _ => None,
        }
    }
}
