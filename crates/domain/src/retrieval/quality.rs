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
    /// How recently one of the first five was used after a similar text.
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
    let recency = first.iter().map(remembered).fold(0.0, f64::max);
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

/// Returns how well a hit fits by itself, from 0 to 1.
fn fit(hit: &Hit) -> f64 {
    let words = hit.coverage.clamp(0.0, 1.0);
    match hit.cosine {
        None => words,
        Some(cosine) => 1.0 - (1.0 - words) * (1.0 - cosine.clamp(0.0, 1.0)),
    }
}

fn remembered(hit: &Hit) -> f64 {
    let mut terms = hit.terms.iter();
    let found = terms.find(|(term, _)| *term == super::index::Term::Memory);
    found.map_or(0.0, |(_, value)| value.clamp(0.0, 1.0))
}
