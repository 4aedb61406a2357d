//! Escaping of NUL characters, which PostgreSQL cannot store.
//!
//! Tools may have any name, and PostgreSQL accepts every character but U+0000. So U+0000 is written
//! as U+241B ("symbol for escape") and `0`, and U+241B itself twice. The escaping works on the JSON
//! text of parameters and rows, where U+0000 can only appear as `\u0000`.

use std::borrow::Cow;

const ESCAPE: &str = "\u{241b}";
const NUL: &str = "\\u0000";

/// Returns the JSON text in escaped form, as it is stored.
pub(super) fn escape(json: &str) -> Cow<'_, str> {
    if !json.contains(NUL) && !json.contains(ESCAPE) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some(at) = rest.find(['\\', '\u{241b}']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = if rest.starts_with(ESCAPE) {
            text.push_str(ESCAPE);
            text.push_str(ESCAPE);
            ESCAPE.len()
        } else if rest.starts_with(NUL) {
            text.push_str(ESCAPE);
            text.push('0');
            NUL.len()
        } else {
            // A backslash and the next byte. A longer escape sequence continues with plain
            // characters.
            text.push_str(&rest[..2]);
            2
        };
        rest = &rest[taken..];
    }
    text.push_str(rest);
    text.into()
}

/// Returns the original JSON text of an escaped one.
pub(super) fn unescape(json: String) -> String {
    if !json.contains(ESCAPE) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find(ESCAPE) {
        text.push_str(&rest[..at]);
        rest = &rest[at + ESCAPE.len()..];
        if let Some(after) = rest.strip_prefix('0') {
            text.push_str(NUL);
            rest = after;
        } else {
            text.push_str(ESCAPE);
            rest = rest.strip_prefix(ESCAPE).unwrap_or(rest);
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_characters_are_escaped_reversibly() {
        for text in [
            "",
            "plain",
            "\0",
            "a\0b",
            "\u{241b}",
            "\u{241b}0",
            "\u{241b}\0",
            "\\u0000",
            "\\\0",
            "\\\\u0000",
            "\u{241b}\u{241b}0\0\0",
            "\"\0\"",
            "🛠\0é",
        ] {
            let json = serde_json::to_string(&[text]).unwrap();
            let stored = escape(&json).into_owned();
            let [value]: [String; 1] = serde_json::from_str(&stored).unwrap();
            assert!(!value.contains('\0'), "{stored}");
            // The database may serialize the same value differently.
            let again = unescape(serde_json::to_string(&[value]).unwrap());
            assert_eq!(again, json);
        }
    }
}
