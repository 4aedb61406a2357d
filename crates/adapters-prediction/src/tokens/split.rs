//! Splitting of text into pieces that are encoded separately.
//!
//! The pieces of `o200k_base` are the matches of this pattern, in which the first matching
//! alternative counts:
//!
//! ```text
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! \p{N}{1,3}
//!  ?[^\s\p{L}\p{N}]+[\r\n/]*
//! \s*[\r\n]+
//! \s+(?!\S)
//! \s+
//! ```
//!
//! The matcher is written by hand, because the character classes of a compiled pattern take tens of
//! milliseconds and 18 MB.

use super::class::{Class, class_of};

/// The pieces of a text, in order. Their concatenation is the text.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = class_at(self.rest, 0)?;
        let text = self.rest;
        let end = word_end(text, first)
            .or_else(|| number_end(text))
            .or_else(|| symbols_end(text))
            .unwrap_or_else(|| space_end(text));
        let (piece, rest) = text.split_at(end);
        self.rest = rest;
        Some(piece)
    }
}

/// Returns the end of the match of the first or else the second alternative.
fn word_end(text: &str, (class, len): (Class, usize)) -> Option<usize> {
    let can_precede = !matches!(
        class,
        Class::Break | Class::Upper | Class::Lower | Class::Letter | Class::Number
    );
    let preceded = can_precede.then(|| Letters::at(text, len));
    let alone = Letters::at(text, 0);
    let end = preceded
        .and_then(|letters| letters.mixed_end)
        .or(alone.mixed_end)
        .or(preceded.and_then(|letters| letters.capitals_end))
        .or(alone.capitals_end)?;
    Some(end + contraction_len(&text[end..]))
}

/// Matches of the letter classes of the first two alternatives at a position.
#[derive(Clone, Copy, Debug)]
struct Letters {
    /// End of capitals followed by at least one lower-case letter.
    mixed_end: Option<usize>,
    /// End of at least one capital. Only used without a [`Self::mixed_end`], because then no
    /// lower-case letter follows.
    capitals_end: Option<usize>,
}

impl Letters {
    fn at(text: &str, start: usize) -> Self {
        let mut mixed_end = None;
        let mut at = start;
        while let Some((class, len)) = class_at(text, at)
            && matches!(class, Class::Upper | Class::Letter | Class::Mark)
        {
            at += len;
            // A character of both classes can be the lower-case letter after the capitals.
            if class != Class::Upper {
                mixed_end = Some(at);
            }
        }
        let capitals_end = (at > start).then_some(at);
        while let Some((class, len)) = class_at(text, at)
            && matches!(class, Class::Lower | Class::Letter | Class::Mark)
        {
            at += len;
            mixed_end = Some(at);
        }
        Self {
            mixed_end,
            capitals_end,
        }
    }
}

/// Returns the length of `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at the start of the text, or 0.
fn contraction_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('\'') else {
        return 0;
    };
    let mut letters = rest.chars().map(|letter| letter.to_ascii_lowercase());
    match (letters.next(), letters.next()) {
        (Some('s' | 't' | 'm' | 'd'), _) => 2,
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        // Ignoring case, the long s is an s.
        (Some(long @ '\u{17f}'), _) => 1 + long.len_utf8(),
        _ => 0,
    }
}

/// Returns the end of the match of `\p{N}{1,3}`.
fn number_end(text: &str) -> Option<usize> {
    let mut end = 0;
    for _ in 0..3 {
        match class_at(text, end) {
            Some((Class::Number, len)) => end += len,
            _ => break,
        }
    }
    (end > 0).then_some(end)
}

/// Returns the end of the match of ` ?[^\s\p{L}\p{N}]+[\r\n/]*`.
fn symbols_end(text: &str) -> Option<usize> {
    let start = usize::from(text.starts_with(' '));
    let is_symbol = |class| matches!(class, Class::Other | Class::Mark);
    let end = run_end(text, start, is_symbol);
    let is_tail = |byte: &&u8| matches!(byte, b'\r' | b'\n' | b'/');
    let tail = || text.as_bytes()[end..].iter().take_while(is_tail).count();
    (end > start).then(|| end + tail())
}

/// Returns the end of the match of the last three alternatives, at white space.
fn space_end(text: &str) -> usize {
    let end = run_end(text, 0, |class| {
        matches!(class, Class::Break | Class::Space)
    });
    let space = &text[..end];
    if let Some(last) = space.rfind(['\r', '\n']) {
        return last + 1;
    }
    match space.char_indices().next_back() {
        // The last space before a word belongs to the word, unless it is the only one.
        Some((last, _)) if last > 0 && end < text.len() => last,
        _ => end,
    }
}

fn run_end(text: &str, start: usize, belongs: impl Fn(Class) -> bool) -> usize {
    let mut end = start;
    while let Some((class, len)) = class_at(text, end)
        && belongs(class)
    {
        end += len;
    }
    end
}

/// Returns the class of the character at this position, and its length in bytes.
fn class_at(text: &str, at: usize) -> Option<(Class, usize)> {
    let character = text[at..].chars().next()?;
    Some((class_of(character), character.len_utf8()))
}
