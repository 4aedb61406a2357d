//! JSON-RPC errors that the proxy itself answers with.
//!
//! JSON-RPC reserves -32768 to -32000 and revision 2026-07-28 of the protocol hands out parts of
//! it, so the proxy's own errors lie outside. The codes of JSON-RPC 2.0 section 5.1, and those that
//! the protocol defines, keep their meaning.

use serde_json::{Value, json};

use crate::message::RequestId;

/// Why the proxy answered a request in place of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RpcErrorCode {
    /// The message is not JSON (JSON-RPC 2.0).
    ParseError,
    /// The message is not a request that may be sent here and now (JSON-RPC 2.0).
    InvalidRequest,
    /// The method is not known here (JSON-RPC 2.0).
    MethodNotFound,
    /// The parameters are not what the method takes (JSON-RPC 2.0).
    InvalidParams,
    /// HTTP headers and body disagree, or a header is missing (revision 2026-07-28).
    HeaderMismatch,
    /// The client lacks a capability that the request needs (revision 2026-07-28).
    MissingRequiredClientCapability,
    /// The revision of the request is not spoken here (revision 2026-07-28).
    UnsupportedProtocolVersion,
    /// The upstream could not be started or reached, or its connection was lost.
    UpstreamUnavailable,
    /// The upstream did not answer within the deadline.
    UpstreamTimeout,
    /// The upstream answered with something that is no answer.
    UpstreamGarbled,
    /// The session is unknown, has ended, or belongs to somebody else.
    SessionNotFound,
    /// A limit of the proxy is reached.
    LimitReached,
    /// The caller is not allowed in.
    Forbidden,
    /// The call cannot be recorded and `recording.mode` is `required`.
    RecordingUnavailable,
}

impl RpcErrorCode {
    /// Returns the number that stands in the error object.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::HeaderMismatch => -32020,
            Self::MissingRequiredClientCapability => -32021,
            Self::UnsupportedProtocolVersion => -32022,
            Self::UpstreamUnavailable => -31001,
            Self::UpstreamTimeout => -31002,
            Self::UpstreamGarbled => -31003,
            Self::SessionNotFound => -31004,
            Self::LimitReached => -31005,
            Self::Forbidden => -31006,
            Self::RecordingUnavailable => -31007,
        }
    }
}

/// An error of the proxy with the text that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// What kind of error it is.
    pub code: RpcErrorCode,
    /// What happened, for the person who reads the client's log.
    pub message: String,
    /// What a program may want to know about it.
    pub data: Option<Value>,
}

impl RpcError {
    /// Returns an error of this kind.
    #[must_use]
    pub fn new(code: RpcErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Returns the error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Returns the JSON-RPC message that answers `id` (or nobody) with this error.
    #[must_use]
    pub fn to_json(&self, id: Option<&RequestId>) -> String {
        let mut error = json!({"code": self.code.code(), "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
            id.map_or_else(|| "null".into(), RequestId::to_json),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_codes_lie_outside_the_reserved_range() {
        for code in [
            RpcErrorCode::UpstreamUnavailable,
            RpcErrorCode::UpstreamTimeout,
            RpcErrorCode::UpstreamGarbled,
            RpcErrorCode::SessionNotFound,
            RpcErrorCode::LimitReached,
            RpcErrorCode::Forbidden,
            RpcErrorCode::RecordingUnavailable,
        ] {
            assert!(!(-32768..=-32000).contains(&code.code()), "{code:?}");
        }
    }

    #[test]
    fn an_error_message_answers_its_id() {
        let error = RpcError::new(RpcErrorCode::UpstreamTimeout, "no \"answer\"");
        assert_eq!(
            error.to_json(Some(&RequestId::Text("a\"b".into()))),
            r#"{"jsonrpc":"2.0","id":"a\"b","error":{"code":-31002,"message":"no \"answer\""}}"#
        );
        assert!(error.to_json(None).contains(r#""id":null"#));
    }
}
