//! Results of tool calls.

use crate::mcp::edit::member;
#[cfg(feature = "messages")]
use crate::mcp::message::{Envelope, Message};

/// Returns whether a result, which is JSON text, has `isError: true`: the tool failed.
#[must_use]
pub fn is_error(result: &str) -> bool {
    // A search for the name is cheaper than finding the members, and mostly sufficient.
    memchr::memmem::find(result.as_bytes(), b"isError").is_some()
        && member(result, "isError") == Some("true")
}

/// Returns whether the result in a part of a message has `isError: true`.
#[cfg(feature = "messages")]
#[must_use]
pub fn has_error_result(message: &Message, part: &Envelope) -> bool {
    message.result(part).is_some() && message.member(part, "isError") == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "messages")]
    #[test]
    fn an_error_result_is_found_in_a_message() {
        let is_error = |text: &str| {
            let message = Message::from_text(text.to_owned()).unwrap();
            has_error_result(&message, &message.envelopes()[0])
        };
        assert!(is_error(
            r#"{"id":1,"result":{"content":[],"isError":true}}"#
        ));
        assert!(is_error(r#"[{"id":1,"result":{"isError":true}}]"#));
        assert!(!is_error(
            r#"{"id":1,"result":{"isError":true,"isError":false}}"#
        ));
        assert!(!is_error(r#"{"id":1,"error":{"isError":true}}"#));
    }

    #[test]
    fn only_a_true_is_error_member_marks_an_error() {
        assert!(is_error(r#"{"content":[],"isError":true}"#));
        assert!(!is_error(r#"{"content":[{"text":"\"isError\":true"}]}"#));
        assert!(!is_error(r#"{"isError":false}"#));
        assert!(!is_error("[]"));
        // As in parsers, the last member counts.
        assert!(!is_error(r#"{"isError":true,"isError":false}"#));
    }
}
