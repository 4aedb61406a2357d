//! What a POST of revision 2026-07-28 carries in headers: parts of its body once more.
//!
//! The specification: basic/transports/streamable-http, "Request Metadata". Nothing here names a
//! session or a place in a stream, because that revision has neither.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use riglm_domain::edit::member;
use riglm_domain::message::{Envelope, Message};
use riglm_domain::protocol::Revision;
use riglm_domain::scan::unescaped;

use super::session::PROTOCOL_VERSION;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// How the names of headers begin that repeat arguments of a tool.
pub(in super::super) const PARAM_PREFIX: &str = "mcp-param-";

/// Returns `base` with the headers that `message` has to go with.
///
/// What cannot stand in a header is left out; the server then tells what it misses.
pub(super) fn headers(base: &HeaderMap, message: &Message, revision: &Revision) -> HeaderMap {
    let mut headers = base.clone();
    if let Ok(revision) = HeaderValue::from_str(revision.as_str()) {
        headers.insert(PROTOCOL_VERSION, revision);
    }
    let Some(envelope) = message.single() else {
        return headers;
    };
    if let Some(Ok(method)) = envelope.method().map(HeaderValue::from_str) {
        headers.insert(METHOD, method);
    }
    let name = name_of(message, envelope);
    if let Some(Ok(name)) = name.map(|name| HeaderValue::from_str(&encoded(&name))) {
        headers.insert(NAME, name);
    }
    for (name, value) in message.param_headers().unwrap_or_default() {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && name.as_str().starts_with(PARAM_PREFIX)
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.append(name, value);
        }
    }
    headers
}

/// Returns what `Mcp-Name` repeats: the tool, the prompt, the resource or the task that a request
/// is about.
fn name_of<'a>(message: &'a Message, envelope: &Envelope) -> Option<Cow<'a, str>> {
    let key = match envelope.method()? {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    unescaped(member(message.params(envelope)?, key)?)
}

/// Returns `value` as it stands in a header: as it is, or in Base64 where a header cannot hold it
/// or where it would be taken for Base64 ("Value Encoding").
fn encoded(value: &str) -> Cow<'_, str> {
    let is_plain = value
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if is_plain {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("=?base64?{}?=", base64(value.as_bytes())))
}

/// Returns `bytes` in the standard alphabet of Base64, padded (RFC 4648 section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| usize::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let is_padding = at > group.len();
            let digit = ALPHABET[bits >> (18 - 6 * at) & 63];
            text.push(if is_padding { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_in_the_examples_of_the_specification() {
        for (value, expected) in [
            ("us-west1", "us-west1"),
            ("a\tb c", "a\tb c"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encoded(value), expected);
        }
    }

    #[test]
    fn only_headers_of_arguments_are_taken_from_a_message() {
        let text = r#"{"id":1,"method":"tools/call","params":{"name":"caf\u00e9"}}"#;
        let given = [
            ("Mcp-Param-Region", "eu"),
            ("Authorization", "Bearer x"),
            ("Mcp-Param-Bad", "a\nb"),
        ];
        let given: Vec<(Box<str>, Box<str>)> = given
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let message = Message::from_text(text.into())
            .unwrap()
            .with_param_headers(given);
        let revision = Revision::new(Revision::V2026_07_28);
        let headers = headers(&HeaderMap::new(), &message, &revision);
        let mut found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        let expected = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?Y2Fmw6k=?="),
            ("mcp-param-region", "eu"),
            ("mcp-protocol-version", "2026-07-28"),
        ];
        assert_eq!(found, expected);
    }
}
