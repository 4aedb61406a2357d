//! Lines and indentation of a text that is edited.

use std::ops::Range;

/// A replacement of a part of a text.
#[derive(Debug)]
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// Returns a text with several parts replaced, which do not overlap.
pub(super) fn splice(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for splice in splices {
        edited.push_str(text.get(at..splice.range.start).unwrap_or_default());
        edited.push_str(&splice.text);
        at = at.max(splice.range.end);
    }
    edited.push_str(text.get(at..).unwrap_or_default());
    edited
}

/// Returns the line end that a text uses.
pub(super) fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Returns the start of the line of a byte.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Returns the end of the line of a byte, after its line end.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// Returns the white space at the start of the line of a byte.
pub(super) fn indentation(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    let line = line.trim_start_matches('\u{feff}');
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Returns whether nothing but white space is before a byte in its line.
pub(super) fn is_first_in_line(text: &str, at: usize) -> bool {
    let before = &text[line_start(text, at)..at];
    before.chars().all(|c| matches!(c, ' ' | '\t'))
}
