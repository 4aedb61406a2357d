//! Explanations of the probability of a tool.

use serde::Serialize;

/// A named term of a score. A term with parts is their sum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreTerm {
    /// Name of the term.
    pub name: &'static str,
    /// Value of the term, in natural logarithms of a probability.
    pub value: f64,
    /// The parts of the term; empty if it is not a sum.
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

/// The explanation of the probability of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The probability that it is called next.
    pub probability: f64,
    /// The natural logarithm of the probability, as a tree of sums. The parts of `experts` and
    /// `features` are relative to the mean over the competing tools, so that a part without
    /// information is 0. `chance` is the value of such a mean tool.
    pub score: ScoreTerm,
    /// The strongest reasons in words.
    pub sentence: String,
}
