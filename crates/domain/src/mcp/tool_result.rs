//! Results of tool calls.

use crate::mcp::edit::member;

/// Returns whether a result, which is JSON text, has `isError: true`: the tool failed.
#[must_use]
pub fn is_error(result: &str) -> bool {
    // A search for the name is cheaper than finding the members, and mostly sufficient.
    memchr::memmem::find(result.as_bytes(), b"isError").is_some()
        && member(result, "isError") == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;

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
