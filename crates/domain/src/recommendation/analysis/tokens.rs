//! The tokens of a text: its words with the punctuation and names around them.

use std::ops::Range;

use crate::recommendation::lexicon::{Lexicon, Word, words_of};

/// The maximum number of characters of a name. Longer names are cut.
const MAX_NAME_CHARS: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordUse {
    /// A word of the sentence.
    Spoken,
    /// A part of a name, or a word in quotation marks. It is no part of the request.
    Mentioned,
}

/// The punctuation between two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Break {
    #[default]
    None,
    Comma,
    /// The end of a clause.
    Clause,
}

/// A word at its position in the text.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) word: Word,
    pub(super) usage: WordUse,
    pub(super) before: Break,
    /// The name that begins with the word: an identifier, a file or an address.
    pub(super) name: Option<String>,
    /// Whether the text of the word is written as an abbreviation.
    pub(super) is_abbreviation: bool,
}

/// Returns the tokens of a text.
pub(super) fn tokens(text: &str, lexicon: &Lexicon) -> Vec<Token> {
    let quotes = quotes(text);
    // In a text without lower-case letters every word looks like an abbreviation.
    let is_shouted = !text.chars().any(char::is_lowercase);
    let mut reader = Tokenizer {
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
                WordUse::Mentioned
            } else {
                WordUse::Spoken
            },
        );
        if piece.ends_with('\n') {
            reader.note_break(Break::Clause);
        }
        at += piece.len();
    }
    reader.tokens
}

/// Returns the ranges of quoted text, with the quotation marks. A mark without its partner on the
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

struct Tokenizer<'a> {
    lexicon: &'a Lexicon,
    tokens: Vec<Token>,
    pending: Break,
    is_shouted: bool,
}

impl Tokenizer<'_> {
    fn note_break(&mut self, stop: Break) {
        // Of several marks between two words the strongest one counts.
        self.pending = self.pending.max(stop);
    }

    /// Reads the text between two spaces.
    fn chunk(&mut self, chunk: &str, usage: WordUse) {
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
            self.note_break(break_of(first));
            core = &core[first.len_utf8()..];
        }
        let bare = core.trim_end_matches(|it: char| !is_inner(it) || matches!(it, '/' | '~' | '$'));
        let behind = &core[bare.len()..];
        if bare.is_empty() {
            return;
        }
        if let Some(kind) = NameKind::of(bare, chunk, self.lexicon) {
            self.name(bare, kind);
        } else if is_camel_case(bare) {
            self.words(&bare.to_lowercase(), usage);
        } else {
            self.words(bare, usage);
        }
        for character in behind.chars() {
            self.note_break(break_of(character));
        }
    }

    fn name(&mut self, text: &str, kind: NameKind) {
        let mut words = match kind {
            NameKind::Url => words_of("url"),
            NameKind::Mail => words_of("email"),
            NameKind::Identifier => words_of(text),
        };
        if words.is_empty() {
            // A name without words needs a token too.
            words.push(Word::default());
        }
        let mut name = Some(text.chars().take(MAX_NAME_CHARS).collect());
        for word in words {
            self.push(word, WordUse::Mentioned, name.take());
        }
    }

    fn words(&mut self, text: &str, usage: WordUse) {
        let is_abbreviation = !self.is_shouted && is_abbreviation(text);
        // A chunk may contain punctuation without a space after it.
        for part in text.split_inclusive(|it: char| break_of(it) != Break::None) {
            for word in words_of(part) {
                self.push(word, usage, None);
                if let Some(token) = self.tokens.last_mut() {
                    token.is_abbreviation = is_abbreviation;
                }
            }
            let last = part.chars().next_back();
            self.note_break(last.map_or(Break::None, break_of));
        }
    }

    fn push(&mut self, word: Word, usage: WordUse, name: Option<String>) {
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

/// Returns whether a word is written as an abbreviation: `API`, `S3`.
fn is_abbreviation(text: &str) -> bool {
    let mut letters = text.bytes();
    (2..=8).contains(&text.len())
        && letters.next().is_some_and(|it| it.is_ascii_uppercase())
        && letters.all(|it| it.is_ascii_uppercase() || it.is_ascii_digit())
}

/// The kind of a name in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Url,
    Mail,
    Identifier,
}

impl NameKind {
    /// Returns the kind of name of a chunk. `bare` is the chunk without the punctuation around it.
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

/// Returns whether a name in mixed case is a word of the lexicon, like `GitHub`.
fn is_known(text: &str, lexicon: &Lexicon) -> bool {
    lexicon.find(&words_of(&text.to_lowercase())).is_some()
}
