//! Names in requests as they are recorded: truncated, and without secrets.

use riglm_domain::id::ToolName;
use sha2::{Digest, Sha256};

/// The maximum length of a recorded tool name, in characters.
const MAX_NAME_CHARS: usize = 16_384;
/// The number of digest bytes that distinguish truncated names.
const DIGEST_BYTES: usize = 8;
/// The number of characters at the end of a truncated name: the mark and the digest.
const MARK_CHARS: usize = 2 + 2 * DIGEST_BYTES;
/// The maximum length of a recorded request target, in characters.
const MAX_TARGET_CHARS: usize = 2_048;

/// Returns the recorded name of a tool: its own name up to 16,384 characters. A longer name is
/// truncated to that length and ends with "…#" and 16 hexadecimal digits of the SHA-256 of the full
/// name, so that different names stay different.
pub(super) fn recorded_tool(tool: ToolName) -> ToolName {
    let name = tool.as_str();
    if name.chars().nth(MAX_NAME_CHARS).is_none() {
        return tool;
    }
    let mut recorded = cut(name, MAX_NAME_CHARS - MARK_CHARS);
    recorded.push_str("…#");
    let digest = Sha256::digest(name.as_bytes());
    recorded.push_str(&hex::encode(&digest[..DIGEST_BYTES]));
    recorded.as_str().into()
}

/// Returns a name as a recorded request target.
pub(super) fn recorded_target(name: &str) -> String {
    cut(name, MAX_TARGET_CHARS)
}

/// Removes the parts of a URI that may contain secrets: user information, query and fragment.
pub(super) fn without_secrets(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let (uri, rest) = uri.split_at(end);
    let uri = match uri.split_once("://") {
        Some((scheme, rest)) => {
            let path = rest.find('/').unwrap_or(rest.len());
            let host = rest[..path].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[host..])
        }
        None => uri.to_owned(),
    };
    let mark = rest
        .get(..1)
        .map_or_else(String::new, |mark| format!("{mark}[redacted]"));
    cut(&uri, MAX_TARGET_CHARS) + &mark
}

fn cut(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded_name(name: &str) -> String {
        recorded_tool(name.into()).as_str().to_owned()
    }

    #[test]
    fn uris_are_recorded_without_secrets() {
        let cases = [
            ("https://u:pw@h/a@b?token=x#y", "https://h/a@b?[redacted]"),
            ("demo://resource/1", "demo://resource/1"),
            ("file:///a#b", "file:///a#[redacted]"),
            ("note:7", "note:7"),
        ];
        for (uri, expected) in cases {
            assert_eq!(without_secrets(uri), expected);
        }
    }

    #[test]
    fn a_name_up_to_the_limit_is_recorded_whole() {
        for name in ["", "a\0b", &"\u{1f980}".repeat(MAX_NAME_CHARS)] {
            assert_eq!(recorded_name(name), name);
        }
    }

    #[test]
    fn overlong_names_are_cut_and_end_with_a_digest() {
        let name = "x".repeat(MAX_NAME_CHARS + 1);
        let recorded = recorded_name(&name);
        // The first 16 digits of the SHA-256 of 16,385 letters x.
        let expected = format!("{}…#39061532d423f2d3", "x".repeat(MAX_NAME_CHARS - 18));
        assert_eq!(recorded, expected);
        assert_eq!(recorded.chars().count(), MAX_NAME_CHARS);
    }

    #[test]
    fn long_names_with_the_same_beginning_stay_different() {
        let long = "x".repeat(MAX_NAME_CHARS);
        assert_ne!(
            recorded_name(&format!("{long}a")),
            recorded_name(&format!("{long}b"))
        );
    }
}
