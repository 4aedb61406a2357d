//! Quality of an answer, estimated from the answer itself.

use serde::Deserialize;
#[cfg(feature = "validator")]
use validator::{Validate, ValidationError};

use super::index::SearchHit;
#[cfg(feature = "validator")]
use crate::num::check_share;
use crate::num::to_f64;
use crate::retrieval::search::SearchQuality;

/// The rules for grading an answer: the weights of its properties, and the bounds of the grades.
///
/// The weights sum to 1, so that the mark of an answer is between 0 and 1.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(feature = "validator", derive(Validate))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "validator", validate(schema(function = "check_rules")))]
pub struct QualityRules {
    /// The weight of the fit of the first hit.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub top: f64,
    /// The weight of the mean fit of the first five hits.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub mean: f64,
    /// The weight of the number of hits; five are enough.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub count: f64,
    /// The weight of recent use of one of the first five hits after a similar text. It counts at
    /// least as much as the fit of the first hit.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub recency: f64,
    /// The weight of the spread of the fits: the first hit stands out from the others.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub variance: f64,
    /// The minimum mark of high quality.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub high: f64,
    /// The minimum mark of medium quality. An answer below it has low quality.
    #[cfg_attr(feature = "validator", validate(custom(function = "check_share")))]
    pub low: f64,
}

impl Default for QualityRules {
    fn default() -> Self {
        Self {
            top: 0.40,
            mean: 0.25,
            count: 0.20,
            recency: 0.10,
            variance: 0.05,
            high: 0.8,
            low: 0.5,
        }
    }
}

#[cfg(feature = "validator")]
fn check_rules(rules: &QualityRules) -> Result<(), ValidationError> {
    let sum = rules.top + rules.mean + rules.count + rules.recency + rules.variance;
    let message = if (sum - 1.0).abs() > 1e-6 {
        format!("top, mean, count, recency and variance must add up to 1, not {sum}")
    } else if rules.low > rules.high {
        let (low, high) = (rules.low, rules.high);
        format!("low ({low}) must not be greater than high ({high})")
    } else {
        return Ok(());
    };
    Err(ValidationError::new("quality").with_message(message.into()))
}

/// The number of first hits that are graded.
const N_JUDGED: usize = 5;

/// Returns the mark of an answer, from 0 to 1, and its grade. Without hits the mark is 0.
#[must_use]
pub fn grade_answer(hits: &[SearchHit], rules: &QualityRules) -> (f64, SearchQuality) {
    let first = &hits[..hits.len().min(N_JUDGED)];
    if first.is_empty() {
        return (0.0, SearchQuality::Low);
    }
    let fits: Vec<f64> = first.iter().map(fit_probability).collect();
    let n = to_f64(fits.len());
    let mean = fits.iter().sum::<f64>() / n;
    let variance = fits.iter().map(|fit| (fit - mean).powi(2)).sum::<f64>() / n;
    let recency = first.iter().map(memory_term).fold(fits[0], f64::max);
    let mark = rules.top * fits[0]
        + rules.mean * mean
        + rules.count * n / to_f64(N_JUDGED)
        + rules.recency * recency
        // A standard deviation of one quarter counts in full.
        + rules.variance * (variance.sqrt() * 4.0).min(1.0);
    let quality = if mark >= rules.high {
        SearchQuality::High
    } else if mark < rules.low {
        SearchQuality::Low
    } else {
        SearchQuality::Medium
    };
    (mark, quality)
}

/// Returns the fit of a hit, from 0 to 1: the probability that it is the right tool, from the share
/// `c` of the query's words that it covers and from its cosine.
///
/// This is a logistic regression over answers to queries with known right tools, and to queries of
/// other catalogs, for which no tool is right: `1 / (1 + exp(6.9 - 11.7 cos - 8.6 sqrt(c)))`, and
/// `1 / (1 + exp(4.2 - 14 sqrt(c)))` without vectors.
#[must_use]
pub fn fit_probability(hit: &SearchHit) -> f64 {
    let words = hit.coverage.clamp(0.0, 1.0).sqrt();
    let evidence = match hit.cosine {
        None => 14.0 * words - 4.2,
        Some(cosine) => 11.7 * cosine.clamp(-1.0, 1.0) + 8.6 * words - 6.9,
    };
    1.0 / (1.0 + (-evidence).exp())
}

fn memory_term(hit: &SearchHit) -> f64 {
    let mut terms = hit.terms.iter();
    let found = terms.find(|(term, _)| *term == super::index::RankingTerm::Memory);
    found.map_or(0.0, |(_, value)| value.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(coverage: f64, cosine: Option<f64>) -> SearchHit {
        SearchHit {
            position: 0,
            score: 1.0,
            terms: Vec::new(),
            coverage,
            cosine,
        }
    }

    #[test]
    fn answers_are_graded_by_how_well_their_hits_fit() {
        let rules = QualityRules::default();
        let of = |hits: &[SearchHit]| grade_answer(hits, &rules);
        assert_eq!(of(&[]), (0.0, SearchQuality::Low));
        let good = vec![hit(0.3, Some(0.6)); 5];
        assert_eq!(of(&good).1, SearchQuality::High);
        assert_eq!(of(&vec![hit(0.0, Some(0.1)); 5]).1, SearchQuality::Low);
        assert_eq!(of(&good[..1]).1, SearchQuality::Medium, "one hit is few");
    }

    #[test]
    fn nearer_and_better_covered_hits_fit_better() {
        assert!(fit_probability(&hit(0.1, Some(0.5))) > fit_probability(&hit(0.1, Some(0.3))));
        assert!(fit_probability(&hit(0.2, None)) > fit_probability(&hit(0.1, None)));
        assert!(
            fit_probability(&hit(0.0, None)) < 0.02 && fit_probability(&hit(1.0, Some(1.0))) > 0.99
        );
    }
}
