//! The lexicon that maps words to actions, domains and terms, as data that operators can extend.

mod line;
#[cfg(test)]
mod tests;
mod word;

use std::collections::HashMap;

pub use line::LexiconError;
use line::{LexiconLine, LineKind, LineMeaning, OwnActions};
use word::Spelling;
pub(super) use word::{Word, WordReader, words_of};

const BUILT_IN: [&str; 4] = [
    include_str!("../../data/actions.txt"),
    include_str!("../../data/domains.txt"),
    include_str!("../../data/terms.txt"),
    include_str!("../../data/negations.txt"),
];

/// The access of an action: it reads data or changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionAccess {
    /// The action reads data.
    Read,
    /// The action changes data.
    Write,
    /// The action may do either.
    Neither,
}

/// The words for actions, domains, technical terms and negations.
///
/// The text has one group on each line, `KIND NAME: WORD WORD …`; a comment begins with `#`:
///
/// ```text
/// action find read: find ~found search look_for
/// domain code: code class source_code
/// term kubernetes: k8s
/// term: login schema
/// negation: not never instead_of
/// ```
///
/// An `action` has a name, which is canonical for its words, and an access: `read`, `write` or
/// `neither`. A later line of the same action need not repeat the access. A `domain` has a name. A
/// `term` with a name is the meaning of its words; without a name, each word is its own meaning.
/// After a `negation` the rest of its clause is not wanted; the words of `clause` begin another
/// clause. After a `determiner` an action is a thing ("the build"); after a `relative` a form with
/// `s` is a verb ("a tool that sends mail"). Words of `aside` have none of these meanings.
///
/// Words are compared by their stems, so that inflected forms match. `=WORD` is compared by its
/// exact spelling, before stems are; `~WORD` is a past form. `_` joins the words of a phrase; the
/// longest phrase wins. A word belongs to one action. It may belong to several domains, and be an
/// action, a domain and a term at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lexicon {
    actions: Vec<(String, ActionAccess)>,
    domains: Vec<String>,
    /// By the first word of each phrase, its stem or its spelling; longer phrases first.
    by_stem: HashMap<String, Vec<LexiconEntry>>,
    by_spelling: HashMap<String, Vec<LexiconEntry>>,
}

/// A word or a phrase with its meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LexiconEntry {
    /// The words after the first one.
    rest: Vec<Spelling>,
    /// The word as written in the table, without marks.
    written: String,
    meanings: Vec<Meaning>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The action at this position.
    Action(usize),
    /// The action at this position, in a past form.
    PastAction(usize),
    /// The domain at this position.
    Domain(usize),
    /// A technical term, by its name.
    Term(String),
    Negation,
    Clause,
    Determiner,
    Relative,
    Aside,
}

impl Meaning {
    fn action(&self) -> Option<usize> {
        match self {
            Self::Action(at) | Self::PastAction(at) => Some(*at),
            _ => None,
        }
    }
}

/// A phrase that was found at a position of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhraseMatch<'a> {
    /// The number of its words in the text, at least 1.
    pub(super) n_words: usize,
    /// The phrase as written in the table.
    pub(super) written: &'a str,
    pub(super) meanings: &'a [Meaning],
}

impl Lexicon {
    /// The maximum number of words on a line.
    pub const MAX_WORDS: usize = 256;
    /// The maximum number of words of a phrase.
    pub const MAX_PHRASE: usize = 6;

    /// Returns the lexicon that is built into riglm.
    #[must_use]
    pub fn built_in() -> Self {
        // A table that cannot be read is skipped, without a panic; a test checks that all can be
        // read.
        BUILT_IN.iter().fold(Self::default(), |lexicon, text| {
            lexicon.clone().with(text).unwrap_or(lexicon)
        })
    }

    /// Adds the lines of a text. Actions of words, and the accesses of actions, replace earlier
    /// ones; domains and terms of a word are added to earlier ones.
    ///
    /// # Errors
    ///
    /// Returns [`LexiconError`] with the number of the line, for a line that has another form, and
    /// for a word that the text assigns to two actions.
    pub fn with(mut self, text: &str) -> Result<Self, LexiconError> {
        let mut own = OwnActions::default();
        for (number, text) in (1..).zip(text.lines()) {
            let Some(line) = LexiconLine::read(text, number)? else {
                continue;
            };
            let target = self.target(&line, &mut own, number)?;
            for phrase in line.phrases {
                let meaning = target.meaning(&phrase.written, phrase.is_past);
                if let Some(action) = meaning.action()
                    && let Some(other) = own.words.insert(phrase.words.clone(), action)
                    && other != action
                {
                    return Err(LexiconError::TwoActions {
                        line: number,
                        word: phrase.written,
                        action: self.actions[other].0.clone(),
                    });
                }
                self.add(phrase, meaning);
            }
        }
        Ok(self)
    }

    fn target(
        &mut self,
        line: &LexiconLine<'_>,
        own: &mut OwnActions,
        number: usize,
    ) -> Result<LineMeaning, LexiconError> {
        Ok(match line.section {
            LineKind::Action(name, access) => {
                let known = self.actions.iter().position(|(it, _)| it == name);
                let at = match (known, access) {
                    (Some(at), _) => at,
                    (None, Some(access)) => {
                        self.actions.push((name.to_owned(), access));
                        self.actions.len() - 1
                    }
                    (None, None) => return Err(LexiconError::NoAccess { line: number }),
                };
                if let Some(access) = access {
                    if *own.access.entry(at).or_insert(access) != access {
                        return Err(LexiconError::TwoAccesses { line: number });
                    }
                    self.actions[at].1 = access;
                }
                LineMeaning::Action(at)
            }
            LineKind::Domain(name) => {
                let known = self.domains.iter().position(|it| it == name);
                LineMeaning::One(Meaning::Domain(known.unwrap_or_else(|| {
                    self.domains.push(name.to_owned());
                    self.domains.len() - 1
                })))
            }
            LineKind::Term(name) => LineMeaning::Term(name.map(str::to_owned)),
            LineKind::Negation => LineMeaning::One(Meaning::Negation),
            LineKind::Clause => LineMeaning::One(Meaning::Clause),
            LineKind::Determiner => LineMeaning::One(Meaning::Determiner),
            LineKind::Relative => LineMeaning::One(Meaning::Relative),
            LineKind::Aside => LineMeaning::One(Meaning::Aside),
        })
    }

    fn add(&mut self, phrase: line::LexiconPhrase, meaning: Meaning) {
        let mut words = phrase.words.into_iter();
        let Some(first) = words.next() else {
            return;
        };
        let rest: Vec<Spelling> = words.collect();
        let entries = match first {
            Spelling::Stem(stem) => self.by_stem.entry(stem),
            Spelling::Exact(word) => self.by_spelling.entry(word),
        }
        .or_default();
        let held = entries.iter_mut().find(|it| it.rest == rest);
        let Some(entry) = held else {
            let written = phrase.written;
            let meanings = vec![meaning];
            // Longer phrases first, so that the first match is the longest.
            let place = entries.partition_point(|it| it.rest.len() >= rest.len());
            entries.insert(
                place,
                LexiconEntry {
                    rest,
                    written,
                    meanings,
                },
            );
            return;
        };
        // A word belongs to one action: the newest one replaces the earlier one.
        if meaning.action().is_some() {
            entry.meanings.retain(|it| it.action().is_none());
        }
        if !entry.meanings.contains(&meaning) {
            entry.meanings.push(meaning);
        }
    }

    /// Returns the longest phrase at the beginning of these words. Of equally long phrases, an
    /// exact spelling wins over a stem.
    pub(super) fn find(&self, words: &[Word]) -> Option<PhraseMatch<'_>> {
        let first = words.first()?;
        let spelt = Self::longest(self.by_spelling.get(&*first.plain), words);
        let stemmed = Self::longest(self.by_stem.get(&*first.stem), words);
        let entry = match (spelt, stemmed) {
            (Some(spelt), Some(stemmed)) if stemmed.rest.len() > spelt.rest.len() => stemmed,
            (Some(entry), _) | (None, Some(entry)) => entry,
            (None, None) => return None,
        };
        Some(PhraseMatch {
            n_words: 1 + entry.rest.len(),
            written: &entry.written,
            meanings: &entry.meanings,
        })
    }

    fn longest<'a>(
        entries: Option<&'a Vec<LexiconEntry>>,
        words: &[Word],
    ) -> Option<&'a LexiconEntry> {
        let rest = words.get(1..)?;
        entries?.iter().find(|entry| {
            rest.len() >= entry.rest.len()
                && entry.rest.iter().zip(rest).all(|(it, word)| it.fits(word))
        })
    }

    /// Returns the name and the access of an action.
    pub(super) fn action(&self, at: usize) -> (&str, ActionAccess) {
        let (name, access) = &self.actions[at];
        (name, *access)
    }

    pub(super) fn domain(&self, at: usize) -> &str {
        &self.domains[at]
    }
}
