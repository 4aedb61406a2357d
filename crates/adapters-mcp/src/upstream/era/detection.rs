//! The detection of the era of a server from its answer to `server/discover` (basic/versioning,
//! "Backward Compatibility"), and the request itself.

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::internal_id::{INTERNAL_PREFIX, SingleRequest};
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION};
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_ports::upstream::UpstreamError;

/// HTTP statuses that concern the caller or the moment, not the era.
const CIRCUMSTANTIAL: [u16; 6] = [401, 403, 407, 408, 425, 429];

/// The answer to a request of the bridge.
pub(super) type Answer = Result<Message, UpstreamError>;

/// The conclusion from an answer about the era of the server.
#[derive(Debug)]
pub(super) enum EraVerdict {
    /// The server speaks a modern revision.
    Modern,
    /// The server speaks no modern revision.
    Legacy,
    /// No conclusion: the failure has other causes.
    Unclear(UpstreamError),
}

/// Returns the conclusion from the answer to a modern request; `None` means no answer in time.
pub(super) fn era_verdict(answer: Option<&Answer>) -> EraVerdict {
    match answer {
        Some(Ok(message)) => match failure(message) {
            None => EraVerdict::Modern,
            Some(error) if is_modern_error(error) => EraVerdict::Modern,
            Some(_) => EraVerdict::Legacy,
        },
        Some(Err(error)) if tells_the_era(error) => EraVerdict::Legacy,
        Some(Err(error)) => EraVerdict::Unclear(error.clone()),
        None => EraVerdict::Legacy,
    }
}

/// Returns whether a server that does not know the era of a request may fail with this error. A
/// process may even exit at an unexpected request.
pub(super) fn tells_the_era(error: &UpstreamError) -> bool {
    match error {
        UpstreamError::Status { status } => {
            (400..500).contains(status) && !CIRCUMSTANTIAL.contains(status)
        }
        UpstreamError::Lost { .. } | UpstreamError::Garbled { .. } | UpstreamError::NoAnswer => {
            true
        }
        UpstreamError::NotStarted { .. }
        | UpstreamError::Unreachable { .. }
        | UpstreamError::Busy { .. }
        | UpstreamError::Unauthorized { .. }
        | UpstreamError::SessionExpired
        | UpstreamError::Refused { .. }
        | UpstreamError::TooLarge { .. }
        | UpstreamError::TooDeep { .. } => false,
    }
}

/// The request to which an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnsweredRequest {
    /// A `server/discover`.
    Discover,
    Other,
}

/// Returns whether the answer to a request contradicts the assumption of a modern server.
pub(super) fn contradicts_modern(answer: &Message, request: AnsweredRequest) -> bool {
    let Some(error) = failure(answer) else {
        return false;
    };
    match code(error) {
        // SDKs answer requests before a handshake with the first of these codes.
        Some(-32000 | -32600) => true,
        Some(-32601 | -32602) => request == AnsweredRequest::Discover,
        Some(-32022) => !is_modern_error(error),
        _ => false,
    }
}

/// Returns whether a failed request contradicts the assumption of a modern server.
pub(super) fn is_unmodern_failure(error: &UpstreamError) -> bool {
    matches!(
        error,
        UpstreamError::Status {
            status: 400 | 404 | 405
        }
    )
}

/// Returns the result of `server/discover` if the server speaks a supported modern revision.
pub(super) fn discover_result(message: &Message) -> Option<&str> {
    let result = message.result(message.single()?)?;
    let is_spoken = match member(result, "supportedVersions") {
        Some(versions) => lists(versions, Revision::NEWEST_MODERN),
        None => true,
    };
    is_spoken.then_some(result)
}

/// Returns the code of an error object.
pub(super) fn code(error: &str) -> Option<i64> {
    member(error, "code")?.parse().ok()
}

/// Returns a `server/discover` request on behalf of the client that sent `initialize`.
pub(super) fn discover_for_initialize(initialize: &Message) -> Option<Message> {
    let params = initialize.params(initialize.single()?).unwrap_or("{}");
    let object = |key| member(params, key).filter(|value| value.starts_with('{'));
    let info = object("clientInfo")
        .map(|info| format!(r#","{CLIENT_INFO}":{info}"#))
        .unwrap_or_default();
    Some(discover(&format!(
        r#"{{"{PROTOCOL_VERSION}":"{}","{CLIENT_CAPABILITIES}":{}{info}}}"#,
        Revision::NEWEST_MODERN,
        object("capabilities").unwrap_or("{}"),
    )))
}

/// Returns a `server/discover` request of the proxy itself. It does not describe a client. A server
/// may refuse a particular client, and this must not decide the era that is stored for all clients.
pub(super) fn discover_for_nobody() -> Message {
    discover(&format!(
        r#"{{"{PROTOCOL_VERSION}":"{}","{CLIENT_CAPABILITIES}":{{}},"{CLIENT_INFO}":{{"name":"riglm","version":"{}"}}}}"#,
        Revision::NEWEST_MODERN,
        env!("CARGO_PKG_VERSION"),
    ))
}

/// Returns the id of the bridge's own `server/discover`.
pub(super) fn discover_id() -> RequestId {
    SingleRequest::Discover.id()
}

/// Returns the id of the bridge's own `ping`.
pub(super) fn ping_id() -> RequestId {
    RequestId::Text(format!("{INTERNAL_PREFIX}ping").into())
}

fn discover(meta: &str) -> Message {
    let params = format!(r#"{{"_meta":{meta}}}"#);
    Message::request(&discover_id(), method::SERVER_DISCOVER, Some(&params))
}

fn failure(message: &Message) -> Option<&str> {
    let envelope = message.single()?;
    match envelope.kind() {
        MessageKind::Failure => message.error(envelope),
        _ => None,
    }
}

/// Returns whether an error is defined by modern revisions. It does not count if the server names
/// only legacy revisions as supported.
fn is_modern_error(error: &str) -> bool {
    let Some(code) = code(error) else {
        return false;
    };
    if code == i64::from(RpcErrorCode::UnsupportedProtocolVersion.code()) {
        let supported = member(error, "data").and_then(|data| member(data, "supported"));
        return supported.is_none_or(|supported| {
            lists(supported, Revision::NEWEST_MODERN)
                || !Revision::WITH_SESSIONS
                    .iter()
                    .any(|revision| lists(supported, revision))
        });
    }
    [
        RpcErrorCode::HeaderMismatch,
        RpcErrorCode::MissingRequiredClientCapability,
    ]
    .iter()
    .any(|known| i64::from(known.code()) == code)
}

/// Returns whether a JSON array of strings contains `text`.
fn lists(array: &str, text: &str) -> bool {
    serde_json::from_str::<Vec<String>>(array).is_ok_and(|all| all.iter().any(|one| one == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(member: &str) -> EraVerdict {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{member}}}"#);
        era_verdict(Some(&Ok(Message::from_text(text).unwrap())))
    }

    #[test]
    fn results_and_modern_errors_identify_modern_servers() {
        for member in [
            r#""result":{"supportedVersions":["2026-07-28"]}"#,
            r#""error":{"code":-32020,"message":"m"}"#,
            r#""error":{"code":-32021,"message":"m"}"#,
            r#""error":{"code":-32022,"message":"m"}"#,
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#,
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2031-01-01"]}}"#,
        ] {
            assert!(matches!(verdict(member), EraVerdict::Modern), "{member}");
        }
    }

    #[test]
    fn other_errors_and_missing_answers_identify_legacy_servers() {
        for member in [
            r#""error":{"code":-32601,"message":"m"}"#,
            r#""error":{"code":-32000,"message":"m"}"#,
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}"#,
        ] {
            assert!(matches!(verdict(member), EraVerdict::Legacy), "{member}");
        }
        let status = |status| era_verdict(Some(&Err(UpstreamError::Status { status })));
        assert!(matches!(status(400), EraVerdict::Legacy));
        assert!(matches!(status(401), EraVerdict::Unclear(_)));
        assert!(matches!(status(503), EraVerdict::Unclear(_)));
        assert!(matches!(era_verdict(None), EraVerdict::Legacy));
    }
}
