//! The tools of a catalog, ranked for a query.

mod scoring;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::document::ToolText;
use super::fusion::RankFusion;
use super::history::{HistoryWeights, UsageHistory};
use super::lexical::{LexicalIndex, ToolTerms, as_f64};
use super::query::Query;
use super::semantic::{Centre, SemanticIndex, ToolVectors};
use super::slots::Taken;
use crate::tool::{ToolKey, ToolRef};

/// A tool as it is indexed: its texts, read once for a content.
#[derive(Clone, Debug)]
pub struct IndexedTool {
    tool: ToolRef,
    key: ToolKey,
    analysed: Arc<Analysed>,
}

#[derive(Debug)]
struct Analysed {
    text: ToolText,
    content_hash: String,
    terms: ToolTerms,
    taken: Taken,
}

impl IndexedTool {
    /// Reads the texts of a tool.
    #[must_use]
    pub fn new(tool: ToolRef, text: ToolText) -> Self {
        Self {
            key: tool.key(),
            tool,
            analysed: Arc::new(Analysed {
                content_hash: text.content_hash(),
                terms: ToolTerms::new(&text),
                taken: Taken::new(&text),
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

    /// Returns what was read of it.
    #[must_use]
    pub fn text(&self) -> &ToolText {
        &self.analysed.text
    }

    /// Returns what identifies its texts; see [`ToolText::content_hash`].
    #[must_use]
    pub fn content_hash(&self) -> &str {
        &self.analysed.content_hash
    }
}

/// How tools are ranked. Weights are finite; zero switches a term off.
#[derive(Clone, Debug, PartialEq)]
pub struct RankingRules {
    /// Fuse ranks in place of scores.
    pub rank_fusion: Option<RankFusion>,
    /// What a standard deviation of the cosine over the catalog adds to the score.
    pub meaning: f64,
    /// What a synonym counts of the word itself.
    pub synonyms: f64,
    /// What is added for a tool that takes the URL, the path or the file that the query names.
    pub slots: f64,
    /// What the tools of a server whose other tools fit get added, from the sixth place on.
    pub server: f64,
    /// The terms of the history.
    pub history: HistoryWeights,
}

impl Default for RankingRules {
    fn default() -> Self {
        Self {
            rank_fusion: None,
            meaning: 0.12,
            synonyms: 0.5,
            slots: 0.06,
            server: 0.1,
            history: HistoryWeights::default(),
        }
    }
}

/// A part of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Term {
    /// The words of the query that the tool has.
    Words,
    /// How near the text of the tool is in meaning.
    Meaning,
    /// It takes the kind of thing that the query names.
    Slots,
    /// It was used after similar texts.
    Memory,
    /// It is used together with the best hits, or with what the session used.
    Companions,
    /// It is called often.
    Frequency,
    /// Other tools of its server fit.
    Server,
    /// Operators point at it: with a note that fits, or by pinning it.
    Curated,
}

impl Term {
    /// All parts, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Words,
        Self::Meaning,
        Self::Slots,
        Self::Memory,
        Self::Companions,
        Self::Frequency,
        Self::Server,
        Self::Curated,
    ];

    /// Returns the name under which the part is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Meaning => "meaning",
            Self::Slots => "slots",
            Self::Memory => "memory",
            Self::Companions => "companions",
            Self::Frequency => "frequency",
            Self::Server => "server",
            Self::Curated => "curated",
        }
    }
}

/// A tool at its place in a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The position of the tool in the index.
    pub position: usize,
    /// Its score: the sum of the terms.
    pub score: f64,
    /// What the score is made of; parts that are zero are left out.
    pub terms: Vec<(Term, f64)>,
    /// The share of the query's words that the tool covers, from 0 to 1.
    pub coverage: f64,
    /// The cosine with the query; `None` where no model has a vector of both.
    pub cosine: Option<f64>,
}

/// What was used before, for a ranking that takes it into account.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// What is known.
    pub history: &'a UsageHistory,
    /// The tools that the session has used.
    pub session_tools: &'a [ToolKey],
    /// The time of the query.
    pub now: Timestamp,
    /// A source of the history that is left out.
    pub without: Option<u64>,
}

/// The tools of a catalog with their words and, where an encoder was there, their vectors. It is
/// not changed: another catalog has another index, made of the same [`IndexedTool`]s. Clones share
/// what they hold.
#[derive(Clone, Debug)]
pub struct ToolIndex {
    words: Arc<Words>,
    /// The vectors of each model, the most telling one first.
    semantic: Vec<Arc<SemanticIndex>>,
}

/// What an index knows without vectors.
#[derive(Debug)]
struct Words {
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
        let words = Words {
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

    /// Returns the index with the vectors that a model made of the tools, in their order, centred
    /// by `centre`. Vectors of another number than there are tools are left out. Models count in
    /// the order in which they are added: see [`Self::rank`].
    #[must_use]
    pub fn with_vectors(&self, model: &str, vectors: &[ToolVectors], centre: &Centre) -> Self {
        let mut semantic = self.semantic.clone();
        if vectors.len() == self.tools().len() {
            semantic.push(Arc::new(SemanticIndex::new(model, vectors, centre)));
        }
        Self {
            words: Arc::clone(&self.words),
            semantic,
        }
    }

    /// Returns the index with the vectors of another one over the same tools added to its own.
    #[must_use]
    pub fn with_vectors_of(mut self, other: &Self) -> Self {
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
    /// Where tools and query have vectors of several models, the cosine is their weighted mean:
    /// each further model counts half as much as the one before it. A model whose vectors have
    /// another dimension than that of the query does not count. A tool of which a model has no
    /// vector is as near by that model as its other tools are in the mean.
    #[must_use]
    pub fn rank(
        &self,
        query: &Query,
        rules: &RankingRules,
        past: Option<Past<'_>>,
        limit: usize,
    ) -> Vec<Hit> {
        let coverage = self.words.lexical.coverage(&query.terms, rules.synonyms).of;
        let nearness = self.nearness(query);
        let parts = self.parts(query, rules, (&coverage, &nearness.cosines), past);
        let mut hits = self.best(parts, rules, limit);
        for hit in &mut hits {
            hit.coverage = coverage[hit.position];
            hit.cosine = nearness.of(hit.position);
        }
        hits
    }

    /// Returns how near each tool is to the query.
    fn nearness(&self, query: &Query) -> Nearness {
        let mut nearness = Nearness::default();
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

/// How near the tools are to a query.
#[derive(Debug, Default)]
struct Nearness {
    /// The cosine of each tool; empty without a model that both have.
    cosines: Vec<f64>,
    /// Whether any model has a vector of the tool.
    is_known: Vec<bool>,
}

impl Nearness {
    fn of(&self, position: usize) -> Option<f64> {
        let is_known = self
            .is_known
            .get(position)
            .is_some_and(|is_known| *is_known);
        self.cosines.get(position).copied().filter(|_| is_known)
    }

    /// Adds what a model says, with their mean where it has no vector.
    fn add(&mut self, cosines: &[Option<f64>], weight: f64) {
        let known = cosines.iter().flatten();
        let n_known = as_f64(known.clone().count().max(1));
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
