//! Excerpts: the beginnings of long texts, for people and for models.

use std::borrow::Cow;

/// The ellipsis at the end of a truncated text.
const MARK: char = '…';

/// Returns a text, or its beginning with an ellipsis if it has more than `max_chars` characters.
/// The ellipsis counts as one of them.
///
/// The text is cut after the last whole word. If a word fills more than half of the room, as in
/// scripts without spaces, the text is cut between two characters.
#[must_use]
pub fn excerpt(text: &str, max_chars: usize) -> Cow<'_, str> {
    if text.char_indices().nth(max_chars).is_none() {
        return Cow::Borrowed(text);
    }
    let limit = text.char_indices().nth(max_chars.saturating_sub(1));
    let limit = limit.map_or(0, |(at, _)| at);
    let (beginning, rest) = text.split_at(limit);
    let is_word_whole = rest.starts_with(char::is_whitespace);
    let last_word = beginning.rfind(char::is_whitespace);
    let cut = match last_word {
        Some(at) if !is_word_whole && at >= limit / 2 => &beginning[..at],
        _ => beginning,
    };
    let is_loose = |it: char| it.is_whitespace() || matches!(it, ',' | ';' | ':' | '-' | '(');
    let mut shown = cut.trim_end_matches(is_loose).to_owned();
    if max_chars > 0 {
        shown.push(MARK);
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_text_is_cut_after_a_whole_word() {
        assert_eq!(excerpt("Reads a file.", 13), "Reads a file.");
        assert_eq!(excerpt("Reads a file now.", 13), "Reads a file…");
        assert_eq!(excerpt("Reads a file now.", 12), "Reads a…");
        assert_eq!(excerpt("Reads: a file now.", 8), "Reads…");
        assert_eq!(excerpt("", 0), "");
        assert_eq!(excerpt("a", 0), "");
    }

    #[test]
    fn a_word_longer_than_the_maximum_is_cut() {
        assert_eq!(excerpt("supercalifragilistic", 6), "super…");
        assert_eq!(excerpt("a supercalifragilistic", 9), "a superc…");
        assert_eq!(excerpt("読み取り専用のファイル", 5), "読み取り…");
    }

    proptest! {
        #[test]
        fn an_excerpt_is_the_text_or_its_beginning(text in any::<String>(), max in 1..80_usize) {
            let shown = excerpt(&text, max);
            prop_assert!(shown.chars().count() <= max);
            let beginning = shown.strip_suffix(MARK).unwrap_or(&shown);
            prop_assert!(text.starts_with(beginning) || shown == text);
            prop_assert_eq!(shown == text, text.chars().count() <= max);
        }

        #[test]
        fn words_stay_whole(words in proptest::collection::vec("[a-z]{1,8}", 1..40), max in 20..80_usize) {
            let text = words.join(" ");
            let shown = excerpt(&text, max);
            let shown: Vec<&str> = shown.trim_end_matches(MARK).split(' ').collect();
            prop_assert_eq!(&words[..shown.len()], &shown[..]);
        }
    }
}
