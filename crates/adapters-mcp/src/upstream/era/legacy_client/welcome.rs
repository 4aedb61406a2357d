//! The answer to `initialize`, composed from the description of a modern server.

use riglm_domain::mcp::edit::{member, meta, with_member, without_member};
use riglm_domain::mcp::meta::SERVER_INFO;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::scan::{members, unescape};

use super::subscriptions::SubscriptionOffer;
use crate::upstream::era::tasks::TASKS_EXTENSION;

/// The substitute for a server that does not send its name.
const UNKNOWN_SERVER: &str = r#"{"name":"unknown","version":"unknown"}"#;

/// Returns the notifications that a server supports.
pub(super) fn offer(discovered: &str) -> SubscriptionOffer {
    SubscriptionOffer::of(capabilities(discovered))
}

fn capabilities(discovered: &str) -> &str {
    member(discovered, "capabilities")
        .filter(|capabilities| capabilities.starts_with('{'))
        .unwrap_or("{}")
}

pub(super) fn initialize_result(params: &str, discovered: &str) -> String {
    let asked = member(params, "protocolVersion").and_then(unescape);
    let revision = asked
        .as_deref()
        .filter(|asked| Revision::WITH_SESSIONS.contains(asked))
        .unwrap_or(Revision::NEWEST_LEGACY);
    let mut capabilities = capabilities(discovered).to_owned();
    // "The server is the sole decider; clients do not signal task preference on the request itself"
    // (tasks extension, "Capability Negotiation"), so a client cannot request a task.
    if let Some(extensions) = member(&capabilities, "extensions") {
        let others = without_member(extensions, TASKS_EXTENSION);
        capabilities = with_member(&capabilities, "extensions", &others);
    }
    // The bridge itself answers `logging/setLevel`.
    if !members(&capabilities).any(|(key, _)| key == "logging") {
        capabilities = with_member(&capabilities, "logging", "{}");
    }
    let info = meta(discovered, SERVER_INFO)
        .or_else(|| member(discovered, "serverInfo"))
        .filter(|info| info.starts_with('{'))
        .unwrap_or(UNKNOWN_SERVER);
    let instructions = member(discovered, "instructions")
        .map(|text| format!(r#","instructions":{text}"#))
        .unwrap_or_default();
    format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{info}{instructions}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_present_the_discovered_server() {
        let discovered = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{"n":1.0}}},"instructions":"i","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}}}"#;
        assert_eq!(
            initialize_result(r#"{"protocolVersion":"2025-03-26"}"#, discovered),
            r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{},"extensions":{"x/y":{"n":1.0}},"logging":{}},"serverInfo":{"name":"s","version":"2"},"instructions":"i"}"#
        );
    }

    #[test]
    fn missing_server_information_gets_legacy_defaults() {
        assert_eq!(
            initialize_result(r#"{"protocolVersion":"2031-01-01"}"#, "{}"),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"unknown","version":"unknown"}}"#
        );
        let logs = r#"{"capabilities":{"logging":{"x":1}},"serverInfo":{"name":"old"}}"#;
        let result = initialize_result("{}", logs);
        assert!(
            result.contains(r#""capabilities":{"logging":{"x":1}},"serverInfo":{"name":"old"}"#)
        );
    }
}
