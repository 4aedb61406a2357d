//! Forecast of the next call: the probabilities of the candidate tools.

use super::vocabulary::ToolIx;

/// Candidates with their probabilities to be called next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Sorted by descending probability; equal ones by ascending index.
    ranked: Vec<(ToolIx, f64)>,
}

impl Forecast {
    /// Ranks candidates. Probabilities must be finite.
    pub(super) fn new(mut ranked: Vec<(ToolIx, f64)>) -> Self {
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

    /// Returns the probability that the next tool is among the `n` most likely ones.
    #[must_use]
    pub fn mass(&self, n: usize) -> f64 {
        let mass: f64 = self.ranked.iter().take(n).map(|(_, p)| p).sum();
        mass.min(1.0)
    }
}
