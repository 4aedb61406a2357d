//! Tokenization: text is split into terms, folded to lower case and stemmed.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use rust_stemmers::{Algorithm, Stemmer};

const STOP_WORDS: &str = include_str!("../../data/stop_words.txt");
/// The maximum number of characters that are read of a word.
const MAX_WORD_CHARS: usize = 64;

/// Returns the terms of a text in their order, with repetitions.
///
/// Words end at characters other than letters and digits, and inside of names at the end of a part:
/// `getUserID`, `get_user_id` and `get.user-id` are the same three terms. In scripts without spaces
/// between words (Han, kana, Thai and its neighbours) each character is a term. Terms are in lower
/// case; English words are stemmed (Porter2), and stop words are left out.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    let mut splitter = Splitter::default();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match class_of(character) {
            CharacterClass::Alone => {
                splitter.end(&mut terms);
                terms.push(character.to_string());
            }
            CharacterClass::Apostrophe if splitter.is_in_word() => {}
            CharacterClass::Apostrophe | CharacterClass::Other => splitter.end(&mut terms),
            CharacterClass::Upper => {
                // The last capital of a run begins the next word: `HTTPServer`.
                let is_followed_by_lower =
                    characters.peek().is_some_and(|next| next.is_lowercase());
                if splitter.last_was_lower || (splitter.is_in_word() && is_followed_by_lower) {
                    splitter.end(&mut terms);
                }
                splitter.push(character, false);
            }
            CharacterClass::Letter => splitter.push(character, true),
        }
    }
    splitter.end(&mut terms);
    terms
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterClass {
    Upper,
    /// Any other letter, digit or mark.
    Letter,
    /// A character that is a term of its own.
    Alone,
    Apostrophe,
    Other,
}

fn class_of(character: char) -> CharacterClass {
    match character {
        '\'' | '\u{2019}' => CharacterClass::Apostrophe,
        _ if is_without_spaces(character) => CharacterClass::Alone,
        _ if character.is_uppercase() => CharacterClass::Upper,
        _ if character.is_alphanumeric() || is_mark(character) => CharacterClass::Letter,
        _ => CharacterClass::Other,
    }
}

/// Returns whether the character belongs to a script without spaces between words.
pub(super) fn is_without_spaces(character: char) -> bool {
    matches!(character,
        '\u{0e00}'..='\u{0eff}' // Thai, Lao
        | '\u{1000}'..='\u{109f}' // Myanmar
        | '\u{1780}'..='\u{17ff}' // Khmer
        | '\u{3040}'..='\u{30ff}' // Hiragana, Katakana
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}') // Han
        && character.is_alphanumeric()
}

/// Returns whether the character is a mark that belongs to the letter before it.
fn is_mark(character: char) -> bool {
    matches!(character,
        '\u{0300}'..='\u{036f}' | '\u{0591}'..='\u{05bd}' | '\u{064b}'..='\u{065f}'
        | '\u{0900}'..='\u{0dff}' | '\u{200c}'..='\u{200d}')
}

#[derive(Debug, Default)]
struct Splitter {
    word: String,
    n_chars: usize,
    last_was_lower: bool,
}

impl Splitter {
    fn is_in_word(&self) -> bool {
        !self.word.is_empty()
    }

    fn push(&mut self, character: char, is_lower: bool) {
        self.last_was_lower = is_lower;
        self.n_chars += 1;
        if self.n_chars <= MAX_WORD_CHARS {
            self.word.extend(character.to_lowercase());
        }
    }

    fn end(&mut self, terms: &mut Vec<String>) {
        if !self.word.is_empty() && !stop_words().contains(self.word.as_str()) {
            terms.push(stem(&self.word).into_owned());
        }
        self.word.clear();
        self.n_chars = 0;
        self.last_was_lower = false;
    }
}

/// Returns the stem of an English word. Another word is unchanged.
fn stem(word: &str) -> Cow<'_, str> {
    static STEMMER: OnceLock<Stemmer> = OnceLock::new();
    if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Cow::Borrowed(word);
    }
    let stemmer = STEMMER.get_or_init(|| Stemmer::create(Algorithm::English));
    stemmer.stem(word)
}

fn stop_words() -> &'static HashSet<&'static str> {
    static WORDS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let lines = STOP_WORDS.lines().filter(|line| !line.starts_with('#'));
        lines.flat_map(str::split_whitespace).collect()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_split_into_their_parts() {
        for name in ["getUserID", "get_user_id", "GET-USER.id", "GetUserId"] {
            assert_eq!(words(name), ["get", "user", "id"], "{name}");
        }
        assert_eq!(
            words("parseHTTPResponse2xx"),
            ["pars", "http", "response2xx"]
        );
        assert_eq!(words("base64 mp3"), ["base64", "mp3"]);
    }

    #[test]
    fn inflected_words_have_one_stem() {
        assert_eq!(words("searching searches searched"), ["search"; 3]);
        assert_eq!(words("forecasts"), words("forecast"));
    }

    #[test]
    fn stop_words_are_omitted() {
        assert_eq!(words("Please, what's the weather?"), ["weather"]);
        assert!(words("I don't want it to be").is_empty());
        assert!(words("").is_empty() && words(" \n\t—…").is_empty());
    }

    #[test]
    fn scripts_without_spaces_are_read_character_by_character() {
        assert_eq!(words("查询天气API"), ["查", "询", "天", "气", "api"]);
        assert_eq!(words("Прогноз погоды"), ["прогноз", "погоды"]);
        assert_eq!(words("मौसम"), ["मौसम"]);
    }

    proptest! {
        #[test]
        fn any_text_has_terms_without_spaces(text in "\\PC{0,80}") {
            for term in words(&text) {
                prop_assert!(!term.is_empty() && !term.contains(char::is_whitespace));
            }
        }
    }
}
