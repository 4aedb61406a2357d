//! Parser for one line of a lexicon.

use std::collections::HashMap;

use super::word::{Spelling, is_of_word, words_of};
use super::{ActionAccess, Lexicon, Meaning};

/// The reason for which the text of a lexicon is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LexiconError {
    /// There is no `:` between the kind and the words.
    #[error("line {line}: expected `KIND NAME: WORD …`")]
    NoColon {
        /// The line, from 1.
        line: usize,
    },
    /// The line begins with an unknown kind.
    #[error(
        "line {line}: unknown kind {kind:?}: expected action, domain, term, negation, clause, \
         determiner, relative or aside"
    )]
    UnknownKind {
        /// The line, from 1.
        line: usize,
        /// The unknown kind.
        kind: String,
    },
    /// The kind takes another number of names, or the name has invalid characters.
    #[error(
        "line {line}: expected `action NAME ACCESS`, `domain NAME`, `term`, `term NAME` or a kind \
         without a name, got {text:?}; names have lower-case letters, digits, _ and -"
    )]
    Head {
        /// The line, from 1.
        line: usize,
        /// The text before the colon.
        text: String,
    },
    /// The access of an action is not known.
    #[error("line {line}: unknown access {access:?}: expected read, write or neither")]
    UnknownAccess {
        /// The line, from 1.
        line: usize,
        /// The unknown access.
        access: String,
    },
    /// A new action has no access.
    #[error("line {line}: a new action needs read, write or neither after its name")]
    NoAccess {
        /// The line, from 1.
        line: usize,
    },
    /// Two lines of a text give different accesses to an action.
    #[error("line {line}: another line gives this action another access")]
    TwoAccesses {
        /// The line, from 1.
        line: usize,
    },
    /// A line has no words.
    #[error("line {line}: no words after the colon")]
    NoWords {
        /// The line, from 1.
        line: usize,
    },
    /// A line has too many words.
    #[error("line {line}: expected at most {max} words", max = Lexicon::MAX_WORDS)]
    Large {
        /// The line, from 1.
        line: usize,
    },
    /// A word is neither a single word nor words joined by `_`.
    #[error(
        "line {line}: {word:?} must be one word, or up to {max} words joined by _",
        max = Lexicon::MAX_PHRASE
    )]
    NotAWord {
        /// The line, from 1.
        line: usize,
        /// The invalid word.
        word: String,
    },
    /// A text assigns a word to two actions.
    #[error("line {line}: {word:?} is already a word of the action {action:?}")]
    TwoActions {
        /// The line, from 1.
        line: usize,
        /// The word, without marks.
        word: String,
        /// The other action.
        action: String,
    },
}

/// The actions that the text itself defines.
#[derive(Debug, Default)]
pub(super) struct OwnActions {
    pub(super) words: HashMap<Vec<Spelling>, usize>,
    pub(super) access: HashMap<usize, ActionAccess>,
}

/// The kind of a line, with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind<'a> {
    Action(&'a str, Option<ActionAccess>),
    Domain(&'a str),
    Term(Option<&'a str>),
    Negation,
    Clause,
    Determiner,
    Relative,
    Aside,
}

/// The meaning that a line gives to its words.
#[derive(Debug)]
pub(super) enum LineMeaning {
    Action(usize),
    Term(Option<String>),
    One(Meaning),
}

impl LineMeaning {
    pub(super) fn meaning(&self, written: &str, is_past: IsPast) -> Meaning {
        match (self, is_past) {
            (Self::Action(at), IsPast::Yes) => Meaning::PastAction(*at),
            (Self::Action(at), IsPast::No) => Meaning::Action(*at),
            (Self::Term(name), _) => Meaning::Term(name.as_deref().unwrap_or(written).to_owned()),
            (Self::One(meaning), _) => meaning.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsPast {
    Yes,
    No,
}

/// A word or a phrase of a line.
#[derive(Debug)]
pub(super) struct LexiconPhrase {
    pub(super) words: Vec<Spelling>,
    pub(super) is_past: IsPast,
    /// The text without marks, with spaces between words.
    pub(super) written: String,
}

#[derive(Debug)]
pub(super) struct LexiconLine<'a> {
    pub(super) section: LineKind<'a>,
    pub(super) phrases: Vec<LexiconPhrase>,
}

impl<'a> LexiconLine<'a> {
    /// Parses a line; `None` for an empty line or a comment.
    pub(super) fn read(text: &'a str, line: usize) -> Result<Option<Self>, LexiconError> {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(None);
        }
        let Some((head, words)) = text.split_once(':') else {
            return Err(LexiconError::NoColon { line });
        };
        let section = section(head, line)?;
        let mut phrases = Vec::new();
        for word in words.split_whitespace() {
            phrases.push(phrase(word, line)?);
        }
        match phrases.len() {
            0 => Err(LexiconError::NoWords { line }),
            n if n > Lexicon::MAX_WORDS => Err(LexiconError::Large { line }),
            _ => Ok(Some(Self { section, phrases })),
        }
    }
}

fn section(head: &str, line: usize) -> Result<LineKind<'_>, LexiconError> {
    let wrong = || LexiconError::Head {
        line,
        text: head.trim().to_owned(),
    };
    let mut parts = head.split_whitespace();
    let kind = parts.next().unwrap_or_default();
    let (name, access, end) = (parts.next(), parts.next(), parts.next());
    let is_plain = |name: &str| {
        let is_of_name =
            |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'_' | b'-');
        name.bytes().all(is_of_name)
    };
    if end.is_some() || !name.is_none_or(is_plain) {
        return Err(wrong());
    }
    let access = match access {
        None => None,
        Some("read") => Some(ActionAccess::Read),
        Some("write") => Some(ActionAccess::Write),
        Some("neither") => Some(ActionAccess::Neither),
        Some(other) if kind == "action" => {
            let access = other.to_owned();
            return Err(LexiconError::UnknownAccess { line, access });
        }
        Some(_) => return Err(wrong()),
    };
    match (kind, name, access) {
        ("action", Some(name), access) => Ok(LineKind::Action(name, access)),
        ("domain", Some(name), None) => Ok(LineKind::Domain(name)),
        ("term", name, None) => Ok(LineKind::Term(name)),
        ("negation", None, None) => Ok(LineKind::Negation),
        ("clause", None, None) => Ok(LineKind::Clause),
        ("determiner", None, None) => Ok(LineKind::Determiner),
        ("relative", None, None) => Ok(LineKind::Relative),
        ("aside", None, None) => Ok(LineKind::Aside),
        (
            "action" | "domain" | "term" | "negation" | "clause" | "determiner" | "relative"
            | "aside",
            ..,
        ) => Err(wrong()),
        (kind, ..) => {
            let kind = kind.to_owned();
            Err(LexiconError::UnknownKind { line, kind })
        }
    }
}

fn phrase(text: &str, line: usize) -> Result<LexiconPhrase, LexiconError> {
    let (is_exact, is_past, bare) = match (text.strip_prefix('='), text.strip_prefix('~')) {
        (Some(bare), _) => (true, IsPast::No, bare),
        (None, Some(bare)) => (false, IsPast::Yes, bare),
        (None, None) => (false, IsPast::No, text),
    };
    let mut words = Vec::new();
    for part in bare.split('_') {
        let read = words_of(part);
        // In a script without spaces between words, each character of a part is a word.
        let is_one = read.len() == 1 || (read.len() > 1 && !part.is_ascii());
        let is_whole = part.chars().all(is_of_word);
        if !is_one || !is_whole {
            words.clear();
            break;
        }
        words.extend(read.into_iter().map(|word| {
            if is_exact {
                Spelling::Exact(word.plain.to_string())
            } else {
                Spelling::Stem(word.stem.to_string())
            }
        }));
    }
    if words.is_empty() || words.len() > Lexicon::MAX_PHRASE {
        let word = text.to_owned();
        return Err(LexiconError::NotAWord { line, word });
    }
    Ok(LexiconPhrase {
        words,
        is_past,
        written: bare.replace('_', " ").to_lowercase(),
    })
}
