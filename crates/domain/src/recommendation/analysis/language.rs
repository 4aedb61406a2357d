//! The script and the language of a text.

use std::collections::HashMap;
use std::sync::OnceLock;

const FREQUENT_WORDS: &str = include_str!("../../../data/languages.txt");

/// The script of most letters of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    const N: usize = 12;

    /// Returns the script of most letters. A character that stands for a syllable or a word counts
    /// for three letters. If two scripts have the same count, the first one in the order of
    /// [`Script`] wins.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut counts = [0_u32; Self::N];
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
        for script in Self::ALL {
            let count = counts[script as usize];
            if count > most.0 {
                most = (count, script);
            }
        }
        most.1
    }

    const ALL: [Self; Self::N] = [
        Self::Latin,
        Self::Cyrillic,
        Self::Greek,
        Self::Han,
        Self::Kana,
        Self::Hangul,
        Self::Arabic,
        Self::Hebrew,
        Self::Devanagari,
        Self::Thai,
        Self::Other,
        Self::None,
    ];

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// Arabic.
    Arabic,
    /// Bulgarian.
    Bulgarian,
    /// Chinese.
    Chinese,
    /// Dutch.
    Dutch,
    /// English.
    English,
    /// French.
    French,
    /// German.
    German,
    /// Greek.
    Greek,
    /// Hebrew.
    Hebrew,
    /// Hindi.
    Hindi,
    /// Italian.
    Italian,
    /// Japanese.
    Japanese,
    /// Korean.
    Korean,
    /// Persian.
    Persian,
    /// Portuguese.
    Portuguese,
    /// Russian.
    Russian,
    /// Spanish.
    Spanish,
    /// Thai.
    Thai,
    /// Ukrainian.
    Ukrainian,
    /// The language cannot be detected.
    #[default]
    Unknown,
}

impl Language {
    /// All languages that can be detected.
    const KNOWN: [Self; 19] = [
        Self::Arabic,
        Self::Bulgarian,
        Self::Chinese,
        Self::Dutch,
        Self::English,
        Self::French,
        Self::German,
        Self::Greek,
        Self::Hebrew,
        Self::Hindi,
        Self::Italian,
        Self::Japanese,
        Self::Korean,
        Self::Persian,
        Self::Portuguese,
        Self::Russian,
        Self::Spanish,
        Self::Thai,
        Self::Ukrainian,
    ];

    /// Returns the code of ISO 639-1; `und` for [`Self::Unknown`].
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Arabic => "ar",
            Self::Bulgarian => "bg",
            Self::Chinese => "zh",
            Self::Dutch => "nl",
            Self::English => "en",
            Self::French => "fr",
            Self::German => "de",
            Self::Greek => "el",
            Self::Hebrew => "he",
            Self::Hindi => "hi",
            Self::Italian => "it",
            Self::Japanese => "ja",
            Self::Korean => "ko",
            Self::Persian => "fa",
            Self::Portuguese => "pt",
            Self::Russian => "ru",
            Self::Spanish => "es",
            Self::Thai => "th",
            Self::Ukrainian => "uk",
            Self::Unknown => "und",
        }
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
