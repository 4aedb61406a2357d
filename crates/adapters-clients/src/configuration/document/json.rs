//! A tolerant scanner for JSON that keeps the place of each value.
//!
//! It accepts comments, trailing commas, a byte order mark and duplicate keys, because clients do.
//! An editor can then change a few bytes and keep all others.

use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::{DocumentError, Position};

/// The maximum depth of nested values.
const MAX_DEPTH: usize = 128;
/// The byte order mark, which some editors of Windows write.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// A value with its place in the text.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) kind: NodeKind,
}

/// The kind of a value.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Item>),
    Object(Vec<Item>),
}

/// A member of an object or an element of an array.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// The place of the first byte, which is that of the key if there is one.
    pub(crate) start: usize,
    /// The key of a member; empty for an element.
    pub(crate) key: String,
    pub(crate) value: Node,
    /// The place of the comma after it.
    pub(crate) comma: Option<usize>,
}

impl Node {
    /// Returns the members or elements; none for a plain value.
    pub(crate) fn items(&self) -> &[Item] {
        match &self.kind {
            NodeKind::Array(items) | NodeKind::Object(items) => items,
            _ => &[],
        }
    }

    /// Returns whether the value is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.kind, NodeKind::Object(_))
    }

    /// Returns the member that counts for a key: the last one, as in most parsers.
    pub(crate) fn member(&self, key: &str) -> Option<&Item> {
        if !self.is_object() {
            return None;
        }
        self.items().iter().rfind(|item| item.key == key)
    }

    /// Returns the value without places. The last one of duplicate keys counts.
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(value) => Value::Bool(*value),
            NodeKind::Number(number) => Value::Number(number.clone()),
            NodeKind::String(text) => Value::String(text.clone()),
            NodeKind::Array(items) => {
                Value::Array(items.iter().map(|item| item.value.to_value()).collect())
            }
            NodeKind::Object(items) => {
                let members = items
                    .iter()
                    .map(|item| (item.key.clone(), item.value.to_value()));
                Value::Object(members.collect::<Map<String, Value>>())
            }
        }
    }

    /// Returns the paths of keys that occur twice in one object, such as `mcpServers.github`.
    pub(crate) fn duplicate_keys(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_duplicates("", &mut paths);
        paths
    }

    fn collect_duplicates(&self, prefix: &str, paths: &mut Vec<String>) {
        let mut seen = std::collections::BTreeSet::new();
        for item in self.items() {
            let path = if item.key.is_empty() || prefix.is_empty() {
                format!("{prefix}{}", item.key)
            } else {
                format!("{prefix}.{}", item.key)
            };
            if self.is_object() && !seen.insert(item.key.as_str()) && !paths.contains(&path) {
                paths.push(path.clone());
            }
            item.value.collect_duplicates(&path, paths);
        }
    }
}

/// Reads a document. A text of white space and comments has no value.
///
/// # Errors
///
/// Returns [`DocumentError::Syntax`] with the place of the first mistake.
pub(crate) fn scan(text: &str) -> Result<Option<Node>, DocumentError> {
    let mut scanner = Scanner { text, at: 0 };
    if text.starts_with(BYTE_ORDER_MARK) {
        scanner.at = BYTE_ORDER_MARK.len_utf8();
    }
    scanner.skip_blanks()?;
    if scanner.peek().is_none() {
        return Ok(None);
    }
    let root = scanner.value(0)?;
    scanner.skip_blanks()?;
    match scanner.peek() {
        None => Ok(Some(root)),
        Some(_) => Err(scanner.wrong("unexpected text after the end")),
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, problem: &'static str) -> DocumentError {
        DocumentError::Syntax {
            position: Position::of(self.text, self.at),
            problem,
        }
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<(), DocumentError> {
        loop {
            let rest = &self.text[self.at..];
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(b'/') if rest.starts_with("//") => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                Some(b'/') if rest.starts_with("/*") => {
                    let end = rest[2..].find("*/");
                    let end = end.ok_or_else(|| self.wrong("a comment without an end"))?;
                    self.at += end + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, DocumentError> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("values are nested too deeply"));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => NodeKind::Object(self.items(b'}', depth)?),
            Some(b'[') => NodeKind::Array(self.items(b']', depth)?),
            Some(b'"') => NodeKind::String(self.string()?),
            Some(_) => self.word()?,
            None => return Err(self.wrong("a value is missing")),
        };
        Ok(Node {
            span: start..self.at,
            kind,
        })
    }

    fn items(&mut self, close: u8, depth: usize) -> Result<Vec<Item>, DocumentError> {
        let mut items: Vec<Item> = Vec::new();
        self.at += 1;
        loop {
            self.skip_blanks()?;
            match self.peek() {
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(items);
                }
                Some(b',') => return Err(self.wrong("a value is missing")),
                None => return Err(self.wrong("a bracket is not closed")),
                Some(_) => {}
            }
            if items.last().is_some_and(|last| last.comma.is_none()) {
                return Err(self.wrong("a comma is missing"));
            }
            let start = self.at;
            let mut key = String::new();
            if close == b'}' {
                if self.peek() != Some(b'"') {
                    return Err(self.wrong("a key in double quotes is missing"));
                }
                key = self.string()?;
                self.skip_blanks()?;
                if self.peek() != Some(b':') {
                    return Err(self.wrong("a colon is missing"));
                }
                self.at += 1;
                self.skip_blanks()?;
            }
            let value = self.value(depth + 1)?;
            self.skip_blanks()?;
            let comma = (self.peek() == Some(b',')).then_some(self.at);
            if comma.is_some() {
                self.at += 1;
            }
            items.push(Item {
                start,
                key,
                value,
                comma,
            });
        }
    }

    fn string(&mut self) -> Result<String, DocumentError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        loop {
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(b'\n') | None => return Err(self.wrong("a string without an end")),
                Some(_) => at += 1,
            }
        }
        let quoted = &self.text[start..=at];
        let text = serde_json::from_str(quoted)
            .ok()
            .or_else(|| unescape(&quoted[1..quoted.len() - 1]));
        let text = text.ok_or_else(|| self.wrong("a malformed string"))?;
        self.at = at + 1;
        Ok(text)
    }

    fn word(&mut self) -> Result<NodeKind, DocumentError> {
        let rest = &self.text[self.at..];
        let is_end = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.');
        let word = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        let kind = match word {
            "null" => NodeKind::Null,
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            _ => {
                let number = serde_json::from_str(word).map_err(|_| self.wrong("no JSON value"))?;
                NodeKind::Number(number)
            }
        };
        self.at += word.len();
        Ok(kind)
    }
}

/// Returns the text of a string that is not quite valid: with control characters, or with half of a
/// surrogate pair, as programs in JavaScript write it for a text that was cut.
fn unescape(escaped: &str) -> Option<String> {
    let mut units: Vec<u16> = Vec::with_capacity(escaped.len());
    let mut chars = escaped.chars();
    let mut buffer = [0; 2];
    while let Some(c) = chars.next() {
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        let c = match chars.next()? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits = chars.as_str().get(..4)?;
                let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                units.push(u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
                chars = chars.as_str()[4..].chars();
                continue;
            }
            _ => return None,
        };
        units.extend_from_slice(c.encode_utf16(&mut buffer));
    }
    Some(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_trailing_commas_marks_and_line_ends_are_accepted() {
        let text =
            "\u{feff}// a\r\n{ /* b */ \"k\": [1, 2.5,], // c\r\n\t\"é\": {\"x\": null,},\r\n}\r\n";
        let root = scan(text).unwrap().unwrap();
        let expected = serde_json::json!({"k": [1, 2.5], "é": {"x": null}});
        assert_eq!(root.to_value(), expected);
        assert_eq!(&text[root.span.clone()][..1], "{");
    }

    #[test]
    fn a_text_without_a_value_is_blank() {
        for text in ["", " \r\n", "\u{feff}", "// only\n", "/* a */"] {
            assert!(scan(text).unwrap().is_none(), "{text:?}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (text, line, column) in [
            ("{\n  \"a\": secret\n}", 2, 8),
            ("{\"a\": 1 \"b\": 2}", 1, 9),
            ("{\"a\" 1}", 1, 6),
            ("[1,,2]", 1, 4),
            ("{a: 1}", 1, 2),
            ("{\"é\": \"x", 1, 7),
            ("/* a", 1, 1),
            ("{} {}", 1, 4),
            ("{", 1, 2),
            ("\"\\", 1, 1),
        ] {
            let error = scan(text).unwrap_err();
            let DocumentError::Syntax { position, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!((position.line, position.column), (line, column), "{text:?}");
            assert!(!error.to_string().contains("secret"));
        }
        assert!(scan(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn strings_that_are_not_quite_valid_are_accepted() {
        let text = "[\"a\tb\", \"\\ud83d\", \"\\ud83d\\ude42 \\ud800x\\n\"]";
        let root = scan(text).unwrap().unwrap();
        let expected = serde_json::json!(["a\tb", "\u{fffd}", "\u{1f642} \u{fffd}x\n"]);
        assert_eq!(root.to_value(), expected);
        for text in [r#""\x""#, r#""\ud8""#, r#""\ud800\u+123""#] {
            assert!(scan(text).is_err(), "{text}");
        }
    }

    #[test]
    fn duplicate_keys_are_found_and_the_last_one_counts() {
        let root = scan(r#"{"a": {"b": 1, "b": 2}, "a": {"c": [{"d":1,"d":2}]}}"#);
        let root = root.unwrap().unwrap();
        assert_eq!(root.duplicate_keys(), ["a.b", "a", "a.c.d"]);
        assert_eq!(root.to_value(), serde_json::json!({"a": {"c": [{"d": 2}]}}));
    }
}
