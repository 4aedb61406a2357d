//! The forecast of the next call: a probability for each tool.

use std::cmp::Ordering;

use riglm_domain::num::to_f64;

/// The probability of every tool to be called next, and the ranking of the tools by it.
///
/// A forecast has as many tools as scores. It can be filled again for each call without a new
/// allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogForecast {
    probabilities: Vec<f64>,
    ranking: Vec<usize>,
}

impl CatalogForecast {
    /// Returns the forecast for these scores, see [`Self::set_scores`].
    #[must_use]
    pub fn from_scores(scores: &[f64]) -> Self {
        let mut forecast = Self::default();
        forecast.set_scores(scores);
        forecast
    }

    /// Replaces the scores. Each score is divided by the sum of all. Negative, infinite and NaN
    /// scores count as 0. If no score is above 0, all tools are equally likely.
    pub fn set_scores(&mut self, scores: &[f64]) {
        let counted = |score: &f64| {
            if score.is_finite() {
                score.max(0.0)
            } else {
                0.0
            }
        };
        // Scales by the largest score first, because the sum of very large scores would be
        // infinite.
        let largest = scores.iter().map(counted).fold(0.0, f64::max);
        self.probabilities.clear();
        if largest > 0.0 {
            let scaled = scores.iter().map(|score| counted(score) / largest);
            self.probabilities.extend(scaled);
        } else {
            self.probabilities.resize(scores.len(), 1.0);
        }
        let sum: f64 = self.probabilities.iter().sum();
        for probability in &mut self.probabilities {
            *probability /= sum;
        }
        self.ranking.clear();
        self.ranking.extend(0..scores.len());
        let probabilities = &self.probabilities;
        self.ranking.sort_unstable_by(|a, b| {
            let by_probability = probabilities[*b].total_cmp(&probabilities[*a]);
            by_probability.then(a.cmp(b))
        });
    }

    /// Returns the number of tools.
    #[must_use]
    pub fn n_tools(&self) -> usize {
        self.probabilities.len()
    }

    /// Returns the probability of a tool; 0 for a position outside the forecast.
    #[must_use]
    pub fn probability(&self, tool: usize) -> f64 {
        self.probabilities.get(tool).copied().unwrap_or(0.0)
    }

    /// Returns the probabilities of all tools. Their sum is 1.
    #[must_use]
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// Returns the probability that the next tool is among the `n` most likely ones.
    #[must_use]
    pub fn mass(&self, n: usize) -> f64 {
        let best = self.ranking.iter().take(n);
        let mass: f64 = best.map(|tool| self.probability(*tool)).sum();
        mass.min(1.0)
    }

    /// Returns the tools by descending probability; equally likely ones by position.
    #[must_use]
    pub fn ranking(&self) -> &[usize] {
        &self.ranking
    }

    /// Returns the tools that are at least as likely as the mean of all, the most likely first.
    #[must_use]
    pub fn above_mean(&self) -> &[usize] {
        let mean = 1.0 / to_f64(self.n_tools().max(1));
        let is_likely = |tool: &usize| self.probability(*tool) >= mean;
        &self.ranking[..self.ranking.partition_point(is_likely)]
    }

    /// Returns the rank of a tool, from 1; `None` for a position outside the forecast.
    #[must_use]
    pub fn rank(&self, tool: usize) -> Option<usize> {
        let own = *self.probabilities.get(tool)?;
        let precedes =
            |(other, probability): &(usize, &f64)| match f64::total_cmp(probability, &own) {
                Ordering::Greater => true,
                Ordering::Equal => *other < tool,
                Ordering::Less => false,
            };
        let before = self.probabilities.iter().enumerate().filter(precedes);
        Some(before.count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equally_likely_tools_are_ranked_by_position() {
        let forecast = CatalogForecast::from_scores(&[1.0, 2.0, 1.0, 4.0]);
        assert_eq!(forecast.probabilities(), [0.125, 0.25, 0.125, 0.5]);
        assert_eq!(forecast.ranking(), [3, 1, 0, 2]);
        assert_eq!(forecast.rank(2), Some(4));
        assert!((forecast.mass(2) - 0.75).abs() < 1e-12 && forecast.mass(9) <= 1.0);
        assert_eq!(forecast.above_mean(), [3, 1]);
        assert_eq!((forecast.rank(4), forecast.probability(4)), (None, 0.0));
    }

    #[test]
    fn invalid_scores_have_probability_zero() {
        let forecast = CatalogForecast::from_scores(&[f64::NAN, -1.0, 0.5, f64::INFINITY]);
        assert_eq!(forecast.probabilities(), [0.0, 0.0, 1.0, 0.0]);
        let nothing = CatalogForecast::from_scores(&[0.0, f64::NAN]);
        assert_eq!(nothing.probabilities(), [0.5, 0.5]);
        assert_eq!(CatalogForecast::from_scores(&[]).n_tools(), 0);
    }

    proptest! {
        #[test]
        fn any_scores_become_probabilities_in_order(
            scores in proptest::collection::vec(proptest::num::f64::ANY, 1..40),
        ) {
            let forecast = CatalogForecast::from_scores(&scores);
            let sum: f64 = forecast.probabilities().iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            for (place, tool) in (1..).zip(forecast.ranking()) {
                prop_assert_eq!(forecast.rank(*tool), Some(place));
            }
        }
    }
}
