//! An upstream with scripted answers.

use std::collections::VecDeque;
use std::sync::Arc;

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

#[derive(Debug, Default)]
struct Script {
    sent: Vec<(usize, String)>,
    /// The trace context of each sent message, as a `traceparent` header.
    traces: Vec<Option<String>>,
    connections: Vec<Arc<dyn UpstreamEvents>>,
    n_closed: usize,
    refusals: VecDeque<UpstreamError>,
    connect_refusals: VecDeque<UpstreamError>,
    replies: Vec<(String, String)>,
    // Used once, before `replies`.
    first_replies: Vec<(String, String)>,
    has_streams: bool,
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
        let events = self.script.lock().connections.last().cloned();
        if let (Some(events), Ok(message)) = (events, Message::from_text(text.into())) {
            events.on_message(message, related).await;
        }
    }

    /// Reports on the newest connection that a request will not be answered.
    pub async fn leave_unanswered(&self, request: RequestId, error: UpstreamError) {
        let events = self.script.lock().connections.last().cloned();
        if let Some(events) = events {
            events.on_unanswered(request, error).await;
        }
    }

    /// Reports that the newest connection was lost.
    pub async fn lose_connection(&self, error: UpstreamError) {
        let events = self.script.lock().connections.last().cloned();
        if let Some(events) = events {
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
        script.connections.push(Arc::clone(&events));
        let number = script.connections.len() - 1;
        Ok(Arc::new(ScriptedLink {
            number,
            events,
            script: Arc::clone(&self.script),
        }))
    }
}

#[derive(Debug)]
struct ScriptedLink {
    number: usize,
    events: Arc<dyn UpstreamEvents>,
    script: Arc<Mutex<Script>>,
}

#[async_trait]
impl UpstreamLink for ScriptedLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let reply = {
            let mut script = self.script.lock();
            if let Some(error) = script.refusals.pop_front() {
                return Err(error);
            }
            let text = String::from_utf8_lossy(message.raw()).into_owned();
            script.sent.push((self.number, text));
            let trace = message.trace().map(|trace| trace.traceparent());
            script.traces.push(trace);
            message
                .single()
                .and_then(|envelope| envelope.as_request())
                .and_then(|(method, id)| {
                    let of_method = |(known, _): &(String, String)| known == method;
                    let first = script.first_replies.iter().position(of_method);
                    let first = first.map(|at| script.first_replies.remove(at));
                    let always = || {
                        script
                            .replies
                            .iter()
                            .find(|reply| of_method(reply))
                            .cloned()
                    };
                    let (_, member) = first.or_else(always)?;
                    Some((
                        format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#),
                        id.clone(),
                    ))
                })
        };
        if let Some((text, id)) = reply
            && let Ok(message) = Message::from_text(text)
        {
            self.events.on_message(message, Some(id)).await;
        }
        Ok(SendOutcome::Delivered)
    }

    fn has_streams(&self) -> bool {
        self.script.lock().has_streams
    }

    async fn close(&self) {
        self.script.lock().n_closed += 1;
    }
}
