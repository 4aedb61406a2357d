//! How often forecasts say too little to filter by, where there is history to learn from.

use super::Forecast;
use super::prediction::ratio;
use crate::prediction::{Band, Bands};

/// How many forecasts of mature sessions were verdicts of a cold start: the best
/// [`Self::MAX_TOOLS`] have so little mass together that every tool would be shown, by the bands
/// of [`Bands::MASS`]. A session is mature after [`Self::N_IMMATURE`] others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColdStarts {
    n_sessions: u64,
    calls: Verdicts,
    first_calls: Verdicts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdicts {
    n: u64,
    n_cold: u64,
}

impl Verdicts {
    fn add(&mut self, is_cold: bool) {
        self.n += 1;
        self.n_cold += u64::from(is_cold);
    }

    fn share(&self) -> Option<f64> {
        (self.n > 0).then(|| ratio(self.n_cold, self.n))
    }
}

impl ColdStarts {
    /// The length of the list whose mass is judged: what a list has at most by default.
    pub const MAX_TOOLS: usize = 20;
    /// How many sessions are not counted, the first ones.
    pub const N_IMMATURE: u64 = 50;

    /// Adds what was forecast of a call, and whether a session begins with that.
    pub fn add(&mut self, forecast: &Forecast, begins: bool) {
        self.n_sessions += u64::from(begins);
        if self.n_sessions <= Self::N_IMMATURE {
            return;
        }
        let band = Bands::MASS.of(forecast.mass(Self::MAX_TOOLS));
        let is_cold = band == Band::ShowAll;
        self.calls.add(is_cold);
        if begins {
            self.first_calls.add(is_cold);
        }
    }

    /// Returns the share of the calls of mature sessions; `None` where there are none.
    #[must_use]
    pub fn of_calls(&self) -> Option<f64> {
        self.calls.share()
    }

    /// Returns the share of the first calls of mature sessions; `None` where there are none.
    #[must_use]
    pub fn of_first_calls(&self) -> Option<f64> {
        self.first_calls.share()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_forecasts_count_once_there_were_sessions_enough() {
        let mut cold = ColdStarts::default();
        let vague = Forecast::of(&[1.0; 40]);
        let sure = Forecast::of(&[1.0; 20]);
        for _ in 0..ColdStarts::N_IMMATURE {
            cold.add(&vague, true);
            cold.add(&vague, false);
        }
        assert_eq!((cold.of_calls(), cold.of_first_calls()), (None, None));
        cold.add(&vague, true);
        cold.add(&sure, false);
        cold.add(&sure, false);
        cold.add(&vague, false);
        assert_eq!(cold.of_calls(), Some(0.5));
        assert_eq!(cold.of_first_calls(), Some(1.0));
        cold.add(&sure, true);
        assert_eq!(cold.of_first_calls(), Some(0.5));
    }
}
