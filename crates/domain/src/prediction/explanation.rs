//! Why a tool has its probability.

use serde::Serialize;

/// A named part of a score; a part that is made of others is their sum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreTerm {
    /// What the part is of.
    pub name: &'static str,
    /// What it adds, in natural logarithms of a probability.
    pub value: f64,
    /// What it is made of; empty where that is no sum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<ScoreTerm>,
}

impl ScoreTerm {
    pub(super) fn leaf(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            parts: Vec::new(),
        }
    }

    pub(super) fn sum(name: &'static str, parts: Vec<Self>) -> Self {
        Self {
            name,
            value: parts.iter().map(|part| part.value).sum(),
            parts,
        }
    }
}

/// Why a tool has its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The probability that it is called next.
    pub probability: f64,
    /// The natural logarithm of the probability, as a tree of sums. The parts of `experts` and
    /// `features` are relative to the mean over the tools that the tool competes with, so that
    /// what says nothing adds nothing; `chance` is what such a mean tool has.
    pub score: ScoreTerm,
    /// The strongest reasons in words.
    pub sentence: String,
}
