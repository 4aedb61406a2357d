//! Forecast of the next call: the probabilities of the candidate tools.

use super::vocabulary::ToolIx;
use crate::num::to_f64;

/// Candidates with their probabilities to be called next.
///
/// Each candidate occurs once. Probabilities are finite and not negative, and sum to 1 if there is
/// a candidate. The default is the forecast without candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Sorted by descending probability; equal ones by ascending index.
    ranked: Vec<(ToolIx, f64)>,
}

/// The reason for which probabilities are no forecast.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ForecastError {
    /// A probability is negative, infinite or not a number.
    #[error("probability {probability} of the candidate {tool:?} is not a finite number from 0 on")]
    Probability {
        /// The candidate.
        tool: ToolIx,
        /// Its probability.
        probability: f64,
    },
    /// A candidate occurs more than once.
    #[error("candidate {0:?} occurs more than once")]
    Repetition(ToolIx),
    /// The probabilities do not sum to 1.
    #[error("probabilities of the candidates sum to {0}, not to 1")]
    Sum(f64),
}

impl Forecast {
    /// The largest accepted difference of the sum of the probabilities from 1.
    pub const TOLERANCE: f64 = 1e-9;

    /// Ranks candidates by their probabilities to be called next, which are given in any order.
    ///
    /// # Errors
    ///
    /// Returns [`ForecastError`] for a probability that is not finite or is negative, for a
    /// candidate that occurs more than once, and for candidates whose probabilities do not sum to 1
    /// within [`Self::TOLERANCE`].
    pub fn new(candidates: impl IntoIterator<Item = (ToolIx, f64)>) -> Result<Self, ForecastError> {
        let mut candidates: Vec<(ToolIx, f64)> = candidates.into_iter().collect();
        for &(tool, probability) in &candidates {
            if !probability.is_finite() || probability < 0.0 {
                return Err(ForecastError::Probability { tool, probability });
            }
        }
        candidates.sort_unstable_by_key(|(tool, _)| *tool);
        if let Some(pair) = candidates.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(ForecastError::Repetition(pair[0].0));
        }
        let sum: f64 = candidates.iter().map(|(_, probability)| probability).sum();
        if !candidates.is_empty() && (sum - 1.0).abs() > Self::TOLERANCE {
            return Err(ForecastError::Sum(sum));
        }
        Ok(Self::from_distribution(candidates))
    }

    /// Ranks candidates whose probabilities are a distribution by their computation.
    pub(super) fn from_distribution(mut ranked: Vec<(ToolIx, f64)>) -> Self {
        ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Self { ranked }
    }

    /// Returns the candidates with their probabilities, the most likely first; equally likely ones
    /// in the order of their first occurrence ever. Probabilities are finite and not negative, and
    /// sum to 1 if there is a candidate.
    #[must_use]
    pub fn ranking(&self) -> &[(ToolIx, f64)] {
        &self.ranked
    }

    /// Returns the probability of a tool; 0 if it is not a candidate.
    #[must_use]
    pub fn probability(&self, slot: ToolIx) -> f64 {
        let found = self.ranked.iter().find(|(ranked, _)| *ranked == slot);
        found.map_or(0.0, |(_, probability)| *probability)
    }

    /// Returns the rank of a tool, from 1; `None` if it is not a candidate.
    #[must_use]
    pub fn rank(&self, slot: ToolIx) -> Option<usize> {
        let at = self.ranked.iter().position(|(ranked, _)| *ranked == slot)?;
        Some(at + 1)
    }

    /// Returns the candidates that are at least as likely as the mean of all, the most likely first.
    pub fn above_mean(&self) -> impl Iterator<Item = (ToolIx, f64)> {
        let mean = 1.0 / to_f64(self.ranked.len().max(1));
        (self.ranked.iter().copied()).take_while(move |(_, probability)| *probability >= mean)
    }

    /// Returns the probability that the next tool is among the `n` most likely ones.
    #[must_use]
    pub fn mass(&self, n: usize) -> f64 {
        let mass: f64 = self.ranked.iter().take(n).map(|(_, p)| p).sum();
        mass.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ToolIx = ToolIx(0);
    const B: ToolIx = ToolIx(1);

    #[test]
    fn a_distribution_is_a_forecast_in_any_order() {
        let forecast = Forecast::new([(B, 0.5), (A, 0.5), (ToolIx(2), 0.0)]).unwrap();
        assert_eq!(forecast.ranking(), [(A, 0.5), (B, 0.5), (ToolIx(2), 0.0)]);
        assert_eq!(Forecast::new([]), Ok(Forecast::default()));
    }

    #[test]
    fn tools_below_the_mean_are_left_out() {
        let forecast = Forecast::new([(A, 0.2), (B, 0.45), (ToolIx(2), 0.35)]).unwrap();
        let likely: Vec<ToolIx> = forecast.above_mean().map(|(tool, _)| tool).collect();
        assert_eq!(likely, [B, ToolIx(2)]);
        // Equally likely tools are all as likely as the mean.
        let even = Forecast::new([(A, 0.5), (B, 0.5)]).unwrap();
        assert_eq!(even.above_mean().count(), 2);
        assert_eq!(Forecast::default().above_mean().count(), 0);
    }

    #[test]
    fn an_invalid_distribution_is_refused() {
        assert_eq!(
            Forecast::new([(A, 1.5), (B, -0.5)]),
            Err(ForecastError::Probability {
                tool: B,
                probability: -0.5
            })
        );
        for probability in [f64::NAN, f64::INFINITY] {
            assert!(matches!(
                Forecast::new([(A, probability)]),
                Err(ForecastError::Probability { tool: A, .. })
            ));
        }
        assert_eq!(
            Forecast::new([(A, 0.25), (B, 0.5), (A, 0.25)]),
            Err(ForecastError::Repetition(A))
        );
        assert_eq!(
            Forecast::new([(A, 0.25), (B, 0.5)]),
            Err(ForecastError::Sum(0.75))
        );
    }
}
