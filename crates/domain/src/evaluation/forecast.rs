//! What is predicted of the next call.

use std::cmp::Ordering;

/// The probability of every tool to be called next, and the tools in that order.
///
/// A forecast has as many tools as it was given scores, and can be filled again for each call
/// without new memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    probabilities: Vec<f64>,
    ranking: Vec<usize>,
}

impl Forecast {
    /// Returns the forecast with these scores, see [`Self::fill`].
    #[must_use]
    pub fn of(scores: &[f64]) -> Self {
        let mut forecast = Self::default();
        forecast.fill(scores);
        forecast
    }

    /// Takes other scores. They are divided by their sum; what is negative, infinite or no number
    /// counts as 0, and where nothing is above 0, all tools are equally likely.
    pub fn fill(&mut self, scores: &[f64]) {
        let counted = |score: &f64| {
            if score.is_finite() {
                score.max(0.0)
            } else {
                0.0
            }
        };
        // The largest score first: the sum of very large ones would be infinite.
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

    /// Returns how many tools there are.
    #[must_use]
    pub fn n_tools(&self) -> usize {
        self.probabilities.len()
    }

    /// Returns the probability of a tool; 0 for one that there is not.
    #[must_use]
    pub fn probability(&self, tool: usize) -> f64 {
        self.probabilities.get(tool).copied().unwrap_or(0.0)
    }

    /// Returns the probability of every tool. They add up to 1.
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

    /// Returns the tools, the most likely one first; equally likely ones by position.
    #[must_use]
    pub fn ranking(&self) -> &[usize] {
        &self.ranking
    }

    /// Returns the place of a tool in the ranking, from 1; `None` for one that there is not.
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
        let forecast = Forecast::of(&[1.0, 2.0, 1.0, 4.0]);
        assert_eq!(forecast.probabilities(), [0.125, 0.25, 0.125, 0.5]);
        assert_eq!(forecast.ranking(), [3, 1, 0, 2]);
        assert_eq!(forecast.rank(2), Some(4));
        assert!((forecast.mass(2) - 0.75).abs() < 1e-12 && forecast.mass(9) <= 1.0);
        assert_eq!((forecast.rank(4), forecast.probability(4)), (None, 0.0));
    }

    #[test]
    fn what_is_no_probability_is_ranked_last() {
        let forecast = Forecast::of(&[f64::NAN, -1.0, 0.5, f64::INFINITY]);
        assert_eq!(forecast.probabilities(), [0.0, 0.0, 1.0, 0.0]);
        let nothing = Forecast::of(&[0.0, f64::NAN]);
        assert_eq!(nothing.probabilities(), [0.5, 0.5]);
        assert_eq!(Forecast::of(&[]).n_tools(), 0);
    }

    proptest! {
        #[test]
        fn any_scores_become_probabilities_in_order(
            scores in proptest::collection::vec(proptest::num::f64::ANY, 1..40),
        ) {
            let forecast = Forecast::of(&scores);
            let sum: f64 = forecast.probabilities().iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            for (place, tool) in (1..).zip(forecast.ranking()) {
                prop_assert_eq!(forecast.rank(*tool), Some(place));
            }
        }
    }
}
