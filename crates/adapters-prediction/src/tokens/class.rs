//! Character classes for the splitting of text.

use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;

/// The class of a character. Each character has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Upper or title case: `\p{Lu}\p{Lt}`.
    Upper,
    /// Lower case: `\p{Ll}`.
    Lower,
    /// Letters without case: `\p{Lm}\p{Lo}`.
    Letter,
    /// Marks on letters: `\p{M}`.
    Mark,
    /// Digits and other numbers: `\p{N}`.
    Number,
    /// Carriage return and line feed.
    Break,
    /// Other white space.
    Space,
    /// Everything else.
    Other,
}

pub(super) fn class_of(character: char) -> Class {
    match character {
        'a'..='z' => Class::Lower,
        'A'..='Z' => Class::Upper,
        '0'..='9' => Class::Number,
        '\r' | '\n' => Class::Break,
        _ if character.is_whitespace() => Class::Space,
        '\0'..='\x7f' => Class::Other,
        _ => class_by_category(character),
    }
}

fn class_by_category(character: char) -> Class {
    match CodePointMapData::<GeneralCategory>::new().get(character) {
        GeneralCategory::UppercaseLetter | GeneralCategory::TitlecaseLetter => Class::Upper,
        GeneralCategory::LowercaseLetter => Class::Lower,
        GeneralCategory::ModifierLetter | GeneralCategory::OtherLetter => Class::Letter,
        GeneralCategory::NonspacingMark
        | GeneralCategory::SpacingMark
        | GeneralCategory::EnclosingMark => Class::Mark,
        GeneralCategory::DecimalNumber
        | GeneralCategory::LetterNumber
        | GeneralCategory::OtherNumber => Class::Number,
        _ => Class::Other,
    }
}
