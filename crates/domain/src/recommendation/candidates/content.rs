//! Meanings of the texts of a tool: its actions, domains and technical terms.

use std::sync::Arc;

use crate::recommendation::lexicon::{Lexicon, Meaning, Word, WordReader};
use crate::retrieval::ToolText;

/// The maximum number of words that are read of a text.
const MAX_WORDS: usize = 64;
/// The maximum number of parameters whose names are read.
const MAX_PARAMETERS: usize = 16;

/// The meanings of the texts of a tool. Nothing repeats.
#[derive(Debug, Default)]
pub(super) struct ToolMeanings {
    /// The actions in its name, its title and its first sentence.
    pub(super) actions: Vec<Arc<str>>,
    /// The domains in these texts and in the name of its server.
    pub(super) domains: Vec<Arc<str>>,
    /// The technical terms in these texts and in the names of its parameters.
    pub(super) terms: Vec<Arc<str>>,
    /// The stems of all of its words.
    pub(super) words: Vec<Arc<str>>,
    /// The actions in its name only.
    pub(super) own_actions: Vec<Arc<str>>,
    /// The domains in the names of its server and of itself only.
    pub(super) own_domains: Vec<Arc<str>>,
    /// The technical terms in the names of its server and of itself.
    pub(super) own_terms: Vec<Arc<str>>,
}

/// Reads tools. Words that several tools have are analysed once.
pub(super) struct ToolTextReader<'a> {
    lexicon: &'a Lexicon,
    reader: WordReader,
}

/// The part of a tool that a text belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextPart {
    Server,
    Name,
    Summary,
    Parameter,
}

impl<'a> ToolTextReader<'a> {
    pub(super) fn new(lexicon: &'a Lexicon) -> Self {
        Self {
            lexicon,
            reader: WordReader::default(),
        }
    }

    pub(super) fn of(&mut self, tool: &ToolText) -> ToolMeanings {
        let mut told = ToolMeanings::default();
        self.read(&tool.server, TextPart::Server, &mut told);
        self.read(&tool.name, TextPart::Name, &mut told);
        self.read(&tool.title, TextPart::Summary, &mut told);
        self.read(&tool.summary(), TextPart::Summary, &mut told);
        let outer = tool.parameters.iter().filter(|it| it.depth == 0);
        for parameter in outer.take(MAX_PARAMETERS) {
            self.read(&parameter.name, TextPart::Parameter, &mut told);
        }
        told
    }

    fn read(&mut self, text: &str, part: TextPart, told: &mut ToolMeanings) {
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
                self.add_meaning(meaning, part, told, word_kind(&words[at], at));
            }
            at += found.n_words;
        }
    }

    fn add_meaning(
        &self,
        meaning: &Meaning,
        part: TextPart,
        told: &mut ToolMeanings,
        kind: WordKind,
    ) {
        match meaning {
            Meaning::Action(place) if kind == WordKind::Verb => {
                let name = self.lexicon.action(*place).0;
                match part {
                    TextPart::Name => {
                        push(&mut told.own_actions, name);
                        push(&mut told.actions, name);
                    }
                    TextPart::Summary => push(&mut told.actions, name),
                    TextPart::Server | TextPart::Parameter => {}
                }
            }
            Meaning::Domain(place) => {
                let name = self.lexicon.domain(*place);
                if part != TextPart::Parameter {
                    push(&mut told.domains, name);
                }
                if matches!(part, TextPart::Server | TextPart::Name) {
                    push(&mut told.own_domains, name);
                }
            }
            Meaning::Term(name) => {
                push(&mut told.terms, name);
                if matches!(part, TextPart::Server | TextPart::Name) {
                    push(&mut told.own_terms, name);
                }
            }
            _ => {}
        }
    }
}

/// The kind of a word of an action in the text of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordKind {
    Verb,
    Thing,
}

/// After the first word, forms with `s` and past forms are things: `list_updates`.
fn word_kind(word: &Word, at: usize) -> WordKind {
    let plain = &word.plain;
    let is_plural = plain.ends_with('s') && !plain.ends_with("ss");
    if at > 0 && (is_plural || plain.ends_with("ed")) {
        WordKind::Thing
    } else {
        WordKind::Verb
    }
}

/// Adds a text unless it is already there. A linear search is fast, since a tool has few words.
fn push(all: &mut Vec<Arc<str>>, text: &str) {
    if !text.is_empty() && !all.iter().any(|it| **it == *text) {
        all.push(text.into());
    }
}
