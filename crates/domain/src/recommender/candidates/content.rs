//! What the texts of a tool say that it does and is about.

use std::sync::Arc;

use crate::recommender::lexicon::{Lexicon, Meaning, Word, WordReader};
use crate::retrieval::ToolText;

/// The most words of a text that are read.
const MAX_WORDS: usize = 64;
/// The most parameters whose names are read.
const MAX_PARAMETERS: usize = 16;

/// What a tool says of itself. Nothing repeats.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What it does, by its name, its title and its first sentence.
    pub(super) actions: Vec<Arc<str>>,
    /// What it is about, by these and its server.
    pub(super) domains: Vec<Arc<str>>,
    /// Its technical terms, by these and its parameters.
    pub(super) terms: Vec<Arc<str>>,
    /// The stems of all of its words.
    pub(super) words: Vec<Arc<str>>,
    /// What it does by its name alone.
    pub(super) own_actions: Vec<Arc<str>>,
    /// What it is about by its server and its name alone.
    pub(super) own_domains: Vec<Arc<str>>,
    /// The technical terms of its server and its name.
    pub(super) own_terms: Vec<Arc<str>>,
}

/// Reads tools; words that several have are read once.
pub(super) struct Contents<'a> {
    lexicon: &'a Lexicon,
    reader: WordReader,
}

/// Which text of a tool it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Server,
    Name,
    Summary,
    Parameter,
}

impl<'a> Contents<'a> {
    pub(super) fn new(lexicon: &'a Lexicon) -> Self {
        Self {
            lexicon,
            reader: WordReader::default(),
        }
    }

    pub(super) fn of(&mut self, tool: &ToolText) -> Told {
        let mut told = Told::default();
        self.read(&tool.server, Part::Server, &mut told);
        self.read(&tool.name, Part::Name, &mut told);
        self.read(&tool.title, Part::Summary, &mut told);
        self.read(&tool.summary(), Part::Summary, &mut told);
        let outer = tool.parameters.iter().filter(|it| it.depth == 0);
        for parameter in outer.take(MAX_PARAMETERS) {
            self.read(&parameter.name, Part::Parameter, &mut told);
        }
        told
    }

    fn read(&mut self, text: &str, part: Part, told: &mut Told) {
        let words = self.reader.words_of(text, MAX_WORDS);
        for word in &words {
            if !word.stem.is_empty() && !told.words.contains(&word.stem) {
                told.words.push(Arc::clone(&word.stem));
            }
        }
        let mut at = 0;
        while at < words.len() {
            let rest = &words[at..words.len().min(at + Lexicon::MAX_PHRASE)];
            let Some(found) = self.lexicon.find(rest) else {
                at += 1;
                continue;
            };
            for meaning in found.meanings {
                self.take(meaning, part, told, is_thing(&words[at], at));
            }
            at += found.n_words;
        }
    }

    fn take(&self, meaning: &Meaning, part: Part, told: &mut Told, kind: Kind) {
        match meaning {
            Meaning::Action(place) if kind == Kind::Verb => {
                let name = self.lexicon.action(*place).0;
                match part {
                    Part::Name => {
                        push(&mut told.own_actions, name);
                        push(&mut told.actions, name);
                    }
                    Part::Summary => push(&mut told.actions, name),
                    Part::Server | Part::Parameter => {}
                }
            }
            Meaning::Domain(place) => {
                let name = self.lexicon.domain(*place);
                if part != Part::Parameter {
                    push(&mut told.domains, name);
                }
                if matches!(part, Part::Server | Part::Name) {
                    push(&mut told.own_domains, name);
                }
            }
            Meaning::Term(name) => {
                push(&mut told.terms, name);
                if matches!(part, Part::Server | Part::Name) {
                    push(&mut told.own_terms, name);
                }
            }
            _ => {}
        }
    }
}

/// Whether a word of an action may be one in the text of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Verb,
    Thing,
}

/// Behind the beginning, forms with `s` and past forms are things: `list_updates`.
fn is_thing(word: &Word, at: usize) -> Kind {
    let plain = &word.plain;
    let is_plural = plain.ends_with('s') && !plain.ends_with("ss");
    if at > 0 && (is_plural || plain.ends_with("ed")) {
        Kind::Thing
    } else {
        Kind::Verb
    }
}

/// Adds a text that is not there yet. A tool has few words: looking through them is fast.
fn push(all: &mut Vec<Arc<str>>, text: &str) {
    if !text.is_empty() && !all.iter().any(|it| **it == *text) {
        all.push(text.into());
    }
}
