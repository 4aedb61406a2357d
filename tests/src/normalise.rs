//! Masks for values that differ between two runs of one script.
//!
//! White space between JSON tokens is removed, because framing may have to change it (a
//! pretty-printed body becomes one line). Everything else stays as it was on the wire: number
//! forms, key order, escapes.

use regex::Regex;

/// Removes white space between the tokens of a JSON text. Strings stay unchanged.
pub fn without_layout(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in json.chars() {
        if in_string {
            text.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
        } else if !matches!(character, ' ' | '\t' | '\n' | '\r') {
            in_string = character == '"';
            text.push(character);
        }
    }
    text
}

/// An ordered list of replacements.
#[derive(Clone, Debug, Default)]
pub struct Masks {
    rules: Vec<(Regex, String)>,
}

impl Masks {
    /// Returns the masks for generated values of servers: UUIDs, long hexadecimal ids, timestamps
    /// and times of day.
    pub fn of_a_run() -> Self {
        Self::default()
            .and(
                r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
                "<uuid>",
            )
            .and(r"\b[0-9a-f]{32}\b", "<hex>")
            .and(
                r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)",
                "<timestamp>",
            )
            .and(r"\d{1,2}:\d\d:\d\d[\s\u{202f}][AP]M", "<time>")
    }

    /// Adds one more mask, which is applied after the others.
    #[must_use]
    pub fn and(mut self, pattern: &str, replacement: &str) -> Self {
        let pattern = Regex::new(pattern).unwrap_or_else(|error| panic!("mask {pattern}: {error}"));
        self.rules.push((pattern, replacement.to_owned()));
        self
    }

    /// Returns `message` without layout and with every mask applied.
    pub fn apply(&self, message: &str) -> String {
        self.rules
            .iter()
            .fold(without_layout(message), |text, (pattern, replacement)| {
                pattern
                    .replace_all(&text, replacement.as_str())
                    .into_owned()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layout_is_removed() {
        assert_eq!(
            without_layout("{ \"a b\\\" \" :\n [1.0 , 1e3,\t\"\\u00e9\"] }"),
            "{\"a b\\\" \":[1.0,1e3,\"\\u00e9\"]}"
        );
    }

    #[test]
    fn made_up_values_are_masked_and_others_are_not() {
        let masks = Masks::of_a_run();
        assert_eq!(
            masks.apply(r#"{"id":"0f3c1f1e-1111-4222-8333-444455556666","at":"2026-01-02T03:04:05.678Z","n":20260102}"#),
            r#"{"id":"<uuid>","at":"<timestamp>","n":20260102}"#
        );
    }
}
