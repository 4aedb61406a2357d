//! The outline of a message: its depth and the positions of the members of its body, found in one
//! pass over its text.
//!
//! A message of 100 kB is searched for a dozen members on its way. With the outline its text is read
//! once for all of them.

use std::borrow::Cow;
use std::ops::Range;

use crate::mcp::scan::{string_end, unescape};

/// The most members of a body that are kept. A body with more of them is searched each time.
const MAX_MEMBERS: usize = 32;

/// The shape of a message, with positions relative to its body: `params`, `result` or `error`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    /// The most levels of objects and arrays. The message itself is the first.
    pub(super) depth: usize,
    /// Whether there are line breaks between tokens.
    pub(super) has_line_breaks: bool,
    /// The members of the body in their order, or `None` if they are too many, or if the body is no
    /// object.
    members: Option<Box<[MemberSpan]>>,
}

/// The positions of a member in the text of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemberSpan {
    /// The key with its quotes.
    key: Range<usize>,
    value: Range<usize>,
}

/// The member that is being read.
#[derive(Debug, Default)]
struct OpenMember {
    key: Option<Range<usize>>,
    value_start: Option<usize>,
}

impl Outline {
    /// Reads the text of a message, which was parsed before. `body_at` is the position of its body.
    pub(super) fn read(text: &[u8], body_at: Option<usize>) -> Self {
        let mut outline = Self::default();
        let mut members = Vec::new();
        let mut open = OpenMember::default();
        // The level of the members of the body while they are read.
        let mut body_level = usize::MAX;
        let body_start = body_at.unwrap_or(usize::MAX);
        let mut level = 0_usize;
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => {
                    let Some(end) = string_end(text, at) else {
                        return outline;
                    };
                    if level == body_level {
                        open.on_string(at..end);
                    }
                    at = end;
                    continue;
                }
                b'{' | b'[' => {
                    if level == body_level {
                        open.on_value(at);
                    }
                    level += 1;
                    outline.depth = outline.depth.max(level);
                    if at == body_start && *byte == b'{' {
                        body_level = level;
                    }
                }
                b'}' | b']' => {
                    if level == body_level {
                        open.finish(text, at, body_start, &mut members);
                        body_level = usize::MAX;
                        outline.members = Some(Box::default());
                    }
                    level = level.saturating_sub(1);
                }
                b',' if level == body_level => {
                    open.finish(text, at, body_start, &mut members);
                }
                b'\n' | b'\r' => outline.has_line_breaks = true,
                b' ' | b'\t' | b':' | b',' => {}
                _ if level == body_level => open.on_value(at),
                _ => {}
            }
            at += 1;
        }
        // A body that did not end has no members.
        let is_kept = outline.members.is_some() && members.len() <= MAX_MEMBERS;
        outline.members = is_kept.then(|| members.into());
        outline
    }

    /// Returns the members of the body, whose text is `body`: the unescaped key, or the key as
    /// written if it is no valid text, and the text of the value. Returns `None` if they are not kept.
    pub(super) fn members<'a>(
        &self,
        body: &'a str,
    ) -> Option<impl Iterator<Item = (Cow<'a, str>, &'a str)>> {
        let members = self.members.as_deref()?;
        Some(members.iter().filter_map(move |member| {
            let written = body.get(member.key.clone())?;
            let as_written = || written.get(1..written.len() - 1).map(Cow::Borrowed);
            let key = unescape(written).or_else(as_written)?;
            Some((key, body.get(member.value.clone())?))
        }))
    }
}

impl OpenMember {
    fn on_string(&mut self, at: Range<usize>) {
        if self.key.is_none() {
            self.key = Some(at);
        } else {
            self.on_value(at.start);
        }
    }

    fn on_value(&mut self, at: usize) {
        if self.key.is_some() {
            self.value_start.get_or_insert(at);
        }
    }

    /// Ends the member before the comma or the brace at `end`.
    fn finish(
        &mut self,
        text: &[u8],
        end: usize,
        body_start: usize,
        members: &mut Vec<MemberSpan>,
    ) {
        let Self { key, value_start } = std::mem::take(self);
        let (Some(key), Some(start)) = (key, value_start) else {
            return;
        };
        if members.len() > MAX_MEMBERS {
            return;
        }
        let end = start + text[start..end].trim_ascii_end().len();
        members.push(MemberSpan {
            key: key.start - body_start..key.end - body_start,
            value: start - body_start..end - body_start,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mcp::scan;

    fn read(text: &str) -> Outline {
        Outline::read(text.as_bytes(), text.find("\"params\":").map(|at| at + 9))
    }

    fn members_of<'a>(outline: &Outline, body: &'a str) -> Vec<(Cow<'a, str>, &'a str)> {
        outline.members(body).expect("members are kept").collect()
    }

    #[test]
    fn the_members_of_the_body_are_found() {
        let body =
            r#"{ "a" : 1.0 ,"b":{"params":"}\""},"\u0064":[1, [2]] , "e":"x\\" , "a":null }"#;
        let text = format!(r#"{{"id":1,"params":{body},"c":[]}}"#);
        let outline = read(&text);
        let expected: Vec<_> = scan::members(body).collect();
        assert_eq!(expected.len(), 5);
        assert_eq!(members_of(&outline, body), expected);
        assert_eq!(outline.depth, 4);
        assert!(!outline.has_line_breaks);
        assert!(read("{\"id\":1,\n\"params\":{}}").has_line_breaks);
    }

    #[test]
    fn a_body_that_is_no_object_or_very_wide_has_no_kept_members() {
        assert!(read(r#"{"params":[{"a":1}]}"#).members("[]").is_none());
        assert!(read(r#"{"id":{"a":1}}"#).members("{}").is_none());
        let wide = |n: usize| {
            let members: Vec<String> = (0..n).map(|n| format!(r#""{n}":{n}"#)).collect();
            format!(r#"{{"params":{{{}}}}}"#, members.join(","))
        };
        assert!(read(&wide(MAX_MEMBERS)).members("{}").is_some());
        assert!(read(&wide(MAX_MEMBERS + 1)).members("{}").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in r#"[{}\[\]",:\\a \u{e9}]{0,40}"#, at in 0..40_usize) {
            let outline = Outline::read(text.as_bytes(), Some(at));
            if let Some(members) = outline.members(&text) {
                members.for_each(drop);
            }
        }

        #[test]
        fn members_and_depth_agree_with_the_scanner(
            entries in proptest::collection::vec((".{0,6}", ".{0,6}", any::<i32>()), 0..6)
        ) {
            let body: serde_json::Map<String, serde_json::Value> = entries
                .into_iter()
                .map(|(key, text, number)| (key, serde_json::json!([text, {"n": number}])))
                .collect();
            let body = serde_json::to_string_pretty(&body).unwrap();
            let text = format!("{{\"params\":{body}}}");
            let outline = read(&text);
            let expected: Vec<_> = scan::members(&body).collect();
            prop_assert_eq!(members_of(&outline, &body), expected);
            prop_assert!(!scan::is_deeper_than(text.as_bytes(), outline.depth));
            prop_assert!(scan::is_deeper_than(text.as_bytes(), outline.depth - 1));
        }
    }
}
