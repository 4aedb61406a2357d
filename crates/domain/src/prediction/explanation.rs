//! Explanations of the probability of a tool.

use serde::Serialize;

/// A named term of a score. A term with parts is their sum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreTerm {
    name: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<ScoreTerm>,
}

impl ScoreTerm {
    /// Returns a term without parts. The value is in natural logarithms of a probability.
    #[must_use]
    pub fn leaf(name: &'static str, value: f64) -> Self {
        Self {
            name,
            value,
            parts: Vec::new(),
        }
    }

    /// Returns a term whose value is the sum of the values of its parts.
    #[must_use]
    pub fn sum(name: &'static str, parts: Vec<Self>) -> Self {
        Self {
            name,
            value: parts.iter().map(|part| part.value).sum(),
            parts,
        }
    }

    /// Returns the name of the term.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the value of the term, in natural logarithms of a probability.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Returns the parts of the term; none if it is not a sum.
    #[must_use]
    pub fn parts(&self) -> &[Self] {
        &self.parts
    }
}

/// The explanation of the probability of a tool.
///
/// The value of the score is the natural logarithm of the probability, within
/// [`Self::TOLERANCE`], and the sentence is not empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub(super) probability: f64,
    pub(super) score: ScoreTerm,
    pub(super) sentence: String,
}

/// The reason for which terms and a sentence do not explain a probability.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ExplanationError {
    /// The probability is not a number from 0 to 1.
    #[error("probability {0} is not a number from 0 to 1")]
    Probability(f64),
    /// The score is not the logarithm of the probability.
    #[error("score {score} is not the logarithm of the probability {probability}")]
    Score {
        /// The value of the score.
        score: f64,
        /// The probability.
        probability: f64,
    },
    /// The sentence is empty.
    #[error("the sentence is empty")]
    Sentence,
}

impl Explanation {
    /// The largest accepted difference of a score from the logarithm of its probability.
    pub const TOLERANCE: f64 = 1e-6;

    /// Returns the explanation of a probability by a score, which is its natural logarithm as a
    /// tree of sums, and by the strongest reasons in words.
    ///
    /// # Errors
    ///
    /// Returns [`ExplanationError`] for a probability outside of 0 to 1, for a score that is not its
    /// logarithm, and for an empty sentence.
    pub fn new(
        probability: f64,
        score: ScoreTerm,
        sentence: impl Into<String>,
    ) -> Result<Self, ExplanationError> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(ExplanationError::Probability(probability));
        }
        let logarithm = probability.ln();
        // The logarithm of 0 is infinite, and so is the score.
        let is_same = score.value.total_cmp(&logarithm).is_eq();
        let is_near = (score.value - logarithm).abs() <= Self::TOLERANCE;
        if !is_same && !is_near {
            return Err(ExplanationError::Score {
                score: score.value,
                probability,
            });
        }
        let sentence = sentence.into();
        if sentence.is_empty() {
            return Err(ExplanationError::Sentence);
        }
        Ok(Self {
            probability,
            score,
            sentence,
        })
    }

    /// Returns the probability that the tool is called next.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.probability
    }

    /// Returns the natural logarithm of the probability, as a tree of sums.
    ///
    /// The parts of `experts` and `features` are relative to the mean over the competing tools, so
    /// that a part without information is 0. `chance` is the value of such a mean tool.
    #[must_use]
    pub fn score(&self) -> &ScoreTerm {
        &self.score
    }

    /// Returns the strongest reasons in words.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_logarithm_of_the_probability() {
        let score = |p: f64| ScoreTerm::sum("score", vec![ScoreTerm::leaf("frequency", p.ln())]);
        for p in [0.0, 0.25, 1.0] {
            let explanation = Explanation::new(p, score(p), "called often").unwrap();
            assert_eq!(explanation.score().parts().len(), 1);
        }
        assert!(matches!(
            Explanation::new(0.25, score(0.5), "called often"),
            Err(ExplanationError::Score { .. })
        ));
        assert_eq!(
            Explanation::new(1.5, score(1.5), "called often"),
            Err(ExplanationError::Probability(1.5))
        );
        assert_eq!(
            Explanation::new(0.25, score(0.25), ""),
            Err(ExplanationError::Sentence)
        );
    }
}
