//! What a result of a tool call says of itself.

use crate::edit::member;

/// Returns whether a result, which is JSON text, says `isError: true`: what the call was to do failed.
#[must_use]
pub fn is_error(result: &str) -> bool {
    // Looking for the name anywhere is cheaper than finding the members, and mostly enough.
    memchr::memmem::find(result.as_bytes(), b"isError").is_some()
        && member(result, "isError") == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_result_is_told_from_text_about_errors() {
        assert!(is_error(r#"{"content":[],"isError":true}"#));
        assert!(!is_error(r#"{"content":[{"text":"\"isError\":true"}]}"#));
        assert!(!is_error(r#"{"isError":false}"#));
        assert!(!is_error("[]"));
        // As parsers do, the last one counts.
        assert!(!is_error(r#"{"isError":true,"isError":false}"#));
    }
}
