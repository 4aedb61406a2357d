//! The POST endpoint of revision 2026-07-28: strict headers, a body or a stream for each request.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

use super::{Exchange, ServerState, headers, multi_round, request};
use crate::envelope::{Envelope, integer_at};
use crate::odd::http_server::{event_stream, stream_of};
use crate::odd::outlet::{Framing, SessionOutput};
use crate::odd::session::error;
use crate::odd::streams::QUEUE;

/// Returns whether a POST is of the modern era, by its header or its body.
pub(in crate::odd) fn is_modern(headers: &HeaderMap, text: &str) -> bool {
    let is_named = headers
        .get("mcp-protocol-version")
        .is_some_and(|value| value.as_bytes() == super::REVISION.as_bytes());
    let is_stated = Envelope::one(text).is_some_and(|envelope| request::is_modern(text, &envelope));
    is_named || is_stated
}

pub(in crate::odd) async fn take(
    world: &Arc<ServerState>,
    headers: &HeaderMap,
    text: &str,
) -> Response {
    let Some(envelope) = Envelope::one(text) else {
        return refuse(
            400,
            &error("null", -32600, "odd: one message a POST", "null"),
        );
    };
    if envelope.is_response() {
        return refuse(400, &error("null", -32600, "odd: nobody asked", "null"));
    }
    let (pipe, mut events) = mpsc::channel(QUEUE);
    let framing = world.settings.framing;
    let out = SessionOutput::Pipe(pipe, framing);
    let Some(exchange) = Exchange::read(&envelope, &headers::mcp_headers(headers), out) else {
        return StatusCode::ACCEPTED.into_response();
    };
    if let Some(message) = headers::mismatch(headers, text, &envelope) {
        return refuse(400, &error(&exchange.id, -32020, &message, "null"));
    }
    if let Some(refusal) = request::refusal(&world.settings, &exchange) {
        return refuse(400, &refusal);
    }
    let is_stream = streams(&exchange);
    world.accept(exchange);
    match (is_stream, framing) {
        (true, Framing::Events) => return event_stream(None, events),
        (true, Framing::Lines | Framing::Nothing) => {
            return stream_of("application/json", None, events);
        }
        (false, _) => {}
    }
    let sent = events.recv().await.unwrap_or_default();
    let body = if framing == Framing::Events {
        let mut decoder = crate::sse::Decoder::default();
        decoder.feed(&sent).pop().unwrap_or_default().data
    } else {
        String::from_utf8_lossy(&sent).trim_end().to_owned()
    };
    refuse(status_of(&body), &body)
}

/// Returns whether the response to a request is a stream. It is for tool calls and subscriptions,
/// unless a capability is missing.
fn streams(exchange: &Exchange) -> bool {
    match exchange.method.as_str() {
        "tools/call" => exchange
            .param(&["name"])
            .and_then(|name| serde_json::from_str::<String>(&name).ok())
            .is_none_or(|name| multi_round::lacks(exchange, &name).is_none()),
        "subscriptions/listen" => true,
        _ => false,
    }
}

fn status_of(body: &str) -> u16 {
    match integer_at(body, &["error", "code"]) {
        Some(-32601) => 404,
        Some(-32021) => 400,
        _ => 200,
    }
}

/// Responds with a JSON body that is printed over several lines.
fn refuse(status: u16, body: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = format!(
        "\n{}\r\n",
        body.replace(r#","jsonrpc""#, ",\r\n\t \"jsonrpc\"")
    );
    (status, [("content-type", "application/json")], body).into_response()
}
