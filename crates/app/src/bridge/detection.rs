//! What an answer to `server/discover` tells about the era of a server (basic/versioning,
//! "Backward Compatibility"), and the request itself.

use riglm_domain::edit::member;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, RequestMeta};
use riglm_domain::protocol::Revision;
use riglm_domain::rpc_error::RpcErrorCode;
use riglm_ports::upstream::UpstreamError;

/// The id of the bridge's own `server/discover`.
pub(super) const DISCOVER_ID: &str = "riglm:discover";
/// The request by which modern servers tell what they speak and can.
pub(super) const DISCOVER: &str = "server/discover";
/// The request that opens a legacy session.
pub(super) const INITIALIZE: &str = "initialize";

/// HTTP statuses that say something about the caller or the moment, not about the era.
const CIRCUMSTANTIAL: [u16; 6] = [401, 403, 407, 408, 425, 429];

/// What became of a request of the bridge's own.
pub(super) type Answer = Result<Message, UpstreamError>;

/// What an answer tells about the server.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It speaks a modern revision.
    Modern,
    /// It speaks none.
    Legacy,
    /// Nothing: the failure has other causes.
    Unclear(UpstreamError),
}

/// Judges the answer to a request of a modern revision; `None` is no answer in time.
pub(super) fn judge(answer: Option<&Answer>) -> Verdict {
    match answer {
        Some(Ok(message)) => match failure(message) {
            None => Verdict::Modern,
            Some(error) if is_modern_error(error) => Verdict::Modern,
            Some(_) => Verdict::Legacy,
        },
        Some(Err(error)) if tells_the_era(error) => Verdict::Legacy,
        Some(Err(error)) => Verdict::Unclear(error.clone()),
        None => Verdict::Legacy,
    }
}

/// Returns whether a failure may come of the server not knowing the era of the request. A process
/// may well end at a request that it did not expect.
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

/// Returns whether the answer to a request with this method contradicts the belief that the server
/// is a modern one.
pub(super) fn contradicts_modern(message: &Message, is_discover: bool) -> bool {
    let Some(error) = failure(message) else {
        return false;
    };
    match code(error) {
        // SDKs answer with the first of these what comes before a handshake.
        Some(-32000 | -32600) => true,
        Some(-32601 | -32602) => is_discover,
        Some(-32022) => !is_modern_error(error),
        _ => false,
    }
}

/// Returns whether a request that went unanswered contradicts it.
pub(super) fn is_unmodern_failure(error: &UpstreamError) -> bool {
    matches!(
        error,
        UpstreamError::Status {
            status: 400 | 404 | 405
        }
    )
}

/// Returns the result of `server/discover` of a server that can be spoken to.
pub(super) fn discovered(message: &Message) -> Option<&str> {
    let result = message.result(message.single()?)?;
    let is_spoken = match member(result, "supportedVersions") {
        Some(versions) => lists(versions, Revision::V2026_07_28),
        None => true,
    };
    is_spoken.then_some(result)
}

/// Returns the code of an error object.
pub(super) fn code(error: &str) -> Option<i64> {
    member(error, "code")?.parse().ok()
}

/// Returns whether the message is a request of a modern revision.
pub(super) fn is_modern_request(message: &Message) -> bool {
    message.single().is_some_and(|envelope| {
        envelope.kind() == Kind::Request
            && RequestMeta::read(message.params(envelope))
                .revision()
                .is_some()
    })
}

/// Returns whether the message has this method; of a batch, whether a member of it has.
pub(super) fn has_method(message: &Message, method: &str) -> bool {
    let mut envelopes = message.envelopes().iter();
    envelopes.any(|envelope| envelope.method() == Some(method))
}

/// Returns a `server/discover` on behalf of the client that sent `initialize`.
pub(super) fn discover_for_initialize(initialize: &Message) -> Option<Message> {
    let params = initialize.params(initialize.single()?).unwrap_or("{}");
    let object = |key| member(params, key).filter(|value| value.starts_with('{'));
    let info = object("clientInfo")
        .map(|info| format!(r#","{CLIENT_INFO}":{info}"#))
        .unwrap_or_default();
    discover(&format!(
        r#"{{"{PROTOCOL_VERSION}":"{}","{CLIENT_CAPABILITIES}":{}{info}}}"#,
        Revision::V2026_07_28,
        object("capabilities").unwrap_or("{}"),
    ))
}

/// Returns a `server/discover` of the proxy's own. What a client says of itself is not in it: a
/// server that refuses that says nothing of its era, which is remembered for all clients.
pub(super) fn discover_for_nobody() -> Option<Message> {
    discover(&format!(
        r#"{{"{PROTOCOL_VERSION}":"{}","{CLIENT_CAPABILITIES}":{{}},"{CLIENT_INFO}":{{"name":"riglm","version":"{}"}}}}"#,
        Revision::V2026_07_28,
        env!("CARGO_PKG_VERSION"),
    ))
}

/// Returns the id of the bridge's own `server/discover`.
pub(super) fn discover_id() -> RequestId {
    RequestId::Text(DISCOVER_ID.into())
}

fn discover(meta: &str) -> Option<Message> {
    Message::from_text(format!(
        r#"{{"jsonrpc":"2.0","id":"{DISCOVER_ID}","method":"{DISCOVER}","params":{{"_meta":{meta}}}}}"#
    ))
    .ok()
}

fn failure(message: &Message) -> Option<&str> {
    let envelope = message.single()?;
    match envelope.kind() {
        Kind::Failure => message.error(envelope),
        _ => None,
    }
}

/// Returns whether an error is one that modern revisions define. A server that names legacy
/// revisions as the only ones it supports is none of them.
fn is_modern_error(error: &str) -> bool {
    let Some(code) = code(error) else {
        return false;
    };
    if code == i64::from(RpcErrorCode::UnsupportedProtocolVersion.code()) {
        let supported = member(error, "data").and_then(|data| member(data, "supported"));
        return supported.is_none_or(|supported| {
            lists(supported, Revision::V2026_07_28)
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

/// Returns whether a JSON array of strings holds `text`.
fn lists(array: &str, text: &str) -> bool {
    serde_json::from_str::<Vec<String>>(array).is_ok_and(|all| all.iter().any(|one| one == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(member: &str) -> Verdict {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{member}}}"#);
        judge(Some(&Ok(Message::from_text(text).unwrap())))
    }

    #[test]
    fn a_result_or_a_modern_error_is_that_of_a_modern_server() {
        for member in [
            r#""result":{"supportedVersions":["2026-07-28"]}"#,
            r#""error":{"code":-32020,"message":"m"}"#,
            r#""error":{"code":-32021,"message":"m"}"#,
            r#""error":{"code":-32022,"message":"m"}"#,
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#,
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2031-01-01"]}}"#,
        ] {
            assert!(matches!(verdict(member), Verdict::Modern), "{member}");
        }
    }

    #[test]
    fn anything_else_is_that_of_a_legacy_server() {
        for member in [
            r#""error":{"code":-32601,"message":"m"}"#,
            r#""error":{"code":-32000,"message":"m"}"#,
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}"#,
        ] {
            assert!(matches!(verdict(member), Verdict::Legacy), "{member}");
        }
        let status = |status| judge(Some(&Err(UpstreamError::Status { status })));
        assert!(matches!(status(400), Verdict::Legacy));
        assert!(matches!(status(401), Verdict::Unclear(_)));
        assert!(matches!(status(503), Verdict::Unclear(_)));
        assert!(matches!(judge(None), Verdict::Legacy));
    }
}
