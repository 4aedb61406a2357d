//! What is looked for.

use std::collections::HashSet;

use super::lexical::QueryTerm;
use super::slots::{Slot, slots_of};
use super::synonyms::Synonyms;
use super::words::words;
use crate::embedding::Embedding;

/// A text that tools are looked for with, read once.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(super) terms: Vec<QueryTerm>,
    pub(super) slots: Vec<Slot>,
    /// Vectors of the text, of one model each.
    pub(super) vectors: Vec<Embedding>,
}

impl Query {
    /// The most of a text that is read, in bytes. Nobody asks for a tool in more.
    pub const MAX_BYTES: usize = 16 * 1024;
    /// The most different terms that count.
    const MAX_TERMS: usize = 512;

    /// Reads a text.
    #[must_use]
    pub fn new(text: &str, synonyms: &Synonyms) -> Self {
        let text = Self::cut(text);
        let mut seen = HashSet::new();
        let different = words(text)
            .into_iter()
            .filter(|term| seen.insert(term.clone()));
        let terms = different
            .take(Self::MAX_TERMS)
            .map(|term| QueryTerm {
                synonyms: synonyms.of(&term).to_vec(),
                term,
            })
            .collect();
        Self {
            terms,
            slots: slots_of(text),
            vectors: Vec::new(),
        }
    }

    /// Adds the vector that an encoder made of the text, centred. The first one is what memories
    /// are compared by, where they have one of its model.
    #[must_use]
    pub fn with_vector(mut self, vector: Embedding) -> Self {
        self.vectors.push(vector);
        self
    }

    /// Returns the vectors of the text, centred, in the order in which they were added.
    #[must_use]
    pub fn vectors(&self) -> &[Embedding] {
        &self.vectors
    }

    /// Returns the beginning of a text, as much of it as is read.
    #[must_use]
    pub fn cut(text: &str) -> &str {
        let mut end = text.len().min(Self::MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        &text[..end]
    }

    /// Returns whether there is nothing in the text to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}
