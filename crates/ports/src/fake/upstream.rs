//! An upstream that does what a test tells it to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;

use crate::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};

/// Remembers what is sent to it, and reports what the test lets it say.
#[derive(Debug)]
pub struct ScriptedUpstream {
    name: UpstreamName,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    sent: Vec<(usize, String)>,
    /// The place in a trace that each of them was sent from, as it is written in headers.
    traces: Vec<Option<String>>,
    connections: Vec<Arc<dyn UpstreamEvents>>,
    n_closed: usize,
    refusals: VecDeque<UpstreamError>,
    connect_refusals: VecDeque<UpstreamError>,
    replies: Vec<(String, String)>,
    /// Said once before the others.
    first_replies: Vec<(String, String)>,
    has_streams: bool,
}

impl ScriptedUpstream {
    /// Returns an upstream that takes everything and says nothing.
    #[must_use]
    pub fn new(name: UpstreamName) -> Self {
        Self {
            name,
            script: Arc::default(),
        }
    }

    /// Makes the upstream one that says on whose behalf its messages come.
    pub fn with_streams(&self) {
        self.script().has_streams = true;
    }

    /// Makes the next attempt to connect fail.
    pub fn refuse_connection(&self, error: UpstreamError) {
        self.script().connect_refusals.push_back(error);
    }

    /// Makes the next attempt to send fail.
    pub fn refuse_message(&self, error: UpstreamError) {
        self.script().refusals.push_back(error);
    }

    /// Answers every request with this method at once, with this result or error member (JSON
    /// text such as `"result":{}`). The latest such instruction holds.
    pub fn reply_to(&self, method: &str, member: &str) {
        self.script()
            .replies
            .insert(0, (method.into(), member.into()));
    }

    /// Answers the next request with this method so, before what [`Self::reply_to`] says holds.
    pub fn reply_once_to(&self, method: &str, member: &str) {
        let reply = (method.into(), member.into());
        self.script().first_replies.push(reply);
    }

    /// Returns what was sent: the number of the connection, from 0, and the text.
    pub fn sent(&self) -> Vec<(usize, String)> {
        self.script().sent.clone()
    }

    /// Returns where in a trace each message that was sent came from, as it is written in headers.
    pub fn traces(&self) -> Vec<Option<String>> {
        self.script().traces.clone()
    }

    /// Returns how many connections were opened and how many of them were closed.
    pub fn connections(&self) -> (usize, usize) {
        let script = self.script();
        (script.connections.len(), script.n_closed)
    }

    /// Says something on the newest connection. Text that is no message is not said.
    pub async fn say(&self, text: &str, related: Option<RequestId>) {
        let events = self.script().connections.last().cloned();
        if let (Some(events), Ok(message)) = (events, Message::from_text(text.into())) {
            events.received(message, related).await;
        }
    }

    /// Reports that a request will not be answered, on the newest connection.
    pub async fn leave_unanswered(&self, request: RequestId, error: UpstreamError) {
        let events = self.script().connections.last().cloned();
        if let Some(events) = events {
            events.unanswered(request, error).await;
        }
    }

    /// Loses the newest connection.
    pub async fn lose(&self, error: UpstreamError) {
        let events = self.script().connections.last().cloned();
        if let Some(events) = events {
            events.lost(error).await;
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut script = self.script();
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
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        let reply = {
            let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
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
            self.events.received(message, Some(id)).await;
        }
        Ok(Sent::Delivered)
    }

    fn has_streams(&self) -> bool {
        self.script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .has_streams
    }

    async fn close(&self) {
        self.script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .n_closed += 1;
    }
}
