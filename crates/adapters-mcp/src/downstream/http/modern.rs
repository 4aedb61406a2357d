//! Streamable HTTP as of revision 2026-07-28: every message is a POST that says all about itself,
//! and what answers it comes back as the response. There is no handshake, no session of the
//! transport, no stream to listen on and nothing to resume.
//!
//! Apart from the earlier revisions, which have all of that, since the two share an address and
//! nothing else.

mod call;
mod check;
mod client_key;
mod clients;
mod exchanges;
mod link;
mod names;

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use riglm_app::proxy::Visitor;
use riglm_domain::mcp_header::PROTOCOL_VERSION;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::protocol::Revision;
use riglm_domain::request_hints::taken_out;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};

use super::port::Port;
use super::{reply, request, streamable};
use call::Call;
use client_key::ClientKey;
pub(super) use clients::Clients;

/// What the ids begin with that the proxy gives away itself.
const OWN_IDS: &str = "riglm.c:";

/// Returns whether the header with the revision names one of this kind.
pub(super) fn is_named_in(headers: &HeaderMap) -> bool {
    headers
        .get_all(PROTOCOL_VERSION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|version| Revision::new(version).is_modern())
}

/// Returns whether a message that was posted with these headers is one of this kind: the header
/// names such a revision, or the message itself names any. A handshake is not, unless it does.
pub(super) fn is_meant(headers: &HeaderMap, message: &Message) -> bool {
    let is_named = is_named_in(headers);
    if !is_named && headers.contains_key(streamable::SESSION_ID) {
        return false;
    }
    let Some(envelope) = message.single() else {
        return is_named;
    };
    let meta = RequestMeta::read(message.params(envelope));
    meta.protocol_version.is_some() || (is_named && envelope.method() != Some("initialize"))
}

/// Serves a message that was posted.
pub(super) async fn post(
    port: &Arc<Port>,
    visitor: &Visitor,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, Box<Response>> {
    let envelope = message
        .single()
        .filter(|envelope| envelope.method().is_some() && envelope.is_version_2());
    let Some(envelope) = envelope else {
        let text = "the body must be a single request or notification of JSON-RPC 2.0";
        let id = message.single().and_then(Envelope::id);
        let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
        return Err(Box::new(refused(&error, id)));
    };
    let id = envelope.id().cloned();
    let is_request = envelope.kind() == Kind::Request;
    let is_listen = envelope.method() == Some("subscriptions/listen");
    let is_cancellation = envelope.method() == Some("notifications/cancelled");
    let prepared = prepare(visitor, headers, &message);
    let (key, message) = prepared.map_err(|error| Box::new(refused(&error, id.as_ref())))?;
    if is_cancellation {
        // The end of a stream is what cancels here. Ids alone do not tell whose request is meant:
        // several clients may have one session.
        tracing::debug!("a cancellation by message is dropped");
        return Ok(reply::empty(StatusCode::ACCEPTED));
    }
    let (session, link) = port
        .modern
        .find_or_accept(&port.proxy, key)
        .map_err(|error| Box::new(refused(&error, id.as_ref())))?;
    if !is_request {
        return Ok(match streamable::forward(session, message).await {
            Ok(()) => reply::empty(StatusCode::ACCEPTED),
            Err(error) => refused(&error, None),
        });
    }
    let Some((call, message)) = Call::open(session, link, message) else {
        let text = "the session has ended; send the request again";
        let error = RpcError::new(RpcErrorCode::SessionNotFound, text);
        return Err(Box::new(refused(&error, id.as_ref())));
    };
    Ok(if is_listen {
        call.stream(message, request::revoked(port, headers))
    } else {
        call.answer(message).await
    })
}

/// Checks a message and makes it what goes on. Returns whose it is as well.
fn prepare(
    visitor: &Visitor,
    headers: &HeaderMap,
    message: &Message,
) -> Result<(ClientKey, Message), RpcError> {
    let params = message
        .single()
        .and_then(|envelope| message.params(envelope));
    let meta = RequestMeta::read(params);
    check::message(headers, message, &meta)?;
    let param_headers = check::param_headers(headers)?;
    let taken = taken_out(message.clone());
    // By this key a client asks for a session of its own.
    let label = taken.hints().session.as_deref();
    let key = ClientKey::new(visitor, meta.client_info, label);
    Ok((key, taken.with_param_headers(param_headers)))
}

fn refused(error: &RpcError, id: Option<&RequestId>) -> Response {
    reply::error(reply::status_of(error.code), error, id)
}

#[cfg(test)]
mod tests;
