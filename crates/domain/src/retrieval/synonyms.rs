//! Synonyms, as data that operators can extend.

use std::collections::HashMap;

use super::words::words;

const BUILT_IN: &str = include_str!("../../data/synonyms.txt");

/// Groups of words with the same meaning, as far as tools are concerned.
///
/// The text has one group on each line, words with spaces between them; a comment begins with `#`.
/// A word may be in several groups. Words are compared by their stems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synonyms {
    by_term: HashMap<String, Vec<String>>,
    /// The word for each term, in its first spelling.
    words: HashMap<String, String>,
}

/// The reason for which a text of synonyms is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SynonymsError {
    /// A group has fewer than two different words.
    #[error("line {line}: a group needs at least two words that differ by more than their ending")]
    Lonely {
        /// The line, from 1.
        line: usize,
    },
    /// A group has too many words.
    #[error("line {line}: a group has at most {max} words", max = Synonyms::MAX_GROUP)]
    Large {
        /// The line, from 1.
        line: usize,
    },
    /// An entry between two spaces is not exactly one word.
    #[error("line {line}: {word:?} is not one word")]
    NotOneWord {
        /// The line, from 1.
        line: usize,
        /// The invalid entry.
        word: String,
    },
}

impl Synonyms {
    /// The maximum number of words in a group.
    pub const MAX_GROUP: usize = 32;

    /// Returns the groups that are built into riglm.
    #[must_use]
    pub fn built_in() -> Self {
        Self::default().with(BUILT_IN).unwrap_or_default()
    }

    /// Adds the groups of a text.
    ///
    /// # Errors
    ///
    /// Returns [`SynonymsError`] with the number of the line, for a group of one word or of too
    /// many words, and for an entry that is not a word.
    pub fn with(mut self, text: &str) -> Result<Self, SynonymsError> {
        for (number, line) in (1..).zip(text.lines()) {
            let words = line.split('#').next().unwrap_or_default();
            let group = group(words, number)?;
            for (term, word) in &group {
                let known = self.words.entry(term.clone());
                known.or_insert_with(|| word.clone());
            }
            let group: Vec<String> = group.into_iter().map(|(term, _)| term).collect();
            for term in &group {
                let known = self.by_term.entry(term.clone()).or_default();
                for other in &group {
                    if other != term && !known.contains(other) {
                        known.push(other.clone());
                    }
                }
            }
        }
        Ok(self)
    }

    /// Returns the synonyms of a term, without the term itself.
    #[must_use]
    pub fn of(&self, term: &str) -> &[String] {
        self.by_term.get(term).map_or(&[], Vec::as_slice)
    }

    /// Returns the first word with this term; `None` for a term that is in no group.
    #[must_use]
    pub fn word_of(&self, term: &str) -> Option<&str> {
        self.words.get(term).map(String::as_str)
    }
}

/// Parses one line into terms with their words. An empty line has none.
fn group(text: &str, line: usize) -> Result<Vec<(String, String)>, SynonymsError> {
    let mut group: Vec<(String, String)> = Vec::new();
    for word in text.split_whitespace() {
        let mut terms = words(word).into_iter();
        let (Some(term), None) = (terms.next(), terms.next()) else {
            let word = word.to_owned();
            return Err(SynonymsError::NotOneWord { line, word });
        };
        if group.iter().all(|(known, _)| *known != term) {
            group.push((term, word.to_owned()));
        }
    }
    match group.len() {
        1 => Err(SynonymsError::Lonely { line }),
        n if n > Synonyms::MAX_GROUP => Err(SynonymsError::Large { line }),
        _ => Ok(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_synonym_groups_are_valid() {
        let shipped = Synonyms::default().with(BUILT_IN).unwrap();
        assert_eq!(Synonyms::built_in(), shipped);
        assert!(shipped.of("delet").contains(&"remov".to_owned()));
    }

    #[test]
    fn groups_are_compared_by_stems_and_add_up() {
        let synonyms = Synonyms::default()
            .with("car auto # both\n\nauto automobiles\n")
            .unwrap();
        assert_eq!(synonyms.of("car"), ["auto"]);
        assert_eq!(synonyms.of("auto"), ["car", "automobil"]);
        assert!(synonyms.of("bus").is_empty());
        assert_eq!(synonyms.word_of("automobil"), Some("automobiles"));
        assert_eq!(synonyms.word_of("bus"), None);
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = |text: &str| Synonyms::default().with(text).unwrap_err();
        assert_eq!(error("a1 b1\ncar cars"), SynonymsError::Lonely { line: 2 });
        assert_eq!(
            error("car motor_car"),
            SynonymsError::NotOneWord {
                line: 1,
                word: "motor_car".into()
            }
        );
        let many: Vec<String> = (0..40).map(|n| format!("w{n}")).collect();
        assert_eq!(error(&many.join(" ")), SynonymsError::Large { line: 1 });
    }
}
