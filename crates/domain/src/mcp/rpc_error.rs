//! JSON-RPC errors of riglm itself.
//!
//! JSON-RPC reserves the codes -32768 to -32000, and revision 2026-07-28 of the protocol assigns
//! parts of that range. So riglm's own codes are outside of it. The codes of JSON-RPC 2.0 section
//! 5.1, and the codes that the protocol defines, keep their meaning.

use serde_json::{Value, json};

use crate::mcp::message::{Message, RequestId, failure_text};

/// The kind of an error that riglm returns in place of an answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RpcErrorCode {
    /// The message is not JSON (JSON-RPC 2.0).
    ParseError,
    /// The message is not a request that is valid at this point (JSON-RPC 2.0).
    InvalidRequest,
    /// The method is unknown (JSON-RPC 2.0).
    MethodNotFound,
    /// The parameters are invalid for the method (JSON-RPC 2.0).
    InvalidParams,
    /// HTTP headers and body disagree, or a header is missing (revision 2026-07-28).
    HeaderMismatch,
    /// The client lacks a capability that the request needs (revision 2026-07-28).
    MissingRequiredClientCapability,
    /// The revision of the request is not supported (revision 2026-07-28).
    UnsupportedProtocolVersion,
    /// The upstream could not be started or reached, or its connection was lost.
    UpstreamUnavailable,
    /// The upstream did not answer within the deadline.
    UpstreamTimeout,
    /// The upstream sent an invalid answer.
    UpstreamGarbled,
    /// The session is unknown, has ended, or belongs to another client.
    SessionNotFound,
    /// A limit of riglm is reached.
    LimitReached,
    /// The caller is not admitted.
    Forbidden,
    /// The call cannot be recorded and `recording.mode` is `required`.
    RecordingUnavailable,
}

impl RpcErrorCode {
    /// Returns the number in the error object.
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

/// An error of riglm with a text that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The kind of the error.
    pub code: RpcErrorCode,
    /// A description for the person who reads the client's log.
    pub message: String,
    /// Details for programs.
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

    /// Returns the JSON-RPC message that answers `id` with this error. Without an id, the message
    /// has the id `null`.
    #[must_use]
    pub fn to_message(&self, id: Option<&RequestId>) -> Message {
        Message::failure(id, &self.object())
    }

    /// Returns the text of the message that answers `id` with this error.
    #[must_use]
    pub fn to_json(&self, id: Option<&RequestId>) -> String {
        failure_text(id, &self.object())
    }

    /// Returns the error object, as JSON text.
    fn object(&self) -> String {
        let mut error = json!({"code": self.code.code(), "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error.to_string()
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
