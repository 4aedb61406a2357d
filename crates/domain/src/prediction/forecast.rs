//! How likely each tool is to be called next.

use super::vocabulary::Slot;

/// Candidates with the probabilities that each is called next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// The most likely first; of equal ones the lowest slot.
    ranked: Vec<(Slot, f64)>,
}

impl Forecast {
    /// Ranks candidates; probabilities are finite.
    pub(super) fn new(mut ranked: Vec<(Slot, f64)>) -> Self {
        ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        Self { ranked }
    }

    /// Returns the candidates with their probabilities, the most likely first; of equally likely
    /// ones that which was seen first ever. Probabilities are finite, not negative, and sum to one
    /// where there is a candidate.
    #[must_use]
    pub fn ranked(&self) -> &[(Slot, f64)] {
        &self.ranked
    }

    /// Returns the probability of a tool; zero for one that is no candidate.
    #[must_use]
    pub fn probability(&self, slot: Slot) -> f64 {
        let found = self.ranked.iter().find(|(ranked, _)| *ranked == slot);
        found.map_or(0.0, |(_, probability)| *probability)
    }

    /// Returns the place of a tool in the ranking, from 1.
    #[must_use]
    pub fn rank(&self, slot: Slot) -> Option<usize> {
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
