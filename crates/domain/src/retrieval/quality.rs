//! How good an answer is, as far as the answer itself can tell.

use super::index::Hit;
use super::lexical::as_f64;
use crate::search::SearchQuality;

/// How an answer is graded: the weights of what it is judged by, and the bounds of the grades.
///
/// The weights add up to 1, so that the mark of an answer lies between 0 and 1.
#[derive(Clone, Debug, PartialEq)]
pub struct QualityRules {
    /// How well the first hit fits.
    pub top: f64,
    /// How well the first five fit on average.
    pub mean: f64,
    /// How many hits there are, five being enough.
    pub count: f64,
    /// How recently one of the first five was used after a similar text; how well the first one
    /// fits, where none was.
    pub recency: f64,
    /// How far the first hit stands out from the others.
    pub variance: f64,
    /// An answer with this mark or a better one is of high quality.
    pub high: f64,
    /// An answer with a mark below this is of low quality.
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

/// How many of the first hits are judged.
const N_JUDGED: usize = 5;

/// Returns the mark of an answer, from 0 to 1, and its grade. Without hits the mark is 0.
#[must_use]
pub fn grade(hits: &[Hit], rules: &QualityRules) -> (f64, SearchQuality) {
    let first = &hits[..hits.len().min(N_JUDGED)];
    if first.is_empty() {
        return (0.0, SearchQuality::Low);
    }
    let fits: Vec<f64> = first.iter().map(fit).collect();
    let n = as_f64(fits.len());
    let mean = fits.iter().sum::<f64>() / n;
    let variance = fits.iter().map(|fit| (fit - mean).powi(2)).sum::<f64>() / n;
    let recency = first.iter().map(remembered).fold(fits[0], f64::max);
    let mark = rules.top * fits[0]
        + rules.mean * mean
        + rules.count * n / as_f64(N_JUDGED)
        + rules.recency * recency
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

/// Returns how well a hit fits by itself, from 0 to 1: the probability that the tool is the right
/// one, by the share `c` of the query's words that it covers and its cosine.
///
/// A logistic regression over answers to queries of which the right tools are known, and to queries
/// of other catalogs, to which no tool is right: `1 / (1 + exp(6.9 - 11.7 cos - 8.6 sqrt(c)))`, and
/// `1 / (1 + exp(4.2 - 14 sqrt(c)))` without vectors.
#[must_use]
pub fn fit(hit: &Hit) -> f64 {
    let words = hit.coverage.clamp(0.0, 1.0).sqrt();
    let evidence = match hit.cosine {
        None => 14.0 * words - 4.2,
        Some(cosine) => 11.7 * cosine.clamp(-1.0, 1.0) + 8.6 * words - 6.9,
    };
    1.0 / (1.0 + (-evidence).exp())
}

fn remembered(hit: &Hit) -> f64 {
    let mut terms = hit.terms.iter();
    let found = terms.find(|(term, _)| *term == super::index::Term::Memory);
    found.map_or(0.0, |(_, value)| value.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(coverage: f64, cosine: Option<f64>) -> Hit {
        Hit {
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
        let of = |hits: &[Hit]| grade(hits, &rules);
        assert_eq!(of(&[]), (0.0, SearchQuality::Low));
        let good = vec![hit(0.3, Some(0.6)); 5];
        assert_eq!(of(&good).1, SearchQuality::High);
        assert_eq!(of(&vec![hit(0.0, Some(0.1)); 5]).1, SearchQuality::Low);
        assert_eq!(of(&good[..1]).1, SearchQuality::Medium, "one hit is few");
    }

    #[test]
    fn nearer_and_better_covered_hits_fit_better() {
        assert!(fit(&hit(0.1, Some(0.5))) > fit(&hit(0.1, Some(0.3))));
        assert!(fit(&hit(0.2, None)) > fit(&hit(0.1, None)));
        assert!(fit(&hit(0.0, None)) < 0.02 && fit(&hit(1.0, Some(1.0))) > 0.99);
    }
}
