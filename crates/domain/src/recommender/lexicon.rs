//! The words by which a text tells what is to be done, as data that operators can extend.

mod line;
#[cfg(test)]
mod tests;
mod word;

use std::collections::HashMap;

pub use line::LexiconError;
use line::{Line, OwnActions, Section, Target};
use word::Spelling;
pub(super) use word::{Word, WordReader, words_of};

const SHIPPED: [&str; 4] = [
    include_str!("../../data/actions.txt"),
    include_str!("../../data/domains.txt"),
    include_str!("../../data/terms.txt"),
    include_str!("../../data/negations.txt"),
];

/// Whether an action finds out something or changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionAccess {
    /// It finds out something.
    Read,
    /// It changes something.
    Write,
    /// It may do either.
    Neither,
}

/// Words of actions, domains and technical terms, and those that negate them.
///
/// The text has one group a line, `KIND NAME: WORD WORD …`; what follows `#` is a comment:
///
/// ```text
/// action find read: find ~found search look_for
/// domain code: code class source_code
/// term kubernetes: k8s
/// term: login schema
/// negation: not never instead_of
/// ```
///
/// An `action` has a name, which is canonical for its words, and says whether it reads, writes or
/// does `neither`; an action that is known already needs not say it again. A `domain` has a name. A
/// `term` with a name is what its words stand for; without one, each word stands for itself. After
/// a `negation` what follows in its clause is not wanted; words of `clause` begin another clause.
/// Behind a `determiner` an action is a thing ("the build"), behind a `relative` a form with `s` is
/// a verb ("a tool that sends mail"). Words of `aside` stand for none of these.
///
/// Words are compared by their stems, so that inflected forms count. `=WORD` is compared as it is
/// written, before stems are; `~WORD` is a past form. `_` joins the words of a phrase; the longest
/// phrase counts. A word belongs to one action; it may belong to several domains, and be an action,
/// a domain and a term at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lexicon {
    actions: Vec<(String, ActionAccess)>,
    domains: Vec<String>,
    /// By the first word of each phrase, its stem or its spelling; longer phrases first.
    by_stem: HashMap<String, Vec<Entry>>,
    by_spelling: HashMap<String, Vec<Entry>>,
}

/// A word or a phrase with what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The words behind the first one.
    rest: Vec<Spelling>,
    /// The word as the table has it, without marks.
    written: String,
    meanings: Vec<Meaning>,
}

/// What a word stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The action at this place.
    Action(usize),
    /// The action at this place, as something past.
    PastAction(usize),
    /// The domain at this place.
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

/// What was found at a place of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    /// How many words it takes, at least 1.
    pub(super) n_words: usize,
    /// The phrase as the table has it.
    pub(super) written: &'a str,
    /// What it stands for.
    pub(super) meanings: &'a [Meaning],
}

impl Lexicon {
    /// The most words of a line.
    pub const MAX_WORDS: usize = 256;
    /// The most words of a phrase.
    pub const MAX_PHRASE: usize = 6;

    /// Returns the words that come with riglm.
    #[must_use]
    pub fn shipped() -> Self {
        SHIPPED.iter().fold(Self::default(), |lexicon, text| {
            lexicon.clone().with(text).unwrap_or(lexicon)
        })
    }

    /// Adds the lines of a text. What it says of a word or of an action's access holds in place of
    /// what was said before; domains and terms of a word add up.
    ///
    /// # Errors
    ///
    /// Returns [`LexiconError`], which names the line, for a line that is not of the form above and
    /// for a word that the text gives to two actions.
    pub fn with(mut self, text: &str) -> Result<Self, LexiconError> {
        let mut own = OwnActions::default();
        for (number, text) in (1..).zip(text.lines()) {
            let Some(line) = Line::read(text, number)? else {
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
        line: &Line<'_>,
        own: &mut OwnActions,
        number: usize,
    ) -> Result<Target, LexiconError> {
        Ok(match line.section {
            Section::Action(name, access) => {
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
                Target::Action(at)
            }
            Section::Domain(name) => {
                let known = self.domains.iter().position(|it| it == name);
                Target::One(Meaning::Domain(known.unwrap_or_else(|| {
                    self.domains.push(name.to_owned());
                    self.domains.len() - 1
                })))
            }
            Section::Term(name) => Target::Term(name.map(str::to_owned)),
            Section::Negation => Target::One(Meaning::Negation),
            Section::Clause => Target::One(Meaning::Clause),
            Section::Determiner => Target::One(Meaning::Determiner),
            Section::Relative => Target::One(Meaning::Relative),
            Section::Aside => Target::One(Meaning::Aside),
        })
    }

    fn add(&mut self, phrase: line::Phrase, meaning: Meaning) {
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
            let place = entries.partition_point(|it| it.rest.len() >= rest.len());
            entries.insert(
                place,
                Entry {
                    rest,
                    written,
                    meanings,
                },
            );
            return;
        };
        if meaning.action().is_some() {
            entry.meanings.retain(|it| it.action().is_none());
        }
        if !entry.meanings.contains(&meaning) {
            entry.meanings.push(meaning);
        }
    }

    /// Returns the longest phrase that these words begin with; a spelling comes before a stem.
    pub(super) fn find(&self, words: &[Word]) -> Option<Found<'_>> {
        let first = words.first()?;
        let spelt = Self::longest(self.by_spelling.get(&*first.plain), words);
        let stemmed = Self::longest(self.by_stem.get(&*first.stem), words);
        let entry = match (spelt, stemmed) {
            (Some(spelt), Some(stemmed)) if stemmed.rest.len() > spelt.rest.len() => stemmed,
            (Some(entry), _) | (None, Some(entry)) => entry,
            (None, None) => return None,
        };
        Some(Found {
            n_words: 1 + entry.rest.len(),
            written: &entry.written,
            meanings: &entry.meanings,
        })
    }

    fn longest<'a>(entries: Option<&'a Vec<Entry>>, words: &[Word]) -> Option<&'a Entry> {
        let rest = words.get(1..)?;
        entries?.iter().find(|entry| {
            rest.len() >= entry.rest.len()
                && entry.rest.iter().zip(rest).all(|(it, word)| it.fits(word))
        })
    }

    /// Returns the name of an action and whether it changes something.
    pub(super) fn action(&self, at: usize) -> (&str, ActionAccess) {
        let (name, access) = &self.actions[at];
        (name, *access)
    }

    /// Returns the name of a domain.
    pub(super) fn domain(&self, at: usize) -> &str {
        &self.domains[at]
    }
}
