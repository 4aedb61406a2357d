//! A raw JSON-RPC client over the three transports, and over the POSTs of revision 2026-07-28.
//!
//! It sends texts unchanged and keeps every received message as it was on the wire, with the stream
//! that carried it. Requests of the server are answered from [`Answers`]. Every wait has a deadline
//! and fails with the history of the conversation.

mod legacy;
mod mirrors;
mod modern;
mod stdio;
mod streamable;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::RwLock;
use tokio::process::Command;
use url::Url;

use crate::answers::Answers;
use crate::envelope::{Envelope, string_at};
use crate::inbox::{Inbox, ReceivedMessage, Stream};
use crate::messages;
use crate::process::Process;

/// The default deadline of a wait for a message.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The response of the transport to a sent text.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// The HTTP status; 0 over stdio.
    pub status: u16,
    /// The HTTP headers; empty over stdio.
    pub headers: HeaderMap,
    /// The HTTP body, if it was not a stream.
    pub body: String,
}

#[derive(Debug)]
enum Link {
    Stdio(stdio::Stdio),
    Streamable(streamable::Streamable),
    Legacy(legacy::Legacy),
    Modern(modern::Modern),
}

#[derive(Debug)]
struct SharedState {
    inbox: Inbox,
    link: Link,
    answers: RwLock<Answers>,
}

impl SharedState {
    fn new(link: Link, answers: Answers) -> Arc<Self> {
        Arc::new(Self {
            inbox: Inbox::default(),
            link,
            answers: RwLock::new(answers),
        })
    }

    /// Records a message and sends the canned responses to the requests in it.
    fn receive(self: &Arc<Self>, message: ReceivedMessage) {
        let answers = self.answers.read().to(&message.text);
        self.inbox.push(message);
        for answer in answers {
            // In a task of its own: over HTTP, sending waits for the head of the response.
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.send(&answer).await });
        }
    }

    async fn send(self: &Arc<Self>, text: &str) -> Delivery {
        self.inbox.note(format!("-> {text}"));
        match &self.link {
            Link::Stdio(link) => link.send(self, text).await,
            Link::Streamable(link) => link.post(self, text).await,
            Link::Legacy(link) => link.post(self, text).await,
            Link::Modern(link) => link.post(self, text, &[]).await,
        }
    }
}

/// A client with one session.
#[derive(Debug)]
pub struct RawClient {
    shared: Arc<SharedState>,
    process: Option<Process>,
    patience: Duration,
}

impl RawClient {
    /// Starts a server as a child process and uses its standard input and output.
    pub fn stdio(command: Command, answers: Answers) -> Self {
        let (process, stdin, stdout) = Process::spawn_piped(command);
        let shared = SharedState::new(Link::Stdio(stdio::Stdio::new(stdin)), answers);
        stdio::read(&shared, stdout);
        Self::new(shared, Some(process))
    }

    /// Returns a client of a Streamable HTTP endpoint. Nothing is sent yet.
    pub fn streamable(url: &Url, answers: Answers) -> Self {
        let link = Link::Streamable(streamable::Streamable::new(url.clone()));
        Self::new(SharedState::new(link, answers), None)
    }

    /// Returns a client of an HTTP endpoint of revision 2026-07-28: each message is a POST with
    /// headers that are derived from its body.
    pub fn modern(url: &Url) -> Self {
        let link = Link::Modern(modern::Modern::new(url.clone()));
        Self::new(SharedState::new(link, Answers::default()), None)
    }

    /// Opens the event stream of an HTTP+SSE server and waits for the `endpoint` event.
    pub async fn legacy(url: &Url, answers: Answers) -> Self {
        let link = Link::Legacy(legacy::Legacy::default());
        let client = Self::new(SharedState::new(link, answers), None);
        legacy::connect(&client.shared, url).await;
        client
    }

    fn new(shared: Arc<SharedState>, process: Option<Process>) -> Self {
        Self {
            shared,
            process,
            patience: PATIENCE,
        }
    }

    /// Returns the client with another deadline for its waits.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Replaces the canned responses.
    pub fn set_answers(&self, answers: Answers) {
        *self.shared.answers.write() = answers;
    }

    /// Adds a header to all later HTTP requests, or replaces it.
    pub fn set_header(&self, name: &str, value: &str) {
        match &self.shared.link {
            Link::Streamable(link) => link.set_header(name, value),
            Link::Legacy(link) => link.set_header(name, value),
            Link::Modern(link) => link.set_header(name, value),
            Link::Stdio(_) => {}
        }
    }

    /// Sends a text with some headers changed (`Some`) or left out (`None`).
    ///
    /// Only HTTP of revision 2026-07-28 has such headers; other transports panic.
    pub async fn send_with(&self, text: &str, headers: &[(&str, Option<&str>)]) -> Delivery {
        let Link::Modern(link) = &self.shared.link else {
            self.fail("only POSTs of revision 2026-07-28 have headers of their own");
        };
        self.shared.inbox.note(format!("-> {headers:?} {text}"));
        let sent = link.post(&self.shared, text, headers);
        match tokio::time::timeout(self.patience, sent).await {
            Ok(delivery) => delivery,
            Err(_) => self.fail(&format!("the sending of {} did not end", short(text))),
        }
    }

    /// Cancels the request with this raw id in the manner of its transport: closes the stream of
    /// its POST, or sends `notifications/cancelled`.
    pub async fn cancel(&self, id: &str) {
        match &self.shared.link {
            Link::Modern(link) => {
                self.shared
                    .inbox
                    .note(format!("!! closes the stream of {id}"));
                link.close_stream(id);
            }
            _ => {
                self.send(&messages::cancelled_notification(id)).await;
            }
        }
    }

    /// Returns the session id from the server, over Streamable HTTP.
    pub fn session_id(&self) -> Option<String> {
        match &self.shared.link {
            Link::Streamable(link) => link.session_id(),
            _ => None,
        }
    }

    /// Returns the child process of a client over stdio.
    pub fn process(&mut self) -> &mut Process {
        self.process
            .as_mut()
            .unwrap_or_else(|| panic!("only a client over stdio has a process"))
    }

    /// Closes the standard input of the child process.
    pub async fn close_input(&self) {
        if let Link::Stdio(link) = &self.shared.link {
            link.close().await;
        }
    }

    /// Writes any bytes to the standard input of the child process.
    pub async fn send_bytes(&self, bytes: &[u8]) {
        if let Link::Stdio(link) = &self.shared.link {
            link.write(bytes).await;
        }
    }

    /// Sends a text unchanged. Over HTTP it returns when the head of the response has arrived.
    pub async fn send(&self, text: &str) -> Delivery {
        match tokio::time::timeout(self.patience, self.shared.send(text)).await {
            Ok(delivery) => delivery,
            Err(_) => self.fail(&format!("the sending of {} did not end", short(text))),
        }
    }

    /// Sends a request and waits for its response.
    pub async fn request(&self, text: &str) -> ReceivedMessage {
        let id = Envelope::all(text)
            .iter()
            .find_map(|envelope| envelope.id().map(str::to_owned))
            .unwrap_or_else(|| panic!("a request needs an id: {text}"));
        let start = self.shared.inbox.len();
        let shared = Arc::clone(&self.shared);
        let owned = text.to_owned();
        // Over HTTP the head of the response may come late, so only the message is awaited.
        let sending = tokio::spawn(async move { shared.send(&owned).await });
        let answer = self.answer_after(start, &id).await;
        sending.abort();
        answer
    }

    /// Waits for the response to a request that was sent before.
    pub async fn answer(&self, id: &str) -> ReceivedMessage {
        self.answer_after(0, id).await
    }

    /// Waits for the response to `id` among the messages from number `start` on.
    pub async fn answer_after(&self, start: usize, id: &str) -> ReceivedMessage {
        self.wait(&format!("the answer to request {id}"), |messages| {
            messages.iter().skip(start).find(|m| m.answers(id)).cloned()
        })
        .await
    }

    /// Waits for `count` messages of `method` after the first `start` messages, and returns them.
    pub async fn method_after(
        &self,
        start: usize,
        method: &str,
        count: usize,
    ) -> Vec<ReceivedMessage> {
        self.wait(&format!("{count} of {method}"), |messages| {
            let found: Vec<ReceivedMessage> = messages
                .iter()
                .skip(start)
                .filter(|message| message.is_method(method))
                .cloned()
                .collect();
            (found.len() >= count).then_some(found)
        })
        .await
    }

    /// Waits until `find` returns a value for the received messages.
    pub async fn wait<T>(&self, what: &str, find: impl Fn(&[ReceivedMessage]) -> Option<T>) -> T {
        match self.shared.inbox.find(self.patience, find).await {
            Some(found) => found,
            None => self.fail(&format!("{what} did not come within {:?}", self.patience)),
        }
    }

    /// Returns all messages that were received so far.
    pub fn received_messages(&self) -> Vec<ReceivedMessage> {
        self.shared.inbox.all()
    }

    /// Returns the number of messages that were received so far.
    pub fn n_received(&self) -> usize {
        self.shared.inbox.len()
    }

    /// Returns the conversation so far, for a failure report.
    pub fn history(&self) -> String {
        self.shared.inbox.history()
    }

    /// Opens the GET stream of a Streamable HTTP server, after the event `last_event_id` if given,
    /// and returns the HTTP status. Other transports return 0.
    pub async fn open_stream(&self, last_event_id: Option<&str>) -> u16 {
        match &self.shared.link {
            Link::Streamable(link) => link.open_stream(&self.shared, last_event_id).await,
            _ => 0,
        }
    }

    /// Returns the id of the last event on a stream, over Streamable HTTP. Priming events count.
    pub fn last_event_id(&self, stream: &Stream) -> Option<String> {
        match &self.shared.link {
            Link::Streamable(link) => link.last_event_id(stream),
            _ => None,
        }
    }

    /// Ends the session with a DELETE and returns the HTTP status. Other transports return 0.
    pub async fn delete(&self) -> u16 {
        match &self.shared.link {
            Link::Streamable(link) => link.delete(&self.shared).await,
            _ => 0,
        }
    }

    /// Drops all open event streams, like a client whose connection broke.
    pub fn drop_streams(&self) {
        match &self.shared.link {
            Link::Streamable(link) => link.drop_streams(),
            Link::Legacy(link) => link.drop_stream(),
            Link::Modern(link) => link.drop_streams(),
            Link::Stdio(_) => {}
        }
    }

    /// Initialises the session: sends the given request and `notifications/initialized`, and opens
    /// the GET stream over Streamable HTTP. Returns the response to the request.
    pub async fn initialize(&self, request: &str) -> ReceivedMessage {
        let answer = self.request(request).await;
        self.adopt_version(&answer.text);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        self.open_stream(None).await;
        answer
    }

    /// Sends the negotiated revision of an initialize response in the header of all later requests.
    pub fn adopt_version(&self, answer: &str) {
        let version = string_at(answer, &["result", "protocolVersion"]);
        if let Some(version) = version {
            self.set_header("mcp-protocol-version", &version);
        }
    }

    fn fail(&self, what: &str) -> ! {
        let output = self.process.as_ref().map(Process::output);
        panic!(
            "{what}\nconversation:\n{}child printed:\n{}",
            self.history(),
            output.unwrap_or_default()
        )
    }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}
