//! Measures of forecasts of the next call, and their means over calls.

use super::Forecast;

/// A list that is as long as a share of the catalog, rounded down, and never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogShare {
    /// 50 % of the tools.
    Half,
    /// 25 % of the tools.
    Quarter,
    /// 10 % of the tools.
    Tenth,
}

impl CatalogShare {
    /// All shares, the longest list first.
    pub const ALL: [Self; 3] = [Self::Half, Self::Quarter, Self::Tenth];

    /// Returns the share in per cent.
    #[must_use]
    pub fn percent(self) -> u32 {
        match self {
            Self::Half => 50,
            Self::Quarter => 25,
            Self::Tenth => 10,
        }
    }

    /// Returns how many tools of a catalog the list has.
    #[must_use]
    pub fn of(self, n_tools: usize) -> usize {
        let n = match self {
            Self::Half => n_tools / 2,
            Self::Quarter => n_tools / 4,
            Self::Tenth => n_tools / 10,
        };
        n.max(1)
    }
}

/// Means over the calls that were added.
///
/// A call is hit at k when its tool is among the k most likely ones. The first call of a tool in a
/// session is a first use: keeping what was used hits all others, so that first uses tell what a
/// forecast is worth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PredictionMetrics {
    all: Hits,
    first_uses: Hits,
    reciprocal_rank: f64,
    bits: f64,
}

/// How many calls were hit by lists of different lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hits {
    n_calls: u64,
    at: [u64; PredictionMetrics::HIT_AT.len()],
    within: [u64; CatalogShare::ALL.len()],
}

impl Hits {
    fn add(&mut self, rank: usize, n_tools: usize) {
        self.n_calls += 1;
        for (hits, k) in self.at.iter_mut().zip(PredictionMetrics::HIT_AT) {
            *hits += u64::from(rank <= k);
        }
        for (hits, share) in self.within.iter_mut().zip(CatalogShare::ALL) {
            *hits += u64::from(rank <= share.of(n_tools));
        }
    }

    fn at(&self, k: usize) -> f64 {
        let known = PredictionMetrics::HIT_AT.iter().position(|at| *at == k);
        known.map_or(0.0, |known| ratio(self.at[known], self.n_calls))
    }

    fn within(&self, share: CatalogShare) -> f64 {
        let known = CatalogShare::ALL.iter().position(|at| *at == share);
        known.map_or(0.0, |known| ratio(self.within[known], self.n_calls))
    }
}

impl PredictionMetrics {
    /// The lengths of lists for which [`Self::hit`] and [`Self::first_use`] are known.
    pub const HIT_AT: [usize; 4] = [1, 5, 10, 20];

    /// What is added to the probability of what was called before its logarithm is taken: a tool
    /// that was said to be impossible costs 39.9 bits.
    const LEAST_PROBABILITY: f64 = 1e-12;

    /// Adds a call: what was forecast, which tool was called, and whether that was the first time
    /// in its session. A tool that the forecast does not have is hit nowhere.
    pub fn add(&mut self, forecast: &Forecast, called: usize, is_first_use: bool) {
        let rank = forecast.rank(called);
        let n_tools = forecast.n_tools();
        self.all.add(rank.unwrap_or(usize::MAX), n_tools);
        if is_first_use {
            self.first_uses.add(rank.unwrap_or(usize::MAX), n_tools);
        }
        self.reciprocal_rank += rank.map_or(0.0, |rank| 1.0 / as_f64(rank as u64));
        self.bits -= (forecast.probability(called) + Self::LEAST_PROBABILITY).log2();
    }

    /// Returns how many calls were added.
    #[must_use]
    pub fn n_calls(&self) -> u64 {
        self.all.n_calls
    }

    /// Returns how many of them were first uses.
    #[must_use]
    pub fn n_first_uses(&self) -> u64 {
        self.first_uses.n_calls
    }

    /// Returns the share of calls that were hit at one of [`Self::HIT_AT`]; 0 at any other length.
    #[must_use]
    pub fn hit(&self, k: usize) -> f64 {
        self.all.at(k)
    }

    /// Returns the share of first uses that were hit at one of [`Self::HIT_AT`]; 0 at any other
    /// length.
    #[must_use]
    pub fn first_use(&self, k: usize) -> f64 {
        self.first_uses.at(k)
    }

    /// Returns the share of calls that were hit by a list with this share of the catalog.
    #[must_use]
    pub fn coverage(&self, share: CatalogShare) -> f64 {
        self.all.within(share)
    }

    /// Returns the share of first uses that were hit by a list with this share of the catalog.
    #[must_use]
    pub fn first_use_coverage(&self, share: CatalogShare) -> f64 {
        self.first_uses.within(share)
    }

    /// Returns the mean reciprocal rank of what was called.
    #[must_use]
    pub fn mrr(&self) -> f64 {
        self.reciprocal_rank / as_f64(self.all.n_calls.max(1))
    }

    /// Returns the mean number of bits that a call tells somebody who knows the forecast: the
    /// negative logarithm of its probability to the base 2.
    #[must_use]
    pub fn bits(&self) -> f64 {
        self.bits / as_f64(self.all.n_calls.max(1))
    }
}

/// Returns a share from 0 to 1; 0 of nothing.
pub(super) fn ratio(part: u64, all: u64) -> f64 {
    as_f64(part) / as_f64(all.max(1))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of calls are far below 2^52"
)]
pub(super) fn as_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn calls_and_first_uses_are_counted_apart() {
        let mut metrics = PredictionMetrics::default();
        let forecast = Forecast::of(&[4.0, 2.0, 1.0, 1.0]);
        metrics.add(&forecast, 0, true);
        metrics.add(&forecast, 0, false);
        metrics.add(&forecast, 3, true);
        assert_eq!((metrics.n_calls(), metrics.n_first_uses()), (3, 2));
        assert!(near(metrics.hit(1), 2.0 / 3.0) && near(metrics.first_use(1), 0.5));
        assert!(near(metrics.hit(5), 1.0) && near(metrics.hit(7), 0.0));
        assert!(near(metrics.coverage(CatalogShare::Half), 2.0 / 3.0));
        assert!(near(metrics.first_use_coverage(CatalogShare::Tenth), 0.5));
        assert!(near(metrics.mrr(), (1.0 + 1.0 + 0.25) / 3.0));
        assert!((metrics.bits() - (1.0 + 1.0 + 3.0) / 3.0).abs() < 1e-6);
    }

    #[test]
    fn a_tool_outside_the_forecast_is_hit_nowhere() {
        let mut metrics = PredictionMetrics::default();
        metrics.add(&Forecast::of(&[1.0]), 1, true);
        assert!(near(metrics.hit(20), 0.0) && near(metrics.mrr(), 0.0));
        assert!(metrics.bits() > 39.0 && metrics.bits().is_finite());
    }

    #[test]
    fn nothing_measured_is_nothing_hit() {
        let metrics = PredictionMetrics::default();
        assert!(near(metrics.first_use(10), 0.0) && near(metrics.bits(), 0.0));
    }

    #[test]
    fn a_share_of_a_catalog_is_rounded_down_and_never_nothing() {
        assert_eq!(CatalogShare::ALL.map(|share| share.of(43)), [21, 10, 4]);
        assert_eq!(CatalogShare::ALL.map(|share| share.of(3)), [1, 1, 1]);
    }
}
