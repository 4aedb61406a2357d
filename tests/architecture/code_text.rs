//! The text of a source, told apart into code, literals and comments.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Comments, and the literals of texts and characters. The groups are the contents of texts.
static NO_CODE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r###"(?s)//[^\n]*|/\*.*?\*/|b?r"([^"]*)"|b?r#"(.*?)"#|b?r##"(.*?)"##|b?"((?:\\.|[^"\\])*)"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'])'"###,
    )
    .unwrap()
});

/// Returns the code alone: comments and literals are replaced by spaces, so that each byte stays in
/// its place.
pub(crate) fn code_of(text: &str) -> String {
    blank(text, &NO_CODE)
}

/// Replaces all matches by spaces. Line breaks stay.
pub(crate) fn blank(text: &str, pattern: &Regex) -> String {
    let spaces = |found: &Captures<'_>| -> String {
        let bytes = found[0].bytes();
        bytes
            .map(|byte| if byte == b'\n' { '\n' } else { ' ' })
            .collect()
    };
    pattern.replace_all(text, spaces).into_owned()
}

/// Returns the contents of all literal texts, with the lines at which they begin.
pub(crate) fn literals(text: &str) -> Vec<(usize, &str)> {
    let literal = |found: Captures<'_>| {
        // A comment or a character has no group.
        let content = found.iter().skip(1).find_map(|group| group)?;
        Some((line_at(text, content.start()), &text[content.range()]))
    };
    NO_CODE.captures_iter(text).filter_map(literal).collect()
}

/// Returns the number of the line that has a byte, from 1.
pub(crate) fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// A function with a body.
#[derive(Debug, PartialEq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// The lines from the signature to the closing brace.
    pub(crate) lines: Range<usize>,
}

/// Returns the functions that have a body, in code as [`code_of`] returns it.
pub(crate) fn functions(code: &str) -> Vec<Function<'_>> {
    static SIGNATURE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn (\w+)").unwrap());
    let mut found = Vec::new();
    for signature in SIGNATURE.captures_iter(code) {
        let name = signature.get(1).unwrap();
        if let Some(end) = body_end(&code[name.end()..]) {
            found.push(Function {
                name: name.as_str(),
                lines: line_at(code, name.start())..line_at(code, name.end() + end) + 1,
            });
        }
    }
    found
}

/// Returns the place of the brace that closes the first body, or nothing if a semicolon comes
/// before one, as after the signature of a required method.
fn body_end(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let (mut is_in_body, mut brackets) = (false, 0_usize);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.checked_sub(1)?,
            b';' if brackets == 0 && !is_in_body => return None,
            b'{' => {
                depth += 1;
                is_in_body |= brackets == 0;
            }
            b'}' => {
                depth = depth.checked_sub(1)?;
                if is_in_body && depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn code_is_told_from_comments_and_literals() {
    let text = "a // \"b\"\nc('{', \"ping\", r#\"to\"ols\"#) /* d\n */ fn e<'a>() { 'x' }";
    assert_eq!(
        code_of(text),
        "a       \nc(   ,       ,            )     \n    fn e<'a>() {     }"
    );
    assert_eq!(literals(text), [(2, "ping"), (2, "to\"ols")]);
}

#[test]
fn functions_are_measured_from_signature_to_closing_brace() {
    let text = "trait T {\n    fn a(&self) -> [u8; 2];\n    fn b(\n        &self,\n    ) {\n        \
                if x {\n        }\n    }\n}\nfn c() {}\n";
    let found = functions(text);
    let shown: Vec<_> = found.iter().map(|of| (of.name, of.lines.clone())).collect();
    assert_eq!(shown, [("b", 3..9), ("c", 10..11)]);
}
