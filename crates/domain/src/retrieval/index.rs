//! The search index: the tools of a catalog, ranked for a query.

mod scoring;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use strum::{IntoStaticStr, VariantArray};
#[cfg(feature = "validator")]
use validator::{Validate, ValidationError};

use super::document::ToolText;
use super::fusion::RankFusion;
use super::history::UsageHistory;
use super::lexical::{LexicalIndex, ToolTerms};
use super::query::Query;
use super::semantic::{SemanticIndex, ToolVectors, VectorCentre};
use super::slots::AcceptedSlots;
use crate::catalog::tool::{ToolKey, ToolRef};
#[cfg(feature = "validator")]
use crate::num::check_range;
use crate::num::to_f64;

/// A tool in an index. Its texts are analysed once.
#[derive(Clone, Debug)]
pub struct IndexedTool {
    tool: ToolRef,
    key: ToolKey,
    analysed: Arc<AnalysedTexts>,
}

#[derive(Debug)]
struct AnalysedTexts {
    text: ToolText,
    content_hash: String,
    terms: ToolTerms,
    taken: AcceptedSlots,
}

impl IndexedTool {
    /// Analyses the texts of a tool.
    #[must_use]
    pub fn new(tool: ToolRef, text: ToolText) -> Self {
        Self {
            key: tool.key(),
            tool,
            analysed: Arc::new(AnalysedTexts {
                content_hash: text.content_hash(),
                terms: ToolTerms::new(&text),
                taken: AcceptedSlots::new(&text),
                text,
            }),
        }
    }

    /// Returns the tool.
    #[must_use]
    pub fn tool(&self) -> &ToolRef {
        &self.tool
    }

    /// Returns its key.
    #[must_use]
    pub fn key(&self) -> ToolKey {
        self.key
    }

    /// Returns its texts.
    #[must_use]
    pub fn text(&self) -> &ToolText {
        &self.analysed.text
    }

    /// Returns the hash of its texts; see [`ToolText::content_hash`].
    #[must_use]
    pub fn content_hash(&self) -> &str {
        &self.analysed.content_hash
    }
}

/// The rules of a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct RankingRules {
    /// Fusion of ranks, in place of scores.
    pub rank_fusion: Option<RankFusion>,
    /// The weights of the terms of a score.
    pub weights: SearchWeights,
    /// The half-life of a text of the usage history, in days.
    pub half_life_days: f64,
}

impl Default for RankingRules {
    fn default() -> Self {
        Self {
            rank_fusion: None,
            weights: SearchWeights::default(),
            half_life_days: 30.0,
        }
    }
}

/// The subsection `search.weights` of the configuration: the maximum of each term of a score, from
/// 0 (off) to 10.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "validator", derive(Validate))]
#[serde(deny_unknown_fields, default)]
pub struct SearchWeights {
    /// The score of one standard deviation of the cosine over all tools.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub meaning: f64,
    /// The score of a synonym, as a share of the score of the word itself.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub synonyms: f64,
    /// The score of a tool that accepts the URL, path or file in the query.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub slots: f64,
    /// The score of a server with other fitting tools, from the sixth rank on.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub server: f64,
    /// The score of a tool that was used after similar texts.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub memory: f64,
    /// The score of a companion of the best hits and of the tools that the session used.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub companions: f64,
    /// The score of the most called tool.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_weight")))]
    pub frequency: f64,
}

impl Default for SearchWeights {
    fn default() -> Self {
        Self {
            meaning: 0.12,
            synonyms: 0.5,
            slots: 0.06,
            server: 0.1,
            memory: 0.4,
            companions: 0.25,
            frequency: 0.05,
        }
    }
}

/// Checks that a configured weight is a number from 0 to 10.
///
/// # Errors
///
/// Returns an error with the range for other numbers.
#[cfg(feature = "validator")]
pub fn check_weight(value: f64) -> Result<(), ValidationError> {
    check_range(value, 0.0, 10.0)
}

/// A term of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RankingTerm {
    /// The words of the query that the tool has.
    Words,
    /// The similarity of the text of the tool in meaning.
    Meaning,
    /// The tool takes the kind of value in the query.
    Slots,
    /// The tool was used after similar texts.
    Memory,
    /// The tool is used together with the best hits, or with the tools of the session.
    Companions,
    /// The tool is called often.
    Frequency,
    /// Other tools of its server fit.
    Server,
    /// Operators point at the tool: with a note that fits, or by pinning it.
    Curated,
}

impl RankingTerm {
    /// All terms, in display order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the display name of the term.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A tool at its place in a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchHit {
    /// The position of the tool in the index.
    pub position: usize,
    /// Its score: the sum of the terms.
    pub score: f64,
    /// The terms of the score. Terms that are zero are left out.
    pub terms: Vec<(RankingTerm, f64)>,
    /// The share of the query's words that the tool covers, from 0 to 1.
    pub coverage: f64,
    /// The cosine with the query; `None` if no model has a vector of both.
    pub cosine: Option<f64>,
}

/// The usage history, as an input of a ranking.
#[derive(Clone, Copy, Debug)]
pub struct RankingHistory<'a> {
    /// The history of the principal.
    pub history: &'a UsageHistory,
    /// The tools that the session has used.
    pub session_tools: &'a [ToolKey],
    /// The time of the query.
    pub now: Timestamp,
    /// A source of the history that is excluded.
    pub without: Option<u64>,
}

/// An immutable index of the tools of a catalog, with their words and, if an encoder was available,
/// their vectors. Another catalog has another index, made of the same [`IndexedTool`]s. Clones
/// share their data.
#[derive(Clone, Debug)]
pub struct ToolIndex {
    words: Arc<IndexedCatalog>,
    /// The vectors of each model, the most important model first.
    semantic: Vec<Arc<SemanticIndex>>,
}

/// The part of an index that needs no vectors.
#[derive(Debug)]
struct IndexedCatalog {
    tools: Vec<IndexedTool>,
    by_key: BTreeMap<ToolKey, usize>,
    lexical: LexicalIndex,
    server_of: Vec<usize>,
    n_servers: usize,
}

impl ToolIndex {
    /// Returns the index of these tools, without vectors.
    #[must_use]
    pub fn new(tools: Vec<IndexedTool>) -> Self {
        let mut servers: BTreeMap<&str, usize> = BTreeMap::new();
        let server_of = tools
            .iter()
            .map(|tool| {
                let n = servers.len();
                *servers.entry(tool.text().server.as_str()).or_insert(n)
            })
            .collect();
        let words = IndexedCatalog {
            lexical: LexicalIndex::new(tools.iter().map(|tool| &tool.analysed.terms)),
            n_servers: servers.len(),
            server_of,
            by_key: (tools.iter().enumerate())
                .map(|(at, tool)| (tool.key, at))
                .collect(),
            tools,
        };
        Self {
            words: Arc::new(words),
            semantic: Vec::new(),
        }
    }

    /// Returns the index with the vectors of the tools by a model, in the order of the tools,
    /// centred by `centre`. Vectors are ignored if their number is not the number of tools. Earlier
    /// added models count more: see [`Self::rank`].
    #[must_use]
    pub fn with_vectors(
        &self,
        model: &str,
        vectors: &[ToolVectors],
        centre: &VectorCentre,
    ) -> Self {
        let mut semantic = self.semantic.clone();
        if vectors.len() == self.tools().len() {
            semantic.push(Arc::new(SemanticIndex::new(model, vectors, centre)));
        }
        Self {
            words: Arc::clone(&self.words),
            semantic,
        }
    }

    /// Returns the index with the vectors of another index over the same tools added.
    #[must_use]
    pub fn with_vectors_of(mut self, other: &Self) -> Self {
        // Positions are the same only within one list of tools.
        if Arc::ptr_eq(&self.words, &other.words) {
            self.semantic.extend(other.semantic.iter().cloned());
        }
        self
    }

    /// Returns the tools in the order of their positions.
    #[must_use]
    pub fn tools(&self) -> &[IndexedTool] {
        &self.words.tools
    }

    /// Returns whether any tool has this term; see [`words`](super::words()).
    #[must_use]
    pub fn has_term(&self, term: &str) -> bool {
        self.words.lexical.has(term)
    }

    /// Returns the best `limit` tools for a query, best first; ties by position.
    ///
    /// If tools and query have vectors of several models, the cosine is their weighted mean: each
    /// further model has half the weight of the one before it. A model is ignored if its vectors
    /// have another dimension than the vector of the query. A tool without a vector of a model gets
    /// the mean cosine of the other tools.
    #[must_use]
    pub fn rank(
        &self,
        query: &Query,
        rules: &RankingRules,
        past: Option<RankingHistory<'_>>,
        limit: usize,
    ) -> Vec<SearchHit> {
        let coverage = self
            .words
            .lexical
            .coverage(&query.terms, rules.weights.synonyms)
            .of;
        let nearness = self.similarities(query);
        let parts = self.score_terms(query, rules, &coverage, &nearness.cosines, past);
        let mut hits = self.best_hits(parts, rules, limit);
        for hit in &mut hits {
            hit.coverage = coverage[hit.position];
            hit.cosine = nearness.of(hit.position);
        }
        hits
    }

    /// Returns the similarity of each tool to the query.
    fn similarities(&self, query: &Query) -> ToolSimilarities {
        let mut nearness = ToolSimilarities::default();
        let (mut weight, mut total) = (1.0, 0.0);
        for semantic in &self.semantic {
            let mut vectors = query.vectors.iter();
            let Some(vector) = vectors.find(|vector| vector.model() == semantic.model()) else {
                continue;
            };
            let cosines = semantic.cosines(vector.vector());
            if cosines.is_empty() {
                continue;
            }
            nearness.add(&cosines, weight);
            total += weight;
            weight /= 2.0;
        }
        for cosine in &mut nearness.cosines {
            *cosine /= total;
        }
        nearness
    }
}

/// The similarity of the tools to a query.
#[derive(Debug, Default)]
struct ToolSimilarities {
    /// The cosine of each tool; empty if tools and query have no model in common.
    cosines: Vec<f64>,
    /// Whether any model has a vector of the tool.
    is_known: Vec<bool>,
}

impl ToolSimilarities {
    fn of(&self, position: usize) -> Option<f64> {
        let is_known = self
            .is_known
            .get(position)
            .is_some_and(|is_known| *is_known);
        self.cosines.get(position).copied().filter(|_| is_known)
    }

    /// Adds the cosines of a model. A tool without a vector gets the mean.
    fn add(&mut self, cosines: &[Option<f64>], weight: f64) {
        let known = cosines.iter().flatten();
        let n_known = to_f64(known.clone().count().max(1));
        let mean = known.sum::<f64>() / n_known;
        self.cosines.resize(cosines.len(), 0.0);
        self.is_known.resize(cosines.len(), false);
        let sums = self.cosines.iter_mut().zip(&mut self.is_known);
        for ((sum, is_known), cosine) in sums.zip(cosines) {
            *sum += weight * cosine.unwrap_or(mean);
            *is_known |= cosine.is_some();
        }
    }
}
