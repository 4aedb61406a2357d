//! The check that the headers of a POST match its body.

use http::HeaderMap;

use crate::envelope::{Envelope, json_string, raw_at, string_at};
use crate::header_value::decode;

/// The headers of the tool `mirrored` and the paths of their arguments, as in its schema.
const MIRRORED: [(&str, &[&str]); 3] = [
    ("mcp-param-region", &["arguments", "region"]),
    ("mcp-param-place-number", &["arguments", "place", "number"]),
    ("mcp-param-flag", &["arguments", "flag"]),
];

/// Returns the first mismatch between the headers and the body of a request.
pub(super) fn mismatch(headers: &HeaderMap, text: &str, envelope: &Envelope) -> Option<String> {
    let version = string_at(
        text,
        &["params", "_meta", "io.modelcontextprotocol/protocolVersion"],
    );
    // A body without a revision is refused later, with another error. The header is required in any
    // case.
    let named = header(headers, "mcp-protocol-version");
    if named.is_none() || version.is_some() && named != version {
        return Some(format!(
            "odd: MCP-Protocol-Version is {named:?}, the body says {version:?}; supported: 2026-07-28"
        ));
    }
    let method = envelope.method();
    let stated = header(headers, "mcp-method");
    if stated != method {
        return Some(format!("odd: Mcp-Method is {stated:?} for {method:?}"));
    }
    let params = envelope.member("params").unwrap_or("null");
    let key = match method.as_deref() {
        Some("tools/call" | "prompts/get") => "name",
        Some("resources/read") => "uri",
        Some("tasks/get" | "tasks/update" | "tasks/cancel") => "taskId",
        _ => return None,
    };
    let name = string_at(params, &[key]);
    let stated = header(headers, "mcp-name").and_then(|value| decode(&value));
    if stated.is_none() || stated != name {
        return Some(format!("odd: Mcp-Name is {stated:?} for {name:?}"));
    }
    if method.as_deref() == Some("tools/call") && name.as_deref() == Some("mirrored") {
        return MIRRORED
            .iter()
            .find_map(|(header_name, path)| wrong_param(headers, params, header_name, path));
    }
    None
}

fn wrong_param(headers: &HeaderMap, params: &str, name: &str, path: &[&str]) -> Option<String> {
    let raw = raw_at(params, path).filter(|raw| raw != "null");
    let expected = raw.map(|raw| serde_json::from_str(&raw).unwrap_or(raw));
    let stated = match header(headers, name) {
        None => None,
        Some(value) => match decode(&value) {
            Some(value) => Some(value),
            None => return Some(format!("odd: {name} cannot be decoded")),
        },
    };
    let number = |text: &Option<String>| text.as_ref()?.parse::<f64>().ok();
    let is_same_number = number(&stated).is_some() && number(&stated) == number(&expected);
    (stated != expected && !is_same_number)
        .then(|| format!("odd: {name} is {stated:?} for {expected:?}"))
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.to_owned())
}

/// Returns the `mcp-*` headers as a JSON object, sorted by name.
pub(super) fn mcp_headers(headers: &HeaderMap) -> String {
    let mut members: Vec<String> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("mcp-"))
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            format!("{}:{}", json_string(name.as_str()), json_string(&value))
        })
        .collect();
    members.sort();
    format!("{{{}}}", members.join(","))
}
