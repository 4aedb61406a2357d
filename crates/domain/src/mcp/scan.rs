//! Scanner for the members of a JSON object, which skips their values.
//!
//! Made for text that was parsed before. It only looks for the ends of strings and containers,
//! which is several times faster than a parser. It is no validator.

use std::borrow::Cow;
use std::ops::Range;

/// An iterator over the members of a JSON object, in their order: the unescaped key and the text of
/// the value.
///
/// A key that is no valid text, such as one with half of a surrogate pair, is returned as written,
/// without its quotes.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

/// Returns the members of the object `json`; none if it is no object. Text that is not JSON gives
/// some members or none, and never a panic.
#[must_use]
pub fn members(json: &str) -> Members<'_> {
    let start = json.len() - json.trim_start_matches(WHITE_SPACE).len();
    let at = if json[start..].starts_with('{') {
        start + 1
    } else {
        json.len()
    };
    Members { text: json, at }
}

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// The position of a member in the text of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberAt<'a> {
    /// The unescaped key, as [`Members`] gives it.
    pub key: Cow<'a, str>,
    /// The key with its quotes.
    pub key_at: Range<usize>,
    /// The value.
    pub value_at: Range<usize>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next_at()?;
        Some((found.key, self.text.get(found.value_at)?))
    }
}

impl<'a> Members<'a> {
    /// Returns the next member with its position.
    pub fn next_at(&mut self) -> Option<MemberAt<'a>> {
        let key_at = self.skip(|byte| is_white_space(byte) || byte == b',')?;
        let key_end = string_end(self.text.as_bytes(), key_at)?;
        self.at = key_end;
        let value_at = self.skip(|byte| is_white_space(byte) || byte == b':')?;
        let value_end = value_end(self.text.as_bytes(), value_at)?;
        self.at = value_end;
        let written = self.text.get(key_at..key_end)?;
        let as_written = || written.get(1..written.len() - 1).map(Cow::Borrowed);
        let key = unescape(written).or_else(as_written)?;
        self.text.get(value_at..value_end)?;
        Some(MemberAt {
            key,
            key_at: key_at..key_end,
            value_at: value_at..value_end,
        })
    }

    /// Skips bytes. Returns the position of the next other byte.
    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) -> Option<usize> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += rest.iter().position(|byte| !is_skipped(*byte))?;
        Some(self.at)
    }
}

/// Returns the text of a JSON string; `None` if it has no valid text.
#[must_use]
pub fn unescape(string: &str) -> Option<Cow<'_, str>> {
    let inner = string.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(string).ok().map(Cow::Owned)
}

/// Returns whether objects and arrays in `json` are nested more than `limit` levels deep.
///
/// Reads the text once and allocates no memory, however deep it is. For text that is not JSON the
/// answer has no meaning.
#[must_use]
pub fn is_deeper_than(json: &[u8], limit: usize) -> bool {
    // Each level has an opening and a closing bracket.
    if json.len() / 2 <= limit {
        return false;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => match string_end(json, at - 1) {
                Some(end) => at = end,
                None => return false,
            },
            _ => {}
        }
    }
    false
}

/// Returns the position after the string that starts at `at`.
pub(super) fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        // Skips the escaped character, which may be a quotation mark.
        at += 2;
    }
}

/// Returns the position after the value that starts at `at`.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = at;
    loop {
        match *bytes.get(at)? {
            b'"' => at = string_end(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth == 0 => {
                let is_end = |byte: &u8| is_white_space(*byte) || b",}]".contains(byte);
                return Some(at + bytes[at..].iter().position(is_end)?);
            }
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

fn is_white_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn members_are_found_with_their_texts() {
        let text = r#" { "a" : 1.0 ,"b":{"c":"}\""},"\u0064":[1, [2]] , "e":"x\\" } "#;
        let found: Vec<_> = members(text).collect();
        let expected = [
            ("a", "1.0"),
            ("b", r#"{"c":"}\""}"#),
            ("d", "[1, [2]]"),
            ("e", r#""x\\""#),
        ];
        assert_eq!(
            found,
            expected.map(|(key, value)| (Cow::Borrowed(key), value))
        );
        assert_eq!(
            members("{}").count() + members("[1]").count() + members("").count(),
            0
        );
    }

    #[test]
    fn an_invalid_key_does_not_hide_later_members() {
        let found: Vec<_> = members(r#"{"\ud800":1,"x\q":2,"name":"n"}"#).collect();
        let expected = [(r"\ud800", "1"), (r"x\q", "2"), ("name", r#""n""#)];
        assert_eq!(
            found,
            expected.map(|(key, value)| (Cow::Borrowed(key), value))
        );
    }

    #[test]
    fn nesting_is_counted_outside_of_strings() {
        let nested = |n_levels: usize| {
            let [open, close] = ["[", "]"].map(|bracket| bracket.repeat(n_levels - 1));
            format!(r#"{{"a[[[":{open}"{{\"[["{close},"b":[]}}"#)
        };
        for n_levels in [2, 64, 100_000] {
            let text = nested(n_levels);
            assert!(!is_deeper_than(text.as_bytes(), n_levels), "{n_levels}");
            assert!(is_deeper_than(text.as_bytes(), n_levels - 1), "{n_levels}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_without_panic(text in r#"[{}\[\]",:\\a \u{e9}]{0,40}"#) {
            let _ = members(&text).count();
            let _ = is_deeper_than(text.as_bytes(), 3);
        }

        #[test]
        fn members_agree_with_a_parser(
            entries in proptest::collection::vec((".{0,6}", ".{0,6}", any::<i32>()), 0..6)
        ) {
            let object: serde_json::Map<String, serde_json::Value> = entries
                .into_iter()
                .map(|(key, text, number)| (key, serde_json::json!([text, {"n": number}])))
                .collect();
            let text = serde_json::to_string_pretty(&object).unwrap();
            let found: serde_json::Map<String, serde_json::Value> = members(&text)
                .map(|(key, value)| (key.into_owned(), serde_json::from_str(value).unwrap()))
                .collect();
            prop_assert_eq!(found, object);
        }
    }
}
