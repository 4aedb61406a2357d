//! The entries of `_meta` that the protocol reserves. Requests of revision 2026-07-28 carry in them
//! the data that a handshake exchanged before (basic/index, "General fields").

use std::borrow::Cow;

use crate::mcp::edit::member;
use crate::mcp::message::{Message, MessageKind};
use crate::mcp::protocol::Revision;
use crate::mcp::rpc_error::{RpcError, RpcErrorCode};
use crate::mcp::scan::{members, unescape};

/// The entry with the revision of a request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The entry with name and version of the client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The entry with the capabilities of the client.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The entry with the least severe level of log messages that the server may send for a request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// The entry with name and version of the server, in results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The entry with the id of the `subscriptions/listen` request that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The entry with the token under which progress is reported.
pub const PROGRESS_TOKEN: &str = "progressToken";

/// Methods that modern revisions no longer have (changelog of 2026-07-28).
const LEGACY_ONLY: [&str; 5] = [
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
];

/// The metadata of a request about its sender, as JSON text borrowed from the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestMeta<'a> {
    /// The revision, a JSON string.
    pub protocol_version: Option<&'a str>,
    /// Name and version of the client, a JSON object.
    pub client_info: Option<&'a str>,
    /// The capabilities of the client, a JSON object.
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

    /// Returns the revision of the request, known or not. Returns `None` if it names none, as
    /// requests of legacy revisions do.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        let text = self.protocol_version?;
        let text = unescape(text).unwrap_or(Cow::Borrowed(text));
        Some(Revision::new(&text))
    }

    /// Checks the revision of a request, which riglm must support. A legacy request names none and
    /// passes.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::UnsupportedProtocolVersion`] for a revision that is not known, or
    /// that has no per-request metadata.
    pub fn check_revision(&self) -> Result<(), RpcError> {
        let Some(revision) = self.revision().filter(|revision| !revision.is_modern()) else {
            return Ok(());
        };
        let error = RpcError::new(
            RpcErrorCode::UnsupportedProtocolVersion,
            "Unsupported protocol version",
        );
        Err(error.with_data(serde_json::json!({
            "supported": Revision::supported_revisions(),
            "requested": revision.as_str(),
        })))
    }

    /// Checks the metadata and the method of a request of a modern revision. Legacy requests pass,
    /// and so do requests of an unknown revision: a server that knows the revision checks them.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::InvalidParams`] for a request without capabilities, and
    /// [`RpcErrorCode::MethodNotFound`] for a method that modern revisions no longer have.
    pub fn check_complete(&self, method: &str) -> Result<(), RpcError> {
        if !self.revision().is_some_and(|revision| revision.is_modern()) {
            return Ok(());
        }
        if !self
            .client_capabilities
            .is_some_and(|capabilities| capabilities.starts_with('{'))
        {
            return Err(RpcError::new(
                RpcErrorCode::InvalidParams,
                format!("missing {CLIENT_CAPABILITIES} in _meta of the request"),
            ));
        }
        if LEGACY_ONLY.contains(&method) {
            return Err(RpcError::new(
                RpcErrorCode::MethodNotFound,
                format!("{method} does not exist in this revision"),
            ));
        }
        Ok(())
    }
}

/// Returns whether a message is a request that names its revision, as those of modern revisions do.
#[must_use]
pub fn is_modern_request(message: &Message) -> bool {
    let request = message.single();
    let request = request.filter(|part| part.kind() == MessageKind::Request);
    request.is_some_and(|part| RequestMeta::read(message.params(part)).revision().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_of_a_modern_request_has_revision_and_capabilities() {
        let params = r#"{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"progressToken":7,"x":1}}"#;
        let meta = RequestMeta::read(Some(params));
        assert!(meta.revision().is_some_and(|revision| revision.is_modern()));
        assert_eq!(meta.client_capabilities, Some(r#"{"sampling":{}}"#));
        assert_eq!(meta.progress_token, Some("7"));
        assert_eq!(meta.client_info, None);
    }

    fn modern(version: &str, more: &str) -> String {
        format!(r#"{{"_meta":{{"{PROTOCOL_VERSION}":"{version}"{more}}}}}"#)
    }

    #[test]
    fn a_modern_request_needs_capabilities_and_a_modern_method() {
        let check = |params: &str, method: &str| {
            let checked = RequestMeta::read(Some(params)).check_complete(method);
            checked.map_err(|error| error.code)
        };
        let capabilities = format!(r#","{CLIENT_CAPABILITIES}":{{}}"#);
        let whole = modern("2026-07-28", &capabilities);
        let incomplete = modern("2026-07-28", "");
        assert_eq!(check(&whole, "tools/list"), Ok(()));
        assert_eq!(check(&whole, "ping"), Err(RpcErrorCode::MethodNotFound));
        assert_eq!(
            check(&incomplete, "tools/list"),
            Err(RpcErrorCode::InvalidParams)
        );
        assert_eq!(check("{}", "ping"), Ok(()));
        assert_eq!(check(&modern("2099-01-01", ""), "ping"), Ok(()));
    }

    #[test]
    fn an_unsupported_revision_is_refused_with_the_supported_ones() {
        let check = |params: &str| RequestMeta::read(Some(params)).check_revision();
        assert_eq!(check("{}"), Ok(()));
        assert_eq!(check(&modern("2026-07-28", "")), Ok(()));
        let unknown = check(&modern("1900-01-01", "")).unwrap_err();
        assert_eq!(unknown.code, RpcErrorCode::UnsupportedProtocolVersion);
        let data = unknown.data.unwrap();
        assert_eq!(data["requested"], "1900-01-01");
        assert_eq!(data["supported"][0], "2026-07-28");
        let legacy = check(&modern("2025-11-25", "")).unwrap_err();
        assert_eq!(legacy.code, RpcErrorCode::UnsupportedProtocolVersion);
    }

    #[test]
    fn a_legacy_request_names_no_revision() {
        for params in [None, Some("{}"), Some("[1]"), Some(r#"{"_meta":null}"#)] {
            assert_eq!(RequestMeta::read(params), RequestMeta::default());
        }
    }
}
