//! A text as words with what stands around them.

use std::ops::Range;

use crate::recommender::lexicon::{Lexicon, Word, words_of};

/// Longer names are cut there, in characters.
const MAX_NAME_CHARS: usize = 120;

/// How a word is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// As a word of the sentence.
    Spoken,
    /// As a part of a name, or between quotation marks: what it says is not what is asked for.
    Mentioned,
}

/// What stands between two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Break {
    #[default]
    None,
    Comma,
    /// A clause ends.
    Clause,
}

/// A word where it stands.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) word: Word,
    pub(super) usage: Use,
    /// What stands before it.
    pub(super) before: Break,
    /// The name that begins with it: an identifier, a file, an address.
    pub(super) name: Option<String>,
    /// Whether it is written as abbreviations are.
    pub(super) is_abbreviation: bool,
}

/// Returns the words of a text.
pub(super) fn tokens(text: &str, lexicon: &Lexicon) -> Vec<Token> {
    let quotes = quotes(text);
    // Who shouts writes every word as an abbreviation.
    let is_shouted = !text.chars().any(char::is_lowercase);
    let mut reader = Reader {
        lexicon,
        tokens: Vec::new(),
        pending: Break::None,
        is_shouted,
    };
    let mut at = 0;
    let mut quotes = quotes.into_iter().peekable();
    for piece in text.split_inclusive(char::is_whitespace) {
        let chunk = piece.trim_end();
        while quotes.next_if(|quote| quote.end <= at).is_some() {}
        let is_quoted = quotes
            .peek()
            .is_some_and(|quote| quote.start < at + chunk.len());
        reader.chunk(
            chunk,
            if is_quoted {
                Use::Mentioned
            } else {
                Use::Spoken
            },
        );
        if piece.ends_with('\n') {
            reader.stop(Break::Clause);
        }
        at += piece.len();
    }
    reader.tokens
}

/// Returns where quoted text stands, quotation marks included. A mark without its partner on the
/// same line quotes nothing.
fn quotes(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open: Option<(usize, char)> = None;
    for (at, character) in text.char_indices() {
        match open {
            Some(_) if character == '\n' => open = None,
            Some((start, closing)) if is_closing(character, closing) => {
                found.push(start..at + character.len_utf8());
                open = None;
            }
            Some(_) => {}
            None => open = closing_of(character).map(|closing| (at, closing)),
        }
    }
    found
}

fn closing_of(opening: char) -> Option<char> {
    match opening {
        '"' | '`' => Some(opening),
        '“' | '„' => Some('”'),
        '«' => Some('»'),
        '「' => Some('」'),
        _ => None,
    }
}

fn is_closing(character: char, closing: char) -> bool {
    // German text closes with the mark that opens in English.
    character == closing || (closing == '”' && character == '“')
}

struct Reader<'a> {
    lexicon: &'a Lexicon,
    tokens: Vec<Token>,
    pending: Break,
    is_shouted: bool,
}

impl Reader<'_> {
    fn stop(&mut self, stop: Break) {
        self.pending = self.pending.max(stop);
    }

    /// Reads what stands between two spaces.
    fn chunk(&mut self, chunk: &str, usage: Use) {
        let is_inner = |it: char| it.is_alphanumeric() || matches!(it, '_' | '/' | '~' | '$');
        let has_dot_first = |rest: &str| {
            let mut characters = rest.chars();
            characters.next() == Some('.') && characters.next().is_some_and(char::is_alphanumeric)
        };
        let mut core = chunk;
        while let Some(first) = core.chars().next()
            && !is_inner(first)
            && !has_dot_first(core)
            && !core.starts_with("./")
            && !core.starts_with("../")
        {
            self.stop(break_of(first));
            core = &core[first.len_utf8()..];
        }
        let bare = core.trim_end_matches(|it: char| !is_inner(it) || matches!(it, '/' | '~' | '$'));
        let behind = &core[bare.len()..];
        if bare.is_empty() {
            return;
        }
        if let Some(kind) = Name::of(bare, chunk, self.lexicon) {
            self.name(bare, kind);
        } else if is_camel_case(bare) {
            self.words(&bare.to_lowercase(), usage);
        } else {
            self.words(bare, usage);
        }
        for character in behind.chars() {
            self.stop(break_of(character));
        }
    }

    fn name(&mut self, text: &str, kind: Name) {
        let mut words = match kind {
            Name::Url => words_of("url"),
            Name::Mail => words_of("email"),
            Name::Identifier => words_of(text),
        };
        if words.is_empty() {
            words.push(Word::default());
        }
        let mut name = Some(text.chars().take(MAX_NAME_CHARS).collect());
        for word in words {
            self.push(word, Use::Mentioned, name.take());
        }
    }

    fn words(&mut self, text: &str, usage: Use) {
        let is_abbreviation = !self.is_shouted && is_abbreviation(text);
        // Punctuation stands inside of a chunk where no space follows it.
        for part in text.split_inclusive(|it: char| break_of(it) != Break::None) {
            for word in words_of(part) {
                self.push(word, usage, None);
                if let Some(token) = self.tokens.last_mut() {
                    token.is_abbreviation = is_abbreviation;
                }
            }
            let last = part.chars().next_back();
            self.stop(last.map_or(Break::None, break_of));
        }
    }

    fn push(&mut self, word: Word, usage: Use, name: Option<String>) {
        self.tokens.push(Token {
            word,
            usage,
            before: std::mem::take(&mut self.pending),
            name,
            is_abbreviation: false,
        });
    }
}

fn break_of(character: char) -> Break {
    match character {
        ',' | '，' | '、' | '،' => Break::Comma,
        '.' | ';' | ':' | '!' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '…' | '–' | '—' | '-'
        | '。' | '！' | '？' | '；' | '：' | '؟' | '؛' | '।' => Break::Clause,
        _ => Break::None,
    }
}

/// Returns whether a word is written as abbreviations are: `API`, `S3`.
fn is_abbreviation(text: &str) -> bool {
    let mut letters = text.bytes();
    (2..=8).contains(&text.len())
        && letters.next().is_some_and(|it| it.is_ascii_uppercase())
        && letters.all(|it| it.is_ascii_uppercase() || it.is_ascii_digit())
}

/// What kind of name a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Url,
    Mail,
    Identifier,
}

impl Name {
    /// Returns what name a chunk of a text is, without the punctuation around it (`bare`).
    fn of(bare: &str, chunk: &str, lexicon: &Lexicon) -> Option<Self> {
        if bare.contains("://") || bare.starts_with("www.") {
            return Some(Self::Url);
        }
        if let Some((user, host)) = bare.split_once('@')
            && !user.is_empty()
            && host.contains('.')
        {
            return Some(Self::Mail);
        }
        let is_identifier = is_snake_case(bare)
            || is_path(bare)
            || has_extension(bare)
            || (is_camel_case(bare) && !is_known(bare, lexicon))
            || chunk.contains(&format!("{bare}()"))
            || chunk.contains(&format!("`{bare}`"));
        is_identifier.then_some(Self::Identifier)
    }
}

fn is_snake_case(text: &str) -> bool {
    let inside = text.trim_matches(|it: char| !it.is_alphanumeric());
    inside.contains('_') && !inside.contains(|it| break_of(it) == Break::Comma)
}

fn is_path(text: &str) -> bool {
    let is_rooted = ["/", "./", "../", "~/"]
        .iter()
        .any(|it| text.len() > it.len() && text.starts_with(it));
    is_rooted || text.contains('\\')
}

/// Returns whether a text is a file name (`report.csv`) or an extension (`.csv`).
fn has_extension(text: &str) -> bool {
    let Some((name, extension)) = text.rsplit_once('.') else {
        return false;
    };
    let is_extension = (2..=5).contains(&extension.len())
        && extension.bytes().all(|it| it.is_ascii_alphanumeric())
        && extension.bytes().any(|it| it.is_ascii_alphabetic())
        // "end.Then" lacks a space.
        && (extension.bytes().all(|it| !it.is_ascii_uppercase())
            || extension.bytes().all(|it| !it.is_ascii_lowercase()));
    let has_letters = || {
        name.chars()
            .filter(|it| it.is_alphabetic())
            .nth(1)
            .is_some()
    };
    is_extension && (name.is_empty() || has_letters())
}

fn is_camel_case(text: &str) -> bool {
    let mut pairs = text.chars().zip(text.chars().skip(1));
    text.chars().all(char::is_alphanumeric)
        && pairs.any(|(first, second)| first.is_lowercase() && second.is_uppercase())
}

/// Returns whether a name in mixed case is a word of the tables, like `GitHub`.
fn is_known(text: &str, lexicon: &Lexicon) -> bool {
    lexicon.find(&words_of(&text.to_lowercase())).is_some()
}
