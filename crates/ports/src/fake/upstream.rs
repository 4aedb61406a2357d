//! An upstream with scripted answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;

use crate::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

/// Records the messages sent to it, and reports the messages of the test's script.
#[derive(Debug)]
pub struct ScriptedUpstream {
    name: UpstreamName,
    script: Arc<Mutex<Script>>,
}

/// The reaction of the server to the text of a message.
type React = dyn Fn(&str) -> ScriptedReaction + Send + Sync;

/// The reaction of a scripted upstream to one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptedReaction {
    /// The messages that the server sends, on the stream of the request if there are streams.
    pub messages: Vec<String>,
    /// Whether the server ends the connection afterwards.
    pub is_end: bool,
}

#[derive(Default)]
struct Script {
    sent: Vec<(usize, String)>,
    /// The trace context of each sent message, as a `traceparent` header.
    traces: Vec<Option<String>>,
    /// The receivers of the connections; `None` after the end of a connection.
    connections: Vec<Option<Arc<dyn UpstreamEvents>>>,
    n_closed: usize,
    react: Option<Arc<React>>,
    refusals: VecDeque<UpstreamError>,
    connect_refusals: VecDeque<UpstreamError>,
    replies: Vec<(String, String)>,
    // Used once, before `replies`.
    first_replies: Vec<(String, String)>,
    has_streams: bool,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// Returns the receiver of the newest connection, unless it has ended.
    fn newest(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.connections.last().cloned().flatten()
    }
}

impl ScriptedUpstream {
    /// Returns an upstream that accepts every message and answers none.
    #[must_use]
    pub fn new(name: UpstreamName) -> Self {
        Self {
            name,
            script: Arc::default(),
        }
    }

    /// Makes the upstream report a stream for each request, as Streamable HTTP does.
    pub fn with_streams(&self) {
        self.script.lock().has_streams = true;
    }

    /// Makes the next attempt to connect fail.
    pub fn refuse_connection(&self, error: UpstreamError) {
        self.script.lock().connect_refusals.push_back(error);
    }

    /// Makes the next attempt to send fail.
    pub fn refuse_message(&self, error: UpstreamError) {
        self.script.lock().refusals.push_back(error);
    }

    /// Answers every request with this method at once, with this result or error member (JSON text
    /// such as `"result":{}`). The latest call for a method overrides earlier ones.
    pub fn reply_to(&self, method: &str, member: &str) {
        self.script
            .lock()
            .replies
            .insert(0, (method.into(), member.into()));
    }

    /// Answers the next request with this method, with priority over [`Self::reply_to`].
    pub fn reply_once_to(&self, method: &str, member: &str) {
        let reply = (method.into(), member.into());
        self.script.lock().first_replies.push(reply);
    }

    /// Reacts to every message like this, before the answers of [`Self::reply_to`].
    pub fn react_with(&self, react: impl Fn(&str) -> ScriptedReaction + Send + Sync + 'static) {
        self.script.lock().react = Some(Arc::new(react));
    }

    /// Returns the sent messages: the number of the connection, from 0, and the text.
    pub fn sent_messages(&self) -> Vec<(usize, String)> {
        self.script.lock().sent.clone()
    }

    /// Returns the trace context of each sent message, as a `traceparent` header.
    pub fn traces(&self) -> Vec<Option<String>> {
        self.script.lock().traces.clone()
    }

    /// Returns the number of opened and the number of closed connections.
    pub fn connections(&self) -> (usize, usize) {
        let script = self.script.lock();
        (script.connections.len(), script.n_closed)
    }

    /// Sends a message on the newest connection. Text that is not a message is ignored.
    pub async fn send_to_client(&self, text: &str, related: Option<RequestId>) {
        let events = self.script.lock().newest();
        if let (Some(events), Ok(message)) = (events, Message::from_text(text.into())) {
            events.on_message(message, related).await;
        }
    }

    /// Reports on the newest connection that a request will not be answered.
    pub async fn leave_unanswered(&self, request: RequestId, error: UpstreamError) {
        let events = self.script.lock().newest();
        if let Some(events) = events {
            events.on_unanswered(request, error).await;
        }
    }

    /// Reports that the newest connection was lost. It refuses messages from then on.
    pub async fn lose_connection(&self, error: UpstreamError) {
        let events = self.script.lock().connections.last_mut().map(Option::take);
        if let Some(Some(events)) = events {
            events.on_lost(error).await;
        }
    }
}

#[async_trait]
impl UpstreamConnector for ScriptedUpstream {
    fn name(&self) -> &UpstreamName {
        &self.name
    }

    async fn connect(
        &self,
        _principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let mut script = self.script.lock();
        if let Some(error) = script.connect_refusals.pop_front() {
            return Err(error);
        }
        script.connections.push(Some(events));
        let number = script.connections.len() - 1;
        Ok(Arc::new(ScriptedLink {
            number,
            is_closed: AtomicBool::new(false),
            script: Arc::clone(&self.script),
        }))
    }
}

#[derive(Debug)]
struct ScriptedLink {
    number: usize,
    is_closed: AtomicBool,
    script: Arc<Mutex<Script>>,
}

impl ScriptedLink {
    /// Returns the receiver of the connection, unless it has ended.
    fn events(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.script.lock().connections[self.number].clone()
    }

    /// Returns the receiver of the connection, which gets nothing from now on.
    fn take_events(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.script.lock().connections[self.number].take()
    }

    /// Reports the reaction to a message.
    async fn react(&self, reaction: ScriptedReaction, related: Option<&RequestId>) {
        for text in reaction.messages {
            if let Some(events) = self.events()
                && let Ok(message) = Message::from_text(text)
            {
                events.on_message(message, related.cloned()).await;
            }
        }
        if reaction.is_end
            && let Some(events) = self.take_events()
        {
            let reason = "the server has ended".into();
            events.on_lost(UpstreamError::Lost { reason }).await;
        }
    }
}

impl Script {
    /// Records a message, and returns the scripted answer to it.
    fn take(&mut self, number: usize, message: &Message) -> Option<String> {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.sent.push((number, text));
        let trace = message.trace().map(|trace| trace.traceparent());
        self.traces.push(trace);
        let (method, id) = message.single()?.as_request()?;
        let of_method = |(known, _): &(String, String)| known == method;
        let first = self.first_replies.iter().position(of_method);
        let first = first.map(|at| self.first_replies.remove(at));
        let always = || self.replies.iter().find(|reply| of_method(reply)).cloned();
        let (_, member) = first.or_else(always)?;
        Some(format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#))
    }
}

#[async_trait]
impl UpstreamLink for ScriptedLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let (reply, react, has_streams) = {
            let mut script = self.script.lock();
            if let Some(error) = script.refusals.pop_front() {
                return Err(error);
            }
            if script.connections[self.number].is_none() {
                return Err(UpstreamError::Lost {
                    reason: "the connection is closed".into(),
                });
            }
            let reply = script.take(self.number, &message);
            (reply, script.react.clone(), script.has_streams)
        };
        let id = message.single().and_then(|part| part.as_request());
        let id = id.map(|(_, id)| id);
        if let Some(react) = react {
            let text = String::from_utf8_lossy(message.raw());
            self.react(react(&text), id.filter(|_| has_streams)).await;
        }
        if let Some(text) = reply {
            let reply = ScriptedReaction {
                messages: vec![text],
                is_end: false,
            };
            self.react(reply, id).await;
        }
        Ok(SendOutcome::Delivered)
    }

    fn has_streams(&self) -> bool {
        self.script.lock().has_streams
    }

    async fn close(&self) {
        self.take_events();
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            self.script.lock().n_closed += 1;
        }
    }
}

impl Drop for ScriptedLink {
    fn drop(&mut self) {
        self.take_events();
    }
}
