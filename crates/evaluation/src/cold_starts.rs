//! Cold starts: the share of forecasts that are too uncertain to filter a list by, although there
//! is history to learn from.

use super::CatalogForecast;
use riglm_domain::num::ratio;
use riglm_domain::prediction::{ConfidenceBand, ConfidenceBands};

/// Counts the forecasts of mature sessions that are cold starts. In a cold start the best
/// [`Self::MAX_TOOLS`] tools have so little probability mass together that every tool would be
/// shown, by the bands of [`ConfidenceBands::MASS`]. A session is mature after [`Self::N_IMMATURE`] other
/// sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColdStarts {
    n_sessions: u64,
    calls: ColdStartCount,
    first_calls: ColdStartCount,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ColdStartCount {
    n: u64,
    n_cold: u64,
}

impl ColdStartCount {
    fn add(&mut self, is_cold: bool) {
        self.n += 1;
        self.n_cold += u64::from(is_cold);
    }

    fn share(&self) -> Option<f64> {
        (self.n > 0).then(|| ratio(self.n_cold, self.n))
    }
}

impl ColdStarts {
    /// The length of the list whose probability mass is checked: the default maximum length of
    /// lists.
    pub const MAX_TOOLS: usize = 20;
    /// Number of sessions at the start that are not counted.
    pub const N_IMMATURE: u64 = 50;

    /// Adds the forecast of a call. `begins` is whether a session begins with this call.
    pub fn add(&mut self, forecast: &CatalogForecast, begins: bool) {
        self.n_sessions += u64::from(begins);
        if self.n_sessions <= Self::N_IMMATURE {
            return;
        }
        let band = ConfidenceBands::MASS.of(forecast.mass(Self::MAX_TOOLS));
        let is_cold = band == ConfidenceBand::ShowAll;
        self.calls.add(is_cold);
        if begins {
            self.first_calls.add(is_cold);
        }
    }

    /// Returns the share of cold starts among the calls of mature sessions; `None` without such
    /// calls.
    #[must_use]
    pub fn share_of_calls(&self) -> Option<f64> {
        self.calls.share()
    }

    /// Returns the share of cold starts among the first calls of mature sessions; `None` without
    /// such calls.
    #[must_use]
    pub fn share_of_first_calls(&self) -> Option<f64> {
        self.first_calls.share()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_starts_are_counted_after_enough_sessions() {
        let mut cold = ColdStarts::default();
        let vague = CatalogForecast::from_scores(&[1.0; 40]);
        let sure = CatalogForecast::from_scores(&[1.0; 20]);
        for _ in 0..ColdStarts::N_IMMATURE {
            cold.add(&vague, true);
            cold.add(&vague, false);
        }
        assert_eq!(
            (cold.share_of_calls(), cold.share_of_first_calls()),
            (None, None)
        );
        cold.add(&vague, true);
        cold.add(&sure, false);
        cold.add(&sure, false);
        cold.add(&vague, false);
        assert_eq!(cold.share_of_calls(), Some(0.5));
        assert_eq!(cold.share_of_first_calls(), Some(1.0));
        cold.add(&sure, true);
        assert_eq!(cold.share_of_first_calls(), Some(0.5));
    }
}
