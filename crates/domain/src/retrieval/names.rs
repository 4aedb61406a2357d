//! Similarity of names, and detection of texts that look like names.

use super::words::{is_without_spaces, words};
use crate::num::to_f64;

/// Returns the positions of the `n` names nearest to `name`, nearest first, without names that have
/// little in common with it.
///
/// The similarity is the larger one of two values: the Jaro-Winkler similarity of letters and
/// digits, without case and separators, and the share of parts (words) in common.
#[must_use]
pub fn nearest_names(name: &str, names: &[&str], n: usize) -> Vec<usize> {
    const MIN_SIMILARITY: f64 = 0.75;
    /// The maximum number of characters that are compared.
    const MAX_CHARS: usize = 100;
    let cut = |text: &str| -> String {
        let text = text.chars().take(MAX_CHARS);
        let kept: String = text.filter(|it| it.is_alphanumeric()).collect();
        kept.to_lowercase()
    };
    let wanted = (cut(name), words(&first_chars(name, MAX_CHARS)));
    let mut near: Vec<(f64, usize)> = (names.iter().enumerate())
        .map(|(at, other)| {
            let written = strsim::jaro_winkler(&wanted.0, &cut(other));
            let parts = dice_coefficient(&wanted.1, &words(&first_chars(other, MAX_CHARS)));
            (written.max(parts), at)
        })
        .filter(|(similarity, _)| !wanted.0.is_empty() && *similarity >= MIN_SIMILARITY)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| names[a.1].cmp(names[b.1])));
    near.into_iter().take(n).map(|(_, at)| at).collect()
}

fn first_chars(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

/// Returns the share of the parts of both names that they have in common (Dice coefficient).
fn dice_coefficient(a: &[String], b: &[String]) -> f64 {
    let n = a.len() + b.len();
    if n == 0 {
        return 0.0;
    }
    let both = a.iter().filter(|part| b.contains(part)).count();
    to_f64(2 * both) / to_f64(n)
}

/// The likeness of a text to the name of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameLikeness {
    /// The text has several words, is longer than names are, or is in a script without spaces
    /// between words, whose names and sentences look alike.
    None,
    /// The text is one word, which may also describe a task.
    Word,
    /// The text is written like a name: with `_`, `-`, `.`, `/` or `:` between two of its
    /// characters, or with an upper-case letter after a lower-case one.
    Identifier,
}

impl NameLikeness {
    /// The maximum length of a name, in characters.
    const MAX_CHARS: usize = 200;

    /// Returns the likeness of a text to a name. White space around the text is ignored.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let is_none = text.is_empty()
            || text.chars().nth(Self::MAX_CHARS).is_some()
            || text.contains(|it: char| it.is_whitespace() || is_without_spaces(it));
        if is_none {
            return Self::None;
        }
        let is_joint = |it: char| matches!(it, '_' | '-' | '.' | '/' | ':');
        let inside = text.trim_matches(|it: char| !it.is_alphanumeric());
        let followed = inside.chars().zip(inside.chars().skip(1));
        let mut pairs = followed.filter(|(first, second)| {
            is_joint(*first) || (first.is_lowercase() && second.is_uppercase())
        });
        if pairs.next().is_some() {
            Self::Identifier
        } else {
            Self::Word
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_words_and_sentences_are_distinguished() {
        for identifier in [
            "read_file",
            " a-b ",
            "readFile",
            "files.read",
            "u__t",
            "a/b",
            "a:b",
        ] {
            let likeness = NameLikeness::of(identifier);
            assert_eq!(likeness, NameLikeness::Identifier, "{identifier}");
        }
        for word in ["commit", "List", "READ", "search?", "-v", "mp3", "wetter…"] {
            assert_eq!(NameLikeness::of(word), NameLikeness::Word, "{word}");
        }
        let long = "a_".repeat(101);
        for text in [
            "",
            " ",
            "read the file",
            "查询天气",
            "查询_API",
            "ค้นหา",
            &long,
        ] {
            assert_eq!(NameLikeness::of(text), NameLikeness::None, "{text}");
        }
    }

    const NAMES: [&str; 4] = ["read_file", "write_file", "list_directory", "sendEmail"];

    #[test]
    fn misspelt_and_rearranged_names_are_found() {
        let first = |name: &str| nearest_names(name, &NAMES, 1);
        assert_eq!(first("readfile"), [0]);
        assert_eq!(first("file_read"), [0]);
        assert_eq!(first("send_email"), [3]);
        assert_eq!(first("list_directoy"), [2]);
        assert!(nearest_names("zzz", &NAMES, 3).is_empty());
        assert!(nearest_names("", &NAMES, 3).is_empty());
        assert!(nearest_names("_", &["-", "a"], 3).is_empty());
    }

    proptest! {
        #[test]
        fn a_name_with_another_case_and_separators_comes_first(
            parts in proptest::collection::vec("[a-z]{3,8}", 1..4),
            others in proptest::collection::vec("[a-z]{3,8}(_[a-z]{3,8}){0,2}", 0..20),
            joint in "[-_./]",
        ) {
            let wanted = parts.join("_");
            let written = parts.join(&joint).to_uppercase();
            let mut names: Vec<&str> = others.iter().map(String::as_str).collect();
            names.push(&wanted);
            let near = nearest_names(&written, &names, 3);
            // A name with the same letters, or with the same words in another order, is as near.
            let sorted = |name: &str| {
                let mut words = words(name);
                words.sort_unstable();
                words
            };
            let is_same = |at: &usize| {
                let name = names[*at];
                name.replace('_', "") == parts.concat() || sorted(name) == sorted(&wanted)
            };
            prop_assert!(near.first().is_some_and(is_same), "{near:?} of {names:?}");
        }

        #[test]
        fn positions_are_valid_unique_and_not_too_many(
            name in ".{0,30}",
            names in proptest::collection::vec(".{0,12}", 0..20),
            n in 0_usize..6,
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let near = nearest_names(&name, &names, n);
            prop_assert!(near.len() <= n);
            prop_assert!(near.iter().all(|at| *at < names.len()));
            let unique: std::collections::BTreeSet<_> = near.iter().collect();
            prop_assert_eq!(unique.len(), near.len());
        }
    }
}
