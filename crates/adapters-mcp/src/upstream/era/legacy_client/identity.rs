//! The identity of a legacy client: described once in its handshake, and sent upstream with each
//! request.

use std::borrow::Cow;

use riglm_domain::mcp::edit::{member, with_meta};
use riglm_domain::mcp::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};
use riglm_domain::mcp::scan::{members, unescape};

use crate::upstream::era::tasks::{TaskTools, with_extension};

const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// The revision of the requests, as a JSON string.
const VERSION: &str = "\"2026-07-28\"";

/// The description of a client, as JSON text.
#[derive(Debug, Default)]
pub(super) struct Identity {
    capabilities: Option<String>,
    info: Option<String>,
    log_level: Option<String>,
    /// The tools that need the tasks extension.
    task_tools: TaskTools,
}

impl Identity {
    /// Reads the `params` of `initialize`, which do not contain the log level.
    pub(super) fn introduce(&mut self, params: &str) {
        let object = |key| {
            member(params, key)
                .filter(|value| value.starts_with('{'))
                .map(str::to_owned)
        };
        self.capabilities = object("capabilities");
        self.info = object("clientInfo");
    }

    /// Declares the tasks extension in calls of the tool that `params` name, because the bridge waits
    /// for its tasks itself. Returns whether it is declared.
    pub(super) fn declare_tasks_for(&mut self, params: &str) -> bool {
        self.task_tools.add(params);
        self.task_tools.has(params)
    }

    /// Sets the level of `logging/setLevel`. Returns whether the level is valid.
    pub(super) fn set_level(&mut self, params: Option<&str>) -> bool {
        let level = params.and_then(|params| member(params, "level"));
        let Some(name) = level.and_then(unescape) else {
            return false;
        };
        let is_known = LEVELS.contains(&name.as_ref());
        if is_known {
            self.log_level = Some(format!("\"{name}\""));
        }
        is_known
    }

    /// Returns the capability with this name, as JSON text.
    pub(super) fn capability(&self, name: &str) -> Option<&str> {
        let value = member(self.capabilities.as_deref()?, name)?;
        (value != "null").then_some(value)
    }

    /// Returns `params` with the client description and its log level in `_meta`.
    pub(super) fn sign(&self, params: Option<&str>) -> String {
        let params = params.unwrap_or("{}");
        let capabilities = self.capabilities.as_deref().unwrap_or("{}");
        let capabilities = if self.task_tools.has(params) {
            Cow::Owned(with_extension(capabilities))
        } else {
            Cow::Borrowed(capabilities)
        };
        let mut entries = self.entries(&capabilities);
        if let Some(level) = &self.log_level {
            entries.push((LOG_LEVEL, level));
        }
        // Text that is no object stays unchanged, so that the server refuses it.
        with_meta(params, &entries)
    }

    /// Returns an object with only the client description in `_meta`.
    pub(super) fn params(&self) -> String {
        let capabilities = self.capabilities.as_deref().unwrap_or("{}");
        with_meta("{}", &self.entries(capabilities))
    }

    /// Returns `params` of a request of the bridge about a task, with the client description and the
    /// tasks extension in `_meta`.
    pub(super) fn describe_for_tasks(&self, params: &str) -> String {
        let capabilities = with_extension(self.capabilities.as_deref().unwrap_or("{}"));
        with_meta(params, &self.entries(&capabilities))
    }

    fn entries<'a>(&'a self, capabilities: &'a str) -> Vec<(&'static str, &'a str)> {
        let mut entries = vec![
            (PROTOCOL_VERSION, VERSION),
            (CLIENT_CAPABILITIES, capabilities),
        ];
        if let Some(info) = &self.info {
            entries.push((CLIENT_INFO, info));
        }
        entries
    }
}

/// Returns whether an object has this member and it is not `null`.
pub(super) fn has_member(object: &str, key: &str) -> bool {
    members(object).any(|(found, value)| found == key && value != "null")
}

#[cfg(test)]
mod tests {
    use riglm_domain::mcp::protocol::Revision;

    use super::*;

    #[test]
    fn requests_are_signed_and_keep_their_metadata() {
        let mut identity = Identity::default();
        identity.introduce(r#"{"capabilities":{"roots":{}},"clientInfo":{"name":"c"}}"#);
        assert!(identity.set_level(Some(r#"{"level":"error"}"#)));
        assert!(!identity.set_level(Some(r#"{"level":"loud"}"#)));
        assert_eq!(
            identity.sign(Some(r#"{"n":1.0,"_meta":{"progressToken":1e3}}"#)),
            r#"{"n":1.0,"_meta":{"progressToken":1e3,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"error"}}"#
        );
        assert!(!identity.params().contains("logLevel"));
        assert_eq!(VERSION, format!("\"{}\"", Revision::NEWEST_MODERN));
    }
}
