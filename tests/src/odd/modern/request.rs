//! The required `_meta` members of a request, and the errors for requests without them.

use super::{Exchange, REVISION};
use crate::envelope::{Envelope, json_string, raw_at, string_at};
use crate::odd::session::error;
use crate::odd::settings::{Era, Settings};

const VERSION: [&str; 3] = ["params", "_meta", "io.modelcontextprotocol/protocolVersion"];

/// Returns whether a message is of the modern era: a request that names its revision.
pub(in crate::odd) fn is_modern(text: &str, envelope: &Envelope) -> bool {
    envelope.is_request() && raw_at(text, &VERSION).is_some()
}

/// Returns the error for an invalid request, or `None` for a valid one.
pub(super) fn refusal(settings: &Settings, exchange: &Exchange) -> Option<String> {
    let id = exchange.id.as_str();
    if exchange.method == "initialize" {
        let asked = exchange.param(&["protocolVersion"]);
        return Some(unsupported_version_error(settings, id, asked.as_deref()));
    }
    let Some(version) = exchange.reserved_meta("protocolVersion") else {
        return Some(error(id, -32602, "odd: no revision", "null"));
    };
    if string_at(
        &exchange.params,
        &["_meta", "io.modelcontextprotocol/protocolVersion"],
    )
    .as_deref()
        != Some(REVISION)
    {
        return Some(unsupported_version_error(settings, id, Some(&version)));
    }
    let capabilities = exchange.reserved_meta("clientCapabilities");
    if !capabilities.is_some_and(|text| text.starts_with('{')) {
        return Some(error(id, -32602, "odd: no capabilities", "null"));
    }
    None
}

fn unsupported_version_error(settings: &Settings, id: &str, requested: Option<&str>) -> String {
    let supported = match settings.era {
        Era::Dual => r#"["2026-07-28","2025-11-25"]"#,
        Era::Modern | Era::Legacy => r#"["2026-07-28"]"#,
    };
    let requested = requested.map_or_else(|| "null".into(), ToOwned::to_owned);
    let data = format!(r#"{{"requested":{requested},"supported":{supported},"x":1.0}}"#);
    error(
        id,
        -32022,
        "odd: Unsupported protocol version; supported: 2026-07-28",
        &data,
    )
}

/// Returns the error for a missing capability of the client.
pub(super) fn missing_capability_error(id: &str, capability: &str) -> String {
    let data = format!(
        r#"{{"requiredCapabilities":{{{}:{{}}}},"x":null}}"#,
        json_string(capability)
    );
    error(id, -32021, "odd: the client cannot do that", &data)
}
