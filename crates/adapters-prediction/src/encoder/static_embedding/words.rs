//! BERT's basic tokenizer: removes control characters, accents and upper case, and splits at white
//! space, around punctuation and around each Chinese character.

use std::ops::ControlFlow;

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;

/// Maximum number of characters of a text that are read.
const MAX_CHARACTERS: usize = 16 << 10;

/// Calls `take` with each word of a text, in order, until it breaks.
pub(super) fn for_each_word(text: &str, mut take: impl FnMut(&str) -> ControlFlow<()>) {
    let mut word = String::new();
    for character in plain_characters(text) {
        let is_separate = is_punctuation(character);
        if !is_separate && !character.is_whitespace() {
            word.push(character);
            continue;
        }
        if !word.is_empty() && take(&word).is_break() {
            return;
        }
        word.clear();
        if is_separate && take(character.encode_utf8(&mut [0; 4])).is_break() {
            return;
        }
    }
    if !word.is_empty() {
        // The last word, so a break has no effect.
        let _ = take(&word);
    }
}

/// Returns the characters of a text in lower case, without accents, and with spaces around Chinese
/// ones.
fn plain_characters(text: &str) -> impl Iterator<Item = char> {
    let spaced = text
        .chars()
        .take(MAX_CHARACTERS)
        .filter(|character| !is_removed(*character))
        .flat_map(|character| {
            let space = is_chinese(character).then_some(' ');
            space.into_iter().chain([character]).chain(space)
        });
    DecomposingNormalizerBorrowed::new_nfd()
        .normalize_iter(spaced)
        .filter(|character| category(*character) != GeneralCategory::NonspacingMark)
        .flat_map(char::to_lowercase)
}

fn category(character: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(character)
}

fn is_removed(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' | ' '..='~' => false,
        '\u{fffd}' => true,
        _ => matches!(
            category(character),
            GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
        ),
    }
}

fn is_punctuation(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_punctuation();
    }
    matches!(
        category(character),
        GeneralCategory::ConnectorPunctuation
            | GeneralCategory::DashPunctuation
            | GeneralCategory::OpenPunctuation
            | GeneralCategory::ClosePunctuation
            | GeneralCategory::InitialPunctuation
            | GeneralCategory::FinalPunctuation
            | GeneralCategory::OtherPunctuation
    )
}

/// Returns whether a character is in one of the blocks of the original tokenizer. Unicode has more
/// such blocks by now.
fn is_chinese(character: char) -> bool {
    matches!(
        character,
        '\u{4e00}'..='\u{9fff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{20000}'..='\u{2a6df}'
            | '\u{2a700}'..='\u{2b73f}'
            | '\u{2b740}'..='\u{2b81f}'
            | '\u{2b920}'..='\u{2ceaf}'
            | '\u{f900}'..='\u{faff}'
            | '\u{2f800}'..='\u{2fa1f}'
    )
}
