//! Words, in the form in which they are compared with the lexicon.

use std::collections::HashMap;
use std::sync::Arc;

use crate::retrieval::words;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::recommendation) struct Word {
    /// In lower case, without apostrophes.
    pub(in crate::recommendation) plain: Arc<str>,
    /// The stem. The stem of a stop word is the word itself.
    pub(in crate::recommendation) stem: Arc<str>,
}

/// The form of a word in the lexicon, by which it is compared.
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

/// Returns whether a character is a part of a word, as in [`words`].
pub(super) fn is_of_word(character: char) -> bool {
    character.is_alphanumeric()
        || matches!(character, '\'' | '\u{2019}' | '\u{200c}' | '\u{200d}' | '\u{0300}'..='\u{036f}'
            | '\u{0591}'..='\u{05bd}' | '\u{064b}'..='\u{065f}' | '\u{0900}'..='\u{0eff}')
}

/// Returns the words of a text in their order, with stop words.
pub(in crate::recommendation) fn words_of(text: &str) -> Vec<Word> {
    let runs = text.split(|it| !is_of_word(it)).filter(|it| !it.is_empty());
    runs.flat_map(words_of_run).collect()
}

/// Returns the words of a run of letters. A change of case or the script can split it into several.
fn words_of_run(run: &str) -> Vec<Word> {
    /// The maximum number of characters of a run; longer runs are cut. No table has such words.
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

/// Reads many texts and stems each word once, since texts have words in common.
#[derive(Debug, Default)]
pub(in crate::recommendation) struct WordReader {
    known: HashMap<String, Vec<Word>>,
}

impl WordReader {
    /// Returns the same as [`words_of`], but stops after `max` or slightly more words.
    pub(in crate::recommendation) fn words_of(&mut self, text: &str, max: usize) -> Vec<Word> {
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
