//! Search queries.

use std::collections::HashSet;

use super::lexical::QueryTerm;
use super::slots::{QuerySlot, slots_of};
use super::synonyms::Synonyms;
use super::words::words;
use crate::retrieval::embedding::Embedding;

/// The text of a search, analysed once.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub(super) terms: Vec<QueryTerm>,
    pub(super) slots: Vec<QuerySlot>,
    /// Vectors of the text, one for each model.
    pub(super) vectors: Vec<Embedding>,
}

impl Query {
    /// The maximum number of bytes that are read of a text. Queries for a tool are shorter.
    pub const MAX_BYTES: usize = 16 * 1024;
    /// The maximum number of different terms.
    const MAX_TERMS: usize = 512;

    /// Analyses a text.
    #[must_use]
    pub fn new(text: &str, synonyms: &Synonyms) -> Self {
        let text = Self::readable_part(text);
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

    /// Adds the centred vector that an encoder made of the text. The history compares its texts
    /// with the vector of the same model.
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
    pub fn readable_part(text: &str) -> &str {
        let mut end = text.len().min(Self::MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        &text[..end]
    }

    /// Returns whether the text has no terms.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}
