//! The headers of a POST of revision 2026-07-28, which repeat parts of its body.
//!
//! The specification: basic/transports/streamable-http, "Request Metadata". No header names a
//! session or a position in a stream, because that revision has neither.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use riglm_domain::mcp::header::{self, PARAM_PREFIX, encode_value, name_of};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Revision;

use super::session::PROTOCOL_VERSION;

const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);

/// Returns `base` with the headers that `message` needs.
///
/// Values that are not valid in a header are omitted; the server then reports the missing header.
pub(super) fn headers(base: &HeaderMap, message: &Message, revision: &Revision) -> HeaderMap {
    let mut headers = base.clone();
    if let Ok(revision) = HeaderValue::from_str(revision.as_str()) {
        headers.insert(PROTOCOL_VERSION, revision);
    }
    let Some(envelope) = message.single() else {
        return headers;
    };
    let method = envelope.method().unwrap_or_default();
    if let Ok(value) = HeaderValue::from_str(method) {
        headers.insert(METHOD, value);
    }
    let name = name_of(method, message.params(envelope));
    if let Some(Ok(name)) = name.map(|name| HeaderValue::from_str(&encode_value(&name))) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let revision = Revision::new(Revision::NEWEST_MODERN);
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
