//! Words as the tables are compared with.

use std::collections::HashMap;
use std::sync::Arc;

use crate::retrieval::words;

/// A word of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::recommender) struct Word {
    /// In lower case, without apostrophes.
    pub(in crate::recommender) plain: Arc<str>,
    /// Its stem; that of a word that says nothing of tools is the word itself.
    pub(in crate::recommender) stem: Arc<str>,
}

/// How a word of a table is compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spelling {
    Stem(String),
    Exact(String),
}

impl Spelling {
    pub(super) fn fits(&self, word: &Word) -> bool {
        match self {
            Self::Stem(stem) => **stem == *word.stem,
            Self::Exact(plain) => **plain == *word.plain,
        }
    }
}

/// Returns whether a character is a part of a word, as [`words`] sees it.
pub(super) fn is_of_word(character: char) -> bool {
    character.is_alphanumeric()
        || matches!(character, '\'' | '\u{2019}' | '\u{200c}' | '\u{200d}' | '\u{0300}'..='\u{036f}'
            | '\u{0591}'..='\u{05bd}' | '\u{064b}'..='\u{065f}' | '\u{0900}'..='\u{0eff}')
}

/// Returns the words of a text in their order, with those that say nothing of tools.
pub(in crate::recommender) fn words_of(text: &str) -> Vec<Word> {
    let runs = text.split(|it| !is_of_word(it)).filter(|it| !it.is_empty());
    runs.flat_map(words_of_run).collect()
}

/// Returns the words of a run of letters, which has several where the case or the script says so.
fn words_of_run(run: &str) -> Vec<Word> {
    /// Longer runs are cut there: nobody's table has such words.
    const MAX_CHARS: usize = 64;
    let mut terms = words(run);
    if terms.len() > 1 {
        let inner = terms.into_iter().map(Arc::<str>::from);
        let word = |stem: Arc<str>| Word {
            plain: Arc::clone(&stem),
            stem,
        };
        return inner.map(word).collect();
    }
    let letters = run.chars().filter(|it| !matches!(it, '\'' | '\u{2019}'));
    let plain: String = (letters.take(MAX_CHARS))
        .flat_map(char::to_lowercase)
        .collect();
    if plain.is_empty() {
        return Vec::new();
    }
    let plain: Arc<str> = plain.into();
    let stem = terms.pop().map_or_else(|| Arc::clone(&plain), Arc::from);
    vec![Word { plain, stem }]
}

/// Reads many texts that have words in common: each word is stemmed once.
#[derive(Debug, Default)]
pub(in crate::recommender) struct WordReader {
    known: HashMap<String, Vec<Word>>,
}

impl WordReader {
    /// Returns what [`words_of`] does, at least `max` words of it where there are more.
    pub(in crate::recommender) fn words_of(&mut self, text: &str, max: usize) -> Vec<Word> {
        let mut runs = text.split(|it| !is_of_word(it)).filter(|it| !it.is_empty());
        let mut all = Vec::new();
        while all.len() < max
            && let Some(run) = runs.next()
        {
            if let Some(known) = self.known.get(run) {
                all.extend_from_slice(known);
                continue;
            }
            let read = words_of_run(run);
            all.extend_from_slice(&read);
            self.known.insert(run.to_owned(), read);
        }
        all
    }
}
