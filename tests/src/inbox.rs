//! Everything that a client received, in the order of receipt, and waiting for more of it.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

use crate::envelope::Envelope;

/// The stream that a message came on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output of a child.
    Stdio,
    /// The answer to the POST that carried the request with this raw id (`-` for none).
    Post(String),
    /// The stream that a GET opened.
    Standalone,
    /// The one stream of the HTTP+SSE transport of 2024-11-05.
    Legacy,
}

/// One received message.
#[derive(Clone, Debug)]
pub struct Received {
    /// Where it came from.
    pub stream: Stream,
    /// Its text as it was on the wire, without the framing of the transport.
    pub text: String,
    /// The id of the event that carried it.
    pub event_id: Option<String>,
}

impl Received {
    /// Returns whether the message, or a member of the batch that it is, answers this raw id.
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

/// The messages of one client and a history of both directions for failure reports.
#[derive(Debug)]
pub struct Inbox {
    messages: watch::Sender<Vec<Received>>,
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
    /// Adds a message and wakes those who wait.
    pub fn push(&self, message: Received) {
        self.note(format!("<- {:?} {}", message.stream, message.text));
        self.messages.send_modify(|messages| messages.push(message));
    }

    /// Adds a line to the history; long ones are cut.
    pub fn note(&self, line: String) {
        const SHOWN: usize = 600;
        let line = match line.char_indices().nth(SHOWN) {
            Some((cut, _)) => format!("{} .. ({} bytes)", &line[..cut], line.len()),
            None => line,
        };
        self.history
            .lock()
            .expect("no holder of the history panics")
            .push(line);
    }

    /// Returns a copy of everything received so far.
    pub fn all(&self) -> Vec<Received> {
        self.messages.borrow().clone()
    }

    /// Returns how many messages were received so far.
    pub fn len(&self) -> usize {
        self.messages.borrow().len()
    }

    /// Returns whether nothing was received so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the history as text, one line a message.
    pub fn history(&self) -> String {
        let lines = self
            .history
            .lock()
            .expect("no holder of the history panics");
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "  {line}");
            text
        })
    }

    /// Waits until `find` finds something among the messages and returns it.
    ///
    /// `None` when that did not happen within `deadline`.
    pub async fn find<T>(
        &self,
        deadline: Duration,
        find: impl Fn(&[Received]) -> Option<T>,
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
