//! Recovery of the request id of an answer over the size limit, from its two ends.
//!
//! The message itself is gone. SDKs write the `id` either before the result or as the last member.
//! So the request can usually be told that its answer is too large, instead of waiting for its
//! deadline.

use std::fmt;

use riglm_domain::mcp::message::RequestId;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Returns the id of an answer that begins with `head` and ends with `tail`. Returns `None` for a
/// request, a notification, and an answer whose id is in the missing part.
pub(super) fn answered_request(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let mut seen = SeenMembers::default();
    // The text is truncated, so the parser always fails; only the members before that count.
    let _ = (&mut seen).deserialize(&mut serde_json::Deserializer::from_slice(head));
    if seen.has_method {
        return None;
    }
    seen.id.or_else(|| last_member_id(tail))
}

/// Returns the id if it is the last member of the object that `tail` ends.
///
/// The value is a scalar directly before the last brace, so the member belongs to the outermost
/// object. A quotation mark that follows a comma, outside of an escape, opens a member name.
fn last_member_id(tail: &[u8]) -> Option<RequestId> {
    let tail = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let name = b",\"id\":";
    let start = memchr::memmem::rfind(tail, name)? + name.len();
    let value = std::str::from_utf8(tail.get(start..)?).ok()?.trim();
    serde_json::from_str::<&RawValue>(value).ok()?;
    RequestId::from_json(value)
}

/// The members of an unfinished object that were read so far.
#[derive(Default)]
struct SeenMembers {
    id: Option<RequestId>,
    has_method: bool,
}

impl<'de> DeserializeSeed<'de> for &mut SeenMembers {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut SeenMembers {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            match name.as_ref() {
                "id" => {
                    let raw: &RawValue = members.next_value()?;
                    self.id = RequestId::from_json(raw.get());
                }
                "method" => {
                    self.has_method = true;
                    return Ok(());
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> RequestId {
        RequestId::Number(text.into())
    }

    #[test]
    fn an_id_before_the_result_is_found() {
        assert_eq!(
            answered_request(br#"{"jsonrpc":"2.0","id":7,"result":{"a":"xxx"#, b"yyy\"}}"),
            Some(number("7"))
        );
    }

    #[test]
    fn an_id_after_the_result_is_found() {
        assert_eq!(
            answered_request(
                br#"{"result":{"a":"xxx"#,
                br#"y"},"jsonrpc":"2.0","id":"a,b" }"#
            ),
            Some(RequestId::Text("a,b".into()))
        );
    }

    #[test]
    fn ids_inside_results_and_strings_are_ignored() {
        assert_eq!(
            answered_request(br#"{"result":{"a":"#, br#"1,"id":3}}"#),
            None
        );
        assert_eq!(
            answered_request(br#"{"result":{"a":"#, br#"1},"x":"y,\"id\":3}"#),
            None
        );
    }

    #[test]
    fn server_requests_are_not_answers() {
        assert_eq!(
            answered_request(
                br#"{"id":7,"method":"sampling/createMessage","params":{"#,
                b"}}"
            ),
            None
        );
    }
}
