//! The answers to the client of an only upstream while its process is still starting, from what is
//! known of it. For several upstreams the aggregator answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::{Era, Revision};
use riglm_ports::upstream::BoxedWork;
use serde_json::json;
use tokio::time::timeout;

use super::UpstreamSession;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::log_spans::spawn;

/// The time in which a process that runs already takes over a session. After it the client is
/// answered from what is known.
pub(super) const READY_WITHIN: Duration = Duration::from_millis(100);

impl UpstreamSession {
    /// Returns whether messages pass verbatim, and the next one needs a process that has not
    /// answered anything.
    pub(super) fn is_not_ready(&self) -> bool {
        let is_starting = || {
            let live = self.connection.current();
            live.is_none_or(|live| live.link.time_to_start().is_some())
        };
        !self.scope.is_merged() && self.scope.entry.starts_processes() && is_starting()
    }

    /// Answers a question of the client for the server or its tools, if the answer is known and the
    /// process is not ready. Returns `None` for all other messages. The future returns whether it
    /// was answered.
    ///
    /// It is boxed because the answer may depend on a message to the upstream.
    pub(super) fn answer_from_known(
        self: &Arc<Self>,
        message: &Message,
    ) -> Option<BoxFuture<'static, bool>> {
        let part = message.single().filter(|_| self.is_not_ready())?;
        let (method, id) = part.as_request()?;
        if InternalRequest::of(id).is_some() {
            return None;
        }
        let entry = &self.scope.entry;
        let greeting = |era| entry.catalog.greeting_for(entry.era_of(era), era);
        let (upstream, asked) = (Arc::clone(self), message.clone());
        let result: BoxFuture<'static, Option<String>> = match method {
            method::INITIALIZE => {
                let known = greeting(Era::Legacy)?;
                Box::pin(async move { Some(upstream.handshake(&asked, &known).await) })
            }
            method::SERVER_DISCOVER => {
                let known = greeting(Era::Modern)?;
                Box::pin(async move {
                    let is_ready = upstream.answers_soon(asked).await;
                    (!is_ready).then(|| known.to_string())
                })
            }
            method::TOOLS_LIST => Box::pin(self.known_list_answer(message)?),
            _ => return None,
        };
        let (upstream, message, id) = (Arc::clone(self), message.clone(), id.clone());
        Some(Box::pin(async move {
            let Some(result) = result.await else {
                return false;
            };
            // The request may have been answered meanwhile, at the end of the session.
            if upstream.is_waiting_for(&id) {
                upstream.pass_known(&message, &result).await;
            }
            true
        }))
    }

    /// Passes a result to the client as if the upstream had answered the message with it.
    async fn pass_known(self: &Arc<Self>, message: &Message, result: &str) {
        // The id as the client wrote it.
        let id = member(message.as_str(), "id").unwrap_or("null");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        match Message::from_text(answer) {
            Ok(answer) => self.pass_as_received(answer).await,
            Err(error) => tracing::error!("riglm built an invalid answer: {error}"),
        }
    }

    /// Begins to open the connection with the handshake of the client. Returns its result, or the
    /// known one if the process is not ready.
    async fn handshake(self: &Arc<Self>, message: &Message, known: &str) -> String {
        self.scope.client_context.set_handshake(|handshake| {
            handshake.initialize = Some(message.clone());
            handshake.initialized = None;
        });
        let upstream = Arc::clone(self);
        let connecting = spawn(async move { upstream.connect().await.is_ok() });
        let is_ready = matches!(timeout(READY_WITHIN, connecting).await, Ok(Ok(true)));
        if is_ready && let Some(live) = self.tools.initialize_result() {
            return live.to_string();
        }
        let params = message.single().and_then(|part| message.params(part));
        let (_, requested) = ClientDescription::of_initialize(params);
        handshake_result(known, requested.as_deref())
    }

    /// Asks the upstream the same as the client. Returns whether the answer comes soon, so that the
    /// request of the client can be forwarded.
    async fn answers_soon(self: &Arc<Self>, request: Message) -> bool {
        let upstream = Arc::clone(self);
        let asking = spawn(async move { upstream.send_own_request(request).await });
        matches!(timeout(READY_WITHIN, asking).await, Ok(Ok(Ok(_))))
    }

    /// Passes a message to the client as if the upstream had sent it. The future is boxed because a
    /// message from the upstream may lead to a request that is answered in this way.
    pub(super) fn pass_as_received(self: &Arc<Self>, message: Message) -> BoxedWork {
        let upstream = Arc::clone(self);
        Box::pin(async move { upstream.pass_to_client(message, None).await })
    }
}

/// Returns the known result of a handshake for a client that requested a revision. A server agrees to
/// what it is asked, if it can; the dates of revisions sort by time.
fn handshake_result(known: &str, requested: Option<&str>) -> String {
    let mut spoken = Revision::WITH_SESSIONS.into_iter();
    let revision = spoken.find(|known| Some(*known) == requested);
    let revision = revision.map(|revision| json!(revision).to_string());
    match (revision, member(known, "protocolVersion")) {
        (Some(revision), Some(agreed)) if revision.as_str() < agreed => {
            with_member(known, "protocolVersion", &revision)
        }
        _ => known.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_the_requested_one_up_to_that_of_the_server() {
        let handshake = r#"{"protocolVersion":"2025-06-18"}"#;
        let agreed = |requested| {
            let result = handshake_result(handshake, requested);
            member(&result, "protocolVersion").unwrap().to_owned()
        };
        assert_eq!(agreed(Some("2024-11-05")), r#""2024-11-05""#);
        assert_eq!(agreed(Some("2025-11-25")), r#""2025-06-18""#);
        assert_eq!(agreed(Some("1999-01-01")), r#""2025-06-18""#);
        assert_eq!(agreed(None), r#""2025-06-18""#);
    }
}
