//! The response to a POST: the meaning of its status, and a body of bounded size.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use reqwest::Response;
use riglm_domain::mcp::message::{Message, MessageError, MessageKind, RequestId};
use riglm_ports::upstream::UpstreamError;

use super::endpoint::failure;
use super::json_stream::{RECORD_SEPARATOR, is_between};
use riglm_adapters_programs::compact::compact;

/// An unwanted body up to this size is read, so that its connection can be reused. With a larger
/// one the connection is closed.
const DRAIN_BYTES: usize = 64 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The media types of bodies with one or several JSON texts.
const JSON_TYPES: [&str; 9] = [
    "application/json",
    "application/json-rpc",
    "application/json-seq",
    "application/jsonl",
    "application/jsonlines",
    "application/ndjson",
    "application/x-jsonlines",
    "application/x-ndjson",
    "text/json",
];

/// The kind of a body, by its `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum BodyKind {
    /// One or several JSON texts.
    Json,
    Events,
    /// No `Content-Type`; the first byte of the body decides.
    Unstated,
    Other,
}

impl BodyKind {
    /// Returns the kind of the body of `response`.
    pub(in super::super) fn of(response: &Response) -> Self {
        let value = response.headers().get(CONTENT_TYPE);
        Self::of_type(value.map(HeaderValue::as_bytes).unwrap_or_default())
    }

    /// Returns the kind for a `Content-Type`, ignoring its parameters.
    fn of_type(value: &[u8]) -> Self {
        let essence = value.split(|byte| matches!(byte, b';' | b',')).next();
        let essence = essence.unwrap_or_default().trim_ascii();
        if essence.is_empty() {
            Self::Unstated
        } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
            Self::Events
        } else if JSON_TYPES
            .iter()
            .any(|json| essence.eq_ignore_ascii_case(json.as_bytes()))
        {
            Self::Json
        } else {
            Self::Other
        }
    }

    /// Returns the kind of a body that begins with `first`.
    pub(super) fn beginning_with(first: u8) -> Self {
        match first {
            b'{' | b'[' | RECORD_SEPARATOR => Self::Json,
            // A comment, or the first letter of a field: `data`, `event`, `id`, `retry`.
            b':' | b'd' | b'e' | b'i' | b'r' => Self::Events,
            _ => Self::Other,
        }
    }
}

/// Returns success if the server accepted a message that needs no answer.
///
/// # Errors
///
/// Returns [`UpstreamError::SessionExpired`] for status 404 within a session, and the error of
/// [`refusal_error`] for every other refusal.
pub(in super::super) fn acceptance(
    response: &Response,
    names_session: bool,
) -> Result<(), UpstreamError> {
    let status = response.status();
    if status.is_success() {
        Ok(())
    } else if status == StatusCode::NOT_FOUND && names_session {
        Err(UpstreamError::SessionExpired)
    } else {
        Err(refusal_error(status))
    }
}

/// Returns the error for a status that refuses a message.
pub(in super::super) fn refusal_error(status: StatusCode) -> UpstreamError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => UpstreamError::Unauthorized {
            reason: format!("the server answered with HTTP status {}", status.as_u16()),
        },
        _ => UpstreamError::Status {
            status: status.as_u16(),
        },
    }
}

/// Reads a small body to its end, so that the connection can be reused.
pub(in super::super) async fn drain(response: Response) {
    if BodyKind::of(&response) != BodyKind::Events {
        // A failure has no consequence except that the connection is closed.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, collect(response, DRAIN_BYTES)).await;
    }
}

/// Reads a whole body.
///
/// # Errors
///
/// Returns [`UpstreamError::TooLarge`] as soon as the body is known to exceed `limit` bytes, and
/// [`UpstreamError::Lost`] when it is interrupted.
pub(in super::super) async fn collect(
    mut response: Response,
    limit: usize,
) -> Result<Bytes, UpstreamError> {
    let too_large = UpstreamError::TooLarge { limit };
    let announced = response.content_length();
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large);
    }
    let mut next = async || response.chunk().await.map_err(|error| failure(&error));
    let Some(first) = next().await? else {
        return Ok(Bytes::new());
    };
    if first.len() > limit {
        return Err(too_large);
    }
    // A body in one chunk needs no copy.
    let Some(second) = next().await? else {
        let n_bytes = first.len();
        return Ok(compact(first, n_bytes));
    };
    let announced = announced.and_then(|length| usize::try_from(length).ok());
    let mut body = BytesMut::with_capacity(announced.unwrap_or(2 * first.len()).min(limit));
    body.extend_from_slice(&first);
    let mut more = Some(second);
    while let Some(chunk) = more {
        if body.len() + chunk.len() > limit {
            return Err(too_large);
        }
        body.extend_from_slice(&chunk);
        more = next().await?;
    }
    Ok(body.freeze())
}

/// Reads a body up to the first chunk with more than white space and returns that chunk; empty if
/// the body has none.
///
/// # Errors
///
/// Returns [`UpstreamError::Lost`] when the body is interrupted.
pub(super) async fn head(response: &mut Response) -> Result<Bytes, UpstreamError> {
    while let Some(mut chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        let is_content = |byte: &u8| !is_between(*byte) || *byte == RECORD_SEPARATOR;
        if let Some(at) = chunk.iter().position(is_content) {
            return Ok(chunk.split_off(at));
        }
    }
    Ok(Bytes::new())
}

/// Parses the data of a server as a message.
///
/// # Errors
///
/// Returns [`UpstreamError::Garbled`] for anything else.
pub(in super::super) fn parse(body: &Bytes) -> Result<Message, UpstreamError> {
    Message::parse(body).map_err(|error| UpstreamError::Garbled {
        reason: match error {
            MessageError::NotUtf8(_) => "not UTF-8",
            MessageError::NotJson(_) => "not JSON",
            MessageError::NotJsonRpc { reason, .. } => reason,
        },
    })
}

/// Returns an error message without an id as the answer to `request`.
///
/// A server that refuses a message before it has read it answers with the id `null`, which matches
/// no request.
pub(super) fn with_request_id(message: Message, request: &RequestId) -> Message {
    let Some(envelope) = message.single() else {
        return message;
    };
    if envelope.kind() != MessageKind::Failure || envelope.id().is_some() {
        return message;
    }
    let Some(error) = message.error(envelope) else {
        return message;
    };
    Message::failure(Some(request), error)
}

/// Returns the JSON-RPC error in the body of an HTTP error. Other services answer with an `error`
/// member too, so the message must be valid JSON-RPC 2.0.
pub(super) fn refusal(body: &Bytes) -> Option<Message> {
    let message = Message::parse(body).ok()?;
    let envelope = message.single()?;
    let is_error = envelope.kind() == MessageKind::Failure
        && envelope.is_version_2()
        && message.error(envelope)?.starts_with('{');
    is_error.then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::from(text.to_owned())
    }

    #[test]
    fn content_types_are_recognized_despite_parameters() {
        for (value, content) in [
            ("application/json", BodyKind::Json),
            ("Application/JSON; charset=\"UTF-8\"; x", BodyKind::Json),
            ("application/x-ndjson", BodyKind::Json),
            ("application/json-seq", BodyKind::Json),
            ("text/event-stream ;charset=latin1", BodyKind::Events),
            ("TEXT/event-stream;;", BodyKind::Events),
            ("text/event-stream, text/event-stream", BodyKind::Events),
            ("", BodyKind::Unstated),
            (" ; charset=utf-8", BodyKind::Unstated),
            ("text/plain", BodyKind::Other),
            ("application/jsonp", BodyKind::Other),
        ] {
            assert_eq!(BodyKind::of_type(value.as_bytes()), content, "{value}");
        }
    }

    #[test]
    fn an_error_without_an_id_becomes_the_answer_to_the_request() {
        let message = parse(&bytes(r#"{"id":null,"error":{"code":-1,"n":1.0}}"#)).unwrap();
        let answer = with_request_id(message, &RequestId::Text("a".into()));
        assert_eq!(
            answer.raw().as_ref(),
            br#"{"jsonrpc":"2.0","id":"a","error":{"code":-1,"n":1.0}}"#
        );
    }

    #[test]
    fn only_a_json_rpc_error_is_taken_from_an_error_status() {
        assert!(refusal(&bytes(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#)).is_some());
        assert!(refusal(&bytes(r#"{"error":"invalid_token"}"#)).is_none());
        assert!(refusal(&bytes(r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#)).is_none());
        assert!(refusal(&bytes("<html>")).is_none());
    }
}
