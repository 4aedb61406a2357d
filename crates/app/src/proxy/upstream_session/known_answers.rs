//! The answers to the client of an only upstream while its process is still starting, from what is
//! known of it. For several upstreams the aggregator answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Era;
use riglm_ports::upstream::BoxedWork;
use tokio::time::timeout;

use super::UpstreamSession;
use super::response_pipeline::with_list_changed;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::health_checks::result_of;
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
    /// was answered. It is boxed because the answer may depend on a message to the upstream.
    pub(super) fn answer_from_known(
        self: &Arc<Self>,
        message: &Message,
    ) -> Option<BoxFuture<'static, bool>> {
        let part = message.single().filter(|_| self.is_not_ready())?;
        let (method, id) = part.as_request()?;
        if InternalRequest::of(id).is_some() {
            return None;
        }
        let (shared, entry) = (&self.scope.shared, &self.scope.entry);
        let (_, requested) = ClientDescription::of_initialize(message.params(part));
        let (upstream, asked) = (Arc::clone(self), message.clone());
        let result: BoxFuture<'static, Option<String>> = match method {
            // A connection that is open was made without a handshake.
            method::INITIALIZE if self.connection.current().is_none() => {
                let known =
                    (entry.catalog).answer_to(entry.era_of(Era::Legacy), Some(&*requested?))?;
                Box::pin(async move { Some(upstream.handshake(&asked, &known).await) })
            }
            method::SERVER_DISCOVER => {
                let known = entry.catalog.answer_to(entry.era_of(Era::Modern), None)?;
                Box::pin(async move {
                    let is_ready = upstream.answers_soon(asked).await;
                    (!is_ready).then(|| known.to_string())
                })
            }
            // A pause may end meanwhile, and with it the whole list.
            method::TOOLS_LIST if shared.selection.configured_lists().is_none() => {
                Box::pin(self.known_list_answer(message)?)
            }
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
            } else {
                upstream.state.lock().forget_cancelled(&id);
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
        // The known list may turn out to be another one.
        self.scope.client_context.note_promise();
        with_list_changed(known).unwrap_or_else(|| known.to_owned())
    }

    /// Asks the upstream the same as the client. Returns whether the answer comes soon, so that the
    /// request of the client can be forwarded.
    async fn answers_soon(self: &Arc<Self>, request: Message) -> bool {
        let upstream = Arc::clone(self);
        let asking = spawn(async move {
            let answer = upstream.send_own_request(request).await.ok()?;
            upstream.tools.note_discovery(result_of(&answer)?);
            Some(())
        });
        matches!(timeout(READY_WITHIN, asking).await, Ok(Ok(Some(()))))
    }

    /// Passes a message to the client as if the upstream had sent it. The future is boxed because a
    /// message from the upstream may lead to a request that is answered in this way.
    pub(super) fn pass_as_received(self: &Arc<Self>, message: Message) -> BoxedWork {
        let upstream = Arc::clone(self);
        Box::pin(async move { upstream.pass_to_client(message, None).await })
    }
}
