//! Extraction of texts from requests, as sources of the intent.

use serde_json::Value;

use crate::privacy::redaction::redact_json;

/// Maximum size of a text that is read, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Maximum nesting of values that are read.
const MAX_DEPTH: usize = 16;

/// Returns the string values of a JSON text, separated by spaces, with known secrets redacted.
/// A text that is larger than 64 KiB is not read. A text that is not JSON is redacted as a whole.
#[must_use]
pub fn string_values(json: &str, max_chars: usize) -> String {
    if json.len() > MAX_BYTES {
        return String::new();
    }
    // Redacted first: redaction needs the keys, and only values are collected.
    let json = redact_json(json, 2 * MAX_BYTES);
    let value = serde_json::from_str(&json).unwrap_or_default();
    let mut text = BoundedText::new(max_chars);
    text.add_values(&value, 0);
    text.text
}

/// Returns the words in the path of a URI, without scheme, host, query and fragment.
#[must_use]
pub fn path_words(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let uri = &uri[..end];
    let path = match uri.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("", |at| &rest[at..]),
        None => uri.split_once(':').map_or(uri, |(_, rest)| rest),
    };
    let words = path.split(|it: char| !it.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns the name and the arguments of a prompt; `arguments` is JSON text.
#[must_use]
pub fn prompt_text(name: &str, arguments: Option<&str>, max_chars: usize) -> String {
    let mut text = BoundedText::new(max_chars);
    text.add(name);
    let values = arguments.map(|arguments| string_values(arguments, max_chars));
    text.add(&values.unwrap_or_default());
    text.text
}

/// Returns the texts of the messages in the `params` of `sampling/createMessage`.
#[must_use]
pub fn sampling_text(params: &str, max_chars: usize) -> String {
    if params.len() > MAX_BYTES {
        return String::new();
    }
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let mut text = BoundedText::new(max_chars);
    for message in params["messages"].as_array().into_iter().flatten() {
        let content = &message["content"];
        let several = content.as_array().map(Vec::as_slice);
        for content in several.unwrap_or(std::slice::from_ref(content)) {
            if content["type"] == "text" {
                text.add(content["text"].as_str().unwrap_or_default());
            }
        }
    }
    text.text
}

/// A text with a maximum length.
struct BoundedText {
    text: String,
    room: usize,
}

impl BoundedText {
    fn new(max_chars: usize) -> Self {
        Self {
            text: String::new(),
            room: max_chars,
        }
    }

    fn add(&mut self, part: &str) {
        let part = part.trim();
        let space = usize::from(!self.text.is_empty());
        if part.is_empty() || self.room <= space {
            return;
        }
        if space == 1 {
            self.text.push(' ');
        }
        self.room -= space;
        for character in part.chars().take(self.room) {
            self.text.push(character);
            self.room -= 1;
        }
    }

    fn add_values(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) => self.add(text),
            Value::Array(values) if depth < MAX_DEPTH => {
                for value in values {
                    self.add_values(value, depth + 1);
                }
            }
            Value::Object(members) if depth < MAX_DEPTH => {
                for value in members.values() {
                    self.add_values(value, depth + 1);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_collected_without_secrets() {
        let json = r#"{"a":"write it","n":7,"b":[{"c":"down"}],"token":"hidden"}"#;
        assert_eq!(string_values(json, 100), "write it down [redacted]");
        assert_eq!(string_values(json, 10), "write it d");
        assert_eq!(string_values("no json", 10), "[redacted]");
        let large = format!(r#"["{}"]"#, "x".repeat(MAX_BYTES));
        assert_eq!(string_values(&large, 10), "");
    }

    #[test]
    fn only_path_words_of_uris_are_used() {
        for (uri, expected) in [
            ("file:///home/a-b/README.md?key=1#x", "home a b README md"),
            ("https://user:pw@host/notes/2", "notes 2"),
            ("https://host", ""),
            ("note:7", "7"),
            ("", ""),
        ] {
            assert_eq!(path_words(uri), expected, "{uri}");
        }
    }

    #[test]
    fn prompts_and_messages_are_read() {
        let arguments = r#"{"style":"short"}"#;
        assert_eq!(prompt_text("review", Some(arguments), 50), "review short");
        assert_eq!(prompt_text("review", None, 3), "rev");
        let params = r#"{"messages":[{"role":"user","content":{"type":"text","text":"one"}},
            {"content":[{"type":"image","data":"x"},{"type":"text","text":"two"}]},7]}"#;
        assert_eq!(sampling_text(params, 50), "one two");
        assert_eq!(sampling_text("[]", 50), "");
    }
}
