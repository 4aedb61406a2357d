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
use tokio::time::timeout;

use super::UpstreamSession;
use super::response_pipeline::with_list_changed;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::health_checks::result_of;
use crate::proxy::log_spans::spawn;

/// The time in which a process that runs already takes over a session. After it the client is
/// answered from what is known.
pub(super) const READY_WITHIN: Duration = Duration::from_millis(100);

/// Answers a question of the client for the server or its tools, if the answer is known and the
/// process is not ready. Returns `None` for all other messages. The future returns whether it was
/// answered. It is boxed because the answer may depend on a message to the upstream.
pub(super) fn answer(
    upstream: &Arc<UpstreamSession>,
    message: &Message,
) -> Option<BoxFuture<'static, bool>> {
    let part = message.single()?;
    let (method, id) = part.as_request()?;
    // Looked at first, because most messages are calls.
    let is_question = matches!(
        method,
        method::INITIALIZE | method::SERVER_DISCOVER | method::TOOLS_LIST
    );
    if !is_question || InternalRequest::of(id).is_some() || !upstream.is_not_ready() {
        return None;
    }
    let (shared, entry) = (&upstream.scope.shared, &upstream.scope.entry);
    let (this, asked) = (Arc::clone(upstream), message.clone());
    let result: BoxFuture<'static, Option<String>> = match method {
        // A connection that is open was made without a handshake.
        method::INITIALIZE if upstream.connection.current().is_none() => {
            let (_, requested) = ClientDescription::of_initialize(message.params(part));
            let era = entry.era_of(Era::Legacy);
            let known = entry.catalog.answer_to(era, Some(&*requested?))?;
            Box::pin(async move { Some(handshake(&this, &asked, &known).await) })
        }
        method::SERVER_DISCOVER => {
            let known = entry.catalog.answer_to(entry.era_of(Era::Modern), None)?;
            Box::pin(async move {
                let is_ready = discovers_soon(&this, asked).await;
                (!is_ready).then(|| known.to_string())
            })
        }
        // A pause may end meanwhile, and with it the whole list.
        method::TOOLS_LIST if shared.selection.configured_lists().is_none() => {
            Box::pin(upstream.known_list_answer(message)?)
        }
        _ => return None,
    };
    let (upstream, message, id) = (Arc::clone(upstream), message.clone(), id.clone());
    Some(Box::pin(async move {
        let Some(result) = result.await else {
            return false;
        };
        // The request may have been answered meanwhile, at the end of the session.
        if upstream.is_waiting_for(&id) {
            pass(&upstream, &message, &result).await;
        } else {
            upstream.state.lock().forget_cancelled(&id);
        }
        true
    }))
}

/// Passes a result to the client as if the upstream had answered the message with it.
async fn pass(upstream: &Arc<UpstreamSession>, message: &Message, result: &str) {
    // The id as the client wrote it.
    let id = member(message.as_str(), "id").unwrap_or("null");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    match Message::from_text(answer) {
        Ok(answer) => upstream.pass_as_received(answer).await,
        Err(error) => tracing::error!("riglm built an invalid answer: {error}"),
    }
}

/// Begins to open the connection with the handshake of the client. Returns its result, or the known
/// one if the process is not ready.
async fn handshake(upstream: &Arc<UpstreamSession>, message: &Message, known: &str) -> String {
    upstream.scope.client_context.set_handshake(|handshake| {
        handshake.initialize = Some(message.clone());
        handshake.initialized = None;
    });
    let this = Arc::clone(upstream);
    let connecting = spawn(async move { this.connect().await.is_ok() });
    let is_ready = matches!(timeout(READY_WITHIN, connecting).await, Ok(Ok(true)));
    if is_ready && let Some(live) = upstream.tools.initialize_result() {
        return live.to_string();
    }
    // The known list may turn out to be another one.
    upstream.scope.client_context.note_promise();
    with_list_changed(known).unwrap_or_else(|| known.to_owned())
}

/// Asks the upstream for discovery. Returns whether the answer comes soon, so that the request of the
/// client can be forwarded.
async fn discovers_soon(upstream: &Arc<UpstreamSession>, request: Message) -> bool {
    let upstream = Arc::clone(upstream);
    let asking = spawn(async move {
        let answer = upstream.send_own_request(request).await.ok()?;
        upstream.tools.note_discovery(result_of(&answer)?);
        Some(())
    });
    matches!(timeout(READY_WITHIN, asking).await, Ok(Ok(Some(()))))
}
