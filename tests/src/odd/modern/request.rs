//! What a request must say of itself, and how it is refused when it does not.

use super::{Exchange, REVISION};
use crate::envelope::{Envelope, quoted, raw_at, string_at};
use crate::odd::session::error;
use crate::odd::settings::{Era, Settings};

const VERSION: [&str; 3] = ["params", "_meta", "io.modelcontextprotocol/protocolVersion"];

/// Returns whether a message is of the modern era: it names its revision.
pub(in crate::odd) fn is_modern(text: &str, envelope: &Envelope) -> bool {
    envelope.is_request() && raw_at(text, &VERSION).is_some()
}

/// Returns the error that refuses a request; `None` when it is in order.
pub(super) fn refusal(settings: &Settings, exchange: &Exchange) -> Option<String> {
    let id = exchange.id.as_str();
    if exchange.method == "initialize" {
        let asked = exchange.param(&["protocolVersion"]);
        return Some(unsupported(settings, id, asked.as_deref()));
    }
    let Some(version) = exchange.reserved("protocolVersion") else {
        return Some(error(id, -32602, "odd: no revision", "null"));
    };
    if string_at(
        &exchange.params,
        &["_meta", "io.modelcontextprotocol/protocolVersion"],
    )
    .as_deref()
        != Some(REVISION)
    {
        return Some(unsupported(settings, id, Some(&version)));
    }
    let capabilities = exchange.reserved("clientCapabilities");
    if !capabilities.is_some_and(|text| text.starts_with('{')) {
        return Some(error(id, -32602, "odd: no capabilities", "null"));
    }
    None
}

fn unsupported(settings: &Settings, id: &str, requested: Option<&str>) -> String {
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

/// Returns the error for a client that cannot do what the answer needs.
pub(super) fn lacking(id: &str, capability: &str) -> String {
    let data = format!(
        r#"{{"requiredCapabilities":{{{}:{{}}}},"x":null}}"#,
        quoted(capability)
    );
    error(id, -32021, "odd: the client cannot do that", &data)
}
