//! The entries of `_meta` that the protocol reserves, and what requests of revision 2026-07-28 say
//! in them in place of a handshake (basic/index, "General fields").

use std::borrow::Cow;

use crate::edit::member;
use crate::protocol::Revision;
use crate::rpc_error::{RpcError, RpcErrorCode};
use crate::scan::{members, unescaped};

/// The revision of a request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Name and version of the client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the client can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The least severe log message that the server may send for a request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Name and version of the server, in results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` request that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The token under which progress is reported.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// What a request says of its sender, as JSON text borrowed from the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestMeta<'a> {
    /// The revision, a JSON string.
    pub protocol_version: Option<&'a str>,
    /// Name and version of the client, a JSON object.
    pub client_info: Option<&'a str>,
    /// What the client can do, a JSON object.
    pub client_capabilities: Option<&'a str>,
    /// The log level, a JSON string.
    pub log_level: Option<&'a str>,
    /// The progress token, a JSON string or number.
    pub progress_token: Option<&'a str>,
}

impl<'a> RequestMeta<'a> {
    /// Reads `_meta` of the JSON text of `params`.
    #[must_use]
    pub fn read(params: Option<&'a str>) -> Self {
        params
            .and_then(|params| member(params, "_meta"))
            .map_or_else(Self::default, Self::of_meta)
    }

    /// Reads the JSON text of a `_meta`.
    #[must_use]
    pub fn of_meta(meta: &'a str) -> Self {
        let mut read = Self::default();
        for (key, value) in members(meta) {
            match key.as_ref() {
                PROTOCOL_VERSION => read.protocol_version = Some(value),
                CLIENT_INFO => read.client_info = Some(value),
                CLIENT_CAPABILITIES => read.client_capabilities = Some(value),
                LOG_LEVEL => read.log_level = Some(value),
                PROGRESS_TOKEN => read.progress_token = Some(value),
                _ => {}
            }
        }
        read
    }

    /// Returns the revision that the request names, known or not; `None` if it names none, as
    /// requests of legacy revisions do.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        let text = self.protocol_version?;
        let text = unescaped(text).unwrap_or(Cow::Borrowed(text));
        Some(Revision::new(&text))
    }

    /// Checks what every request of a modern revision must say; a request that names no revision is
    /// a legacy one, of which nothing is asked.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::UnsupportedProtocolVersion`] for a revision that has no per-request
    /// metadata or that is not known, and [`RpcErrorCode::InvalidParams`] for a request without
    /// capabilities.
    pub fn check(&self) -> Result<(), RpcError> {
        let Some(revision) = self.revision() else {
            return Ok(());
        };
        if !revision.is_modern() {
            let error = RpcError::new(
                RpcErrorCode::UnsupportedProtocolVersion,
                "Unsupported protocol version",
            );
            return Err(error.with_data(serde_json::json!({
                "supported": Revision::supported(),
                "requested": revision.as_str(),
            })));
        }
        if !self
            .client_capabilities
            .is_some_and(|capabilities| capabilities.starts_with('{'))
        {
            return Err(RpcError::new(
                RpcErrorCode::InvalidParams,
                format!("the request lacks {CLIENT_CAPABILITIES} in its _meta"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_tells_what_a_handshake_used_to() {
        let params = r#"{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"progressToken":7,"x":1}}"#;
        let meta = RequestMeta::read(Some(params));
        assert!(meta.revision().is_some_and(|revision| revision.is_modern()));
        assert_eq!(meta.client_capabilities, Some(r#"{"sampling":{}}"#));
        assert_eq!(meta.progress_token, Some("7"));
        assert_eq!(meta.client_info, None);
    }

    #[test]
    fn a_modern_request_must_be_whole() {
        let check = |meta: &str| {
            let params = format!(r#"{{"_meta":{meta}}}"#);
            RequestMeta::read(Some(&params)).check()
        };
        assert_eq!(check("{}"), Ok(()));
        let version = |version: &str| format!(r#""{PROTOCOL_VERSION}":"{version}""#);
        let alone = check(&format!("{{{}}}", version("2026-07-28"))).unwrap_err();
        assert_eq!(alone.code, RpcErrorCode::InvalidParams);
        let unknown = check(&format!("{{{}}}", version("1900-01-01"))).unwrap_err();
        assert_eq!(unknown.code, RpcErrorCode::UnsupportedProtocolVersion);
        assert_eq!(unknown.data.unwrap()["requested"], "1900-01-01");
        let capabilities = format!(r#""{CLIENT_CAPABILITIES}":{{}}"#);
        assert_eq!(
            check(&format!("{{{},{capabilities}}}", version("2026-07-28"))),
            Ok(())
        );
    }

    #[test]
    fn a_legacy_request_names_no_revision() {
        for params in [None, Some("{}"), Some("[1]"), Some(r#"{"_meta":null}"#)] {
            assert_eq!(RequestMeta::read(params), RequestMeta::default());
        }
    }
}
