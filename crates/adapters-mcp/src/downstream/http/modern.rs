//! Streamable HTTP of revision 2026-07-28: every message is a self-contained POST, and the response
//! carries its answer. There is no handshake, no transport session, no stream to listen on and
//! nothing to resume.
//!
//! It is separate from the earlier revisions, which have all of that, because the two share an
//! address and nothing else.

mod call;
mod check;
mod client_key;
mod clients;
mod exchanges;
mod link;
mod names;
mod session_map;

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use riglm_app::proxy::ClientIdentity;
use riglm_domain::mcp::header::PROTOCOL_VERSION;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::request_hints::extract_hints;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

use super::port::ServerState;
use super::{reply, request, streamable};
pub(super) use call::{Answer, PendingCall};
pub(super) use client_key::ClientKey;
pub(super) use clients::Clients;
pub(super) use link::ModernLink;
pub(super) use session_map::{KeyedSession, SessionMap};

// The prefix of ids that the proxy assigns itself.
const OWN_IDS: &str = "riglm.c:";

pub(super) fn names_modern_revision(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PROTOCOL_VERSION).iter();
    let mut versions = values.filter_map(|value| value.to_str().ok());
    versions.any(|version| Revision::new(version).is_modern())
}

/// Returns whether a message that was posted with these headers is modern: the header names a
/// modern revision, or the message itself names any revision. An `initialize` request is modern
/// only if it names a revision itself.
pub(super) fn is_modern_message(headers: &HeaderMap, message: &Message) -> bool {
    let is_named = names_modern_revision(headers);
    if !is_named && headers.contains_key(streamable::SESSION_ID) {
        return false;
    }
    let Some(envelope) = message.single() else {
        return is_named;
    };
    let meta = message.member(envelope, "_meta").map(RequestMeta::of_meta);
    meta.is_some_and(|meta| meta.protocol_version.is_some())
        || (is_named && envelope.method() != Some(method::INITIALIZE))
}

/// Serves a message that was posted.
pub(super) async fn post(
    port: &Arc<ServerState>,
    visitor: &ClientIdentity,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, Box<Response>> {
    let envelope = message
        .single()
        .filter(|envelope| envelope.method().is_some() && envelope.is_version_2());
    let Some(envelope) = envelope else {
        let text = "the body must be one JSON-RPC 2.0 request or notification";
        let id = message.single().and_then(Envelope::id);
        let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
        return Err(Box::new(error_response(&error, id)));
    };
    let id = envelope.id().cloned();
    let is_request = envelope.kind() == MessageKind::Request;
    let is_listen = envelope.method() == Some(method::SUBSCRIPTIONS_LISTEN);
    let is_cancellation = envelope.method() == Some(method::NOTIFICATIONS_CANCELLED);
    let prepared = prepare(visitor, headers, &message);
    let (key, message) = prepared.map_err(|error| Box::new(error_response(&error, id.as_ref())))?;
    if is_cancellation {
        // In this revision closing the stream cancels a request. An id alone does not identify the
        // request, because several clients may share one session.
        tracing::debug!("ignored notifications/cancelled: closing the response cancels a request");
        return Ok(reply::empty(StatusCode::ACCEPTED));
    }
    let found = port.modern.find_or_accept(&port.proxy, &key);
    let (session, link) = found.map_err(|error| Box::new(error_response(&error, id.as_ref())))?;
    if !is_request {
        return Ok(match streamable::forward(session, message).await {
            Ok(()) => reply::empty(StatusCode::ACCEPTED),
            Err(error) => error_response(&error, None),
        });
    }
    let Some((call, message)) = PendingCall::open(session, link, message) else {
        let text = "the session has ended; send the request again";
        let error = RpcError::new(RpcErrorCode::SessionNotFound, text);
        return Err(Box::new(error_response(&error, id.as_ref())));
    };
    Ok(if is_listen {
        call.stream(message, request::revocation(port, headers))
    } else {
        call.answer(message).await
    })
}

/// Checks a message and prepares it for forwarding. Returns its client too.
fn prepare(
    visitor: &ClientIdentity,
    headers: &HeaderMap,
    message: &Message,
) -> Result<(ClientKey, Message), RpcError> {
    let params = (message.single()).and_then(|envelope| message.params(envelope));
    let meta = RequestMeta::read(params);
    check::message(headers, message, &meta)?;
    let param_headers = check::param_headers(headers)?;
    let taken = extract_hints(message.clone());
    // The label lets a client have a separate session.
    let label = taken.hints().session.as_deref();
    let key = ClientKey::new(visitor, meta.client_info, label);
    Ok((key, taken.with_param_headers(param_headers)))
}

fn error_response(error: &RpcError, id: Option<&RequestId>) -> Response {
    reply::error(reply::status_of(error.code), error, id)
}

#[cfg(test)]
mod tests;
