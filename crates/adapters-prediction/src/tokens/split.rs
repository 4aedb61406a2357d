//! Splitting of text into the pieces that are encoded each for itself.
//!
//! The pieces of `o200k_base` are the matches of this pattern, whose first alternative that
//! matches counts:
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
//! It is matched by hand: compiled, its classes of characters take tens of milliseconds and 18 MB.

use super::class::{Class, class_of};

/// The pieces of a text, in order; together they are the text.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Pieces<'a> {
    /// Returns the pieces of `text`.
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

/// Returns where the match of the first or else the second alternative ends.
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

/// What the classes of letters in the first two alternatives match somewhere.
#[derive(Clone, Copy, Debug)]
struct Letters {
    /// Where capitals and then at least one small letter end.
    mixed_end: Option<usize>,
    /// Where capitals end, of which there is at least one. Only of use when there is no
    /// [`Self::mixed_end`]: no small letter follows them then.
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
            // What is in both classes can be the small letter after the capitals.
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

/// Returns how long `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at the start of the text is, 0 without one.
fn contraction_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('\'') else {
        return 0;
    };
    let mut letters = rest.chars().map(|letter| letter.to_ascii_lowercase());
    match (letters.next(), letters.next()) {
        (Some('s' | 't' | 'm' | 'd'), _) => 2,
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        // The long s is an s in another case.
        (Some(long @ '\u{17f}'), _) => 1 + long.len_utf8(),
        _ => 0,
    }
}

/// Returns where the match of `\p{N}{1,3}` ends.
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

/// Returns where the match of ` ?[^\s\p{L}\p{N}]+[\r\n/]*` ends.
fn symbols_end(text: &str) -> Option<usize> {
    let start = usize::from(text.starts_with(' '));
    let is_symbol = |class| matches!(class, Class::Other | Class::Mark);
    let end = run_end(text, start, is_symbol);
    let is_tail = |byte: &&u8| matches!(byte, b'\r' | b'\n' | b'/');
    let tail = || text.as_bytes()[end..].iter().take_while(is_tail).count();
    (end > start).then(|| end + tail())
}

/// Returns where the match of the last three alternatives ends, at white space.
fn space_end(text: &str) -> usize {
    let end = run_end(text, 0, |class| {
        matches!(class, Class::Break | Class::Space)
    });
    let space = &text[..end];
    if let Some(last) = space.rfind(['\r', '\n']) {
        return last + 1;
    }
    match space.char_indices().next_back() {
        // The last one before a word belongs to the word, unless it is the only one.
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

/// Returns the class of the character that begins there, and its length in bytes.
fn class_at(text: &str, at: usize) -> Option<(Class, usize)> {
    let character = text[at..].chars().next()?;
    Some((class_of(character), character.len_utf8()))
}
