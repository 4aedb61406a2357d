//! The script and the language of a text.

use std::collections::HashMap;
use std::sync::OnceLock;

use strum::{IntoStaticStr, VariantArray};

const FREQUENT_WORDS: &str = include_str!("../../../data/languages.txt");

/// The script of most letters of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub enum Script {
    /// Latin.
    Latin,
    /// Cyrillic.
    Cyrillic,
    /// Greek.
    Greek,
    /// Han characters without kana.
    Han,
    /// Hiragana or katakana, with Han characters or not.
    Kana,
    /// Hangul.
    Hangul,
    /// Arabic.
    Arabic,
    /// Hebrew.
    Hebrew,
    /// Devanagari.
    Devanagari,
    /// Thai.
    Thai,
    /// Letters of another script.
    Other,
    /// No letters.
    #[default]
    None,
}

impl Script {
    /// Returns the script of most letters. A character that stands for a syllable or a word counts
    /// for three letters. If two scripts have the same count, the first one in the order of
    /// [`Script`] wins.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut counts = [0_u32; Self::VARIANTS.len()];
        for script in text.chars().filter_map(Self::of_letter) {
            let weight = match script {
                Self::Han | Self::Kana | Self::Hangul => 3,
                _ => 1,
            };
            counts[script as usize] += weight;
        }
        // Japanese text mixes kana and Han, so any kana makes its Han characters Japanese too.
        if counts[Self::Kana as usize] > 0 {
            counts[Self::Kana as usize] += std::mem::take(&mut counts[Self::Han as usize]);
        }
        let mut most = (0, Self::None);
        for (script, count) in Self::VARIANTS.iter().zip(counts) {
            if count > most.0 {
                most = (count, *script);
            }
        }
        most.1
    }

    fn of_letter(character: char) -> Option<Self> {
        Some(match character {
            _ if !character.is_alphabetic() => return None,
            '\0'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => Self::Latin,
            '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Self::Greek,
            '\u{400}'..='\u{52f}' => Self::Cyrillic,
            '\u{590}'..='\u{5ff}' => Self::Hebrew,
            '\u{600}'..='\u{77f}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' => {
                Self::Arabic
            }
            '\u{900}'..='\u{97f}' => Self::Devanagari,
            '\u{e00}'..='\u{e7f}' => Self::Thai,
            '\u{3040}'..='\u{30ff}' => Self::Kana,
            '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{ac00}'..='\u{d7af}' => {
                Self::Hangul
            }
            '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Self::Han,
            _ => Self::Other,
        })
    }
}

/// The language of a text.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray,
)]
pub enum Language {
    /// Arabic.
    #[strum(serialize = "ar")]
    Arabic,
    /// Bulgarian.
    #[strum(serialize = "bg")]
    Bulgarian,
    /// Chinese.
    #[strum(serialize = "zh")]
    Chinese,
    /// Dutch.
    #[strum(serialize = "nl")]
    Dutch,
    /// English.
    #[strum(serialize = "en")]
    English,
    /// French.
    #[strum(serialize = "fr")]
    French,
    /// German.
    #[strum(serialize = "de")]
    German,
    /// Greek.
    #[strum(serialize = "el")]
    Greek,
    /// Hebrew.
    #[strum(serialize = "he")]
    Hebrew,
    /// Hindi.
    #[strum(serialize = "hi")]
    Hindi,
    /// Italian.
    #[strum(serialize = "it")]
    Italian,
    /// Japanese.
    #[strum(serialize = "ja")]
    Japanese,
    /// Korean.
    #[strum(serialize = "ko")]
    Korean,
    /// Persian.
    #[strum(serialize = "fa")]
    Persian,
    /// Portuguese.
    #[strum(serialize = "pt")]
    Portuguese,
    /// Russian.
    #[strum(serialize = "ru")]
    Russian,
    /// Spanish.
    #[strum(serialize = "es")]
    Spanish,
    /// Thai.
    #[strum(serialize = "th")]
    Thai,
    /// Ukrainian.
    #[strum(serialize = "uk")]
    Ukrainian,
    /// The language cannot be detected.
    #[default]
    #[strum(serialize = "und")]
    Unknown,
}

impl Language {
    /// All languages that can be detected: all but the last one, [`Self::Unknown`].
    const KNOWN: &'static [Self] = match Self::VARIANTS.split_last() {
        Some((_, known)) => known,
        None => &[],
    };

    /// Returns the code of ISO 639-1; `und` for [`Self::Unknown`].
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Returns the language of a text in a script. Some scripts have only one known language. For
    /// the other scripts it is the language with the most frequent words in the text. It is unknown
    /// if two languages have the same number of words, or if there are none.
    #[must_use]
    pub fn of(text: &str, script: Script) -> Self {
        match script {
            Script::Han => Self::Chinese,
            Script::Kana => Self::Japanese,
            Script::Hangul => Self::Korean,
            Script::Greek => Self::Greek,
            Script::Hebrew => Self::Hebrew,
            Script::Thai => Self::Thai,
            Script::Latin | Script::Cyrillic | Script::Arabic | Script::Devanagari => {
                Self::by_words(text)
            }
            Script::Other | Script::None => Self::Unknown,
        }
    }

    fn by_words(text: &str) -> Self {
        // Marks of Devanagari, such as the virama, belong to the word but are not all alphanumeric.
        let is_of_word = |it: char| it.is_alphanumeric() || matches!(it, '\u{900}'..='\u{97f}');
        let mut counts = [0_u32; Self::KNOWN.len()];
        for word in text.split(|it| !is_of_word(it)) {
            let Some(languages) = frequent_words().get(word.to_lowercase().as_str()) else {
                continue;
            };
            for place in languages {
                counts[*place] += 1;
            }
        }
        let most = counts.iter().max().copied().unwrap_or_default();
        let mut best = (Self::KNOWN.iter().zip(counts)).filter(|(_, count)| *count == most);
        match (best.next(), best.next()) {
            (Some((language, 1..)), None) => *language,
            _ => Self::Unknown,
        }
    }
}

/// Returns for each frequent word the positions of its languages in [`Language::KNOWN`].
fn frequent_words() -> &'static HashMap<&'static str, Vec<usize>> {
    static WORDS: OnceLock<HashMap<&'static str, Vec<usize>>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mut words: HashMap<&str, Vec<usize>> = HashMap::new();
        for line in FREQUENT_WORDS.lines().filter(|line| !line.starts_with('#')) {
            let Some((code, listed)) = line.split_once(':') else {
                continue;
            };
            let Some(place) = Language::KNOWN.iter().position(|it| it.code() == code) else {
                continue;
            };
            for word in listed.split_whitespace() {
                let places = words.entry(word).or_default();
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        words
    })
}
