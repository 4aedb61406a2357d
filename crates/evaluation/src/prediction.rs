//! Metrics of forecasts of the next call, and their means over calls.

use riglm_domain::num::{ratio, to_f64};
use strum::VariantArray;

use super::CatalogForecast;

/// A list length as a share of the catalog, rounded down, and at least one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
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
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the share in per cent.
    #[must_use]
    pub fn percent(self) -> u32 {
        match self {
            Self::Half => 50,
            Self::Quarter => 25,
            Self::Tenth => 10,
        }
    }

    /// Returns the length of the list for a catalog of `n_tools` tools.
    #[must_use]
    pub fn list_size(self, n_tools: usize) -> usize {
        let n = match self {
            Self::Half => n_tools / 2,
            Self::Quarter => n_tools / 4,
            Self::Tenth => n_tools / 10,
        };
        n.max(1)
    }
}

/// Means over the added calls.
///
/// A call is a hit at k if its tool is among the k most likely ones. The first call of a tool in a
/// session is a first use. A list that keeps the used tools hits all other calls, so first uses are
/// the better measure of a forecast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PredictionMetrics {
    all: HitCounts,
    first_uses: HitCounts,
    reciprocal_rank: f64,
    bits: f64,
}

/// Number of hits of lists with different lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HitCounts {
    n_calls: u64,
    at: [u64; PredictionMetrics::HIT_AT.len()],
    within: [u64; CatalogShare::ALL.len()],
}

impl HitCounts {
    fn add(&mut self, rank: usize, n_tools: usize) {
        self.n_calls += 1;
        for (hits, k) in self.at.iter_mut().zip(PredictionMetrics::HIT_AT) {
            *hits += u64::from(rank <= k);
        }
        for (hits, share) in self.within.iter_mut().zip(CatalogShare::ALL) {
            *hits += u64::from(rank <= share.list_size(n_tools));
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
    /// The list lengths at which [`Self::hit_rate`] and [`Self::first_use_hit_rate`] are measured.
    pub const HIT_AT: [usize; 4] = [1, 5, 10, 20];

    /// Added to the probability of the called tool before the logarithm is taken, so that a tool
    /// with probability 0 costs 39.9 bits and not infinity.
    const LEAST_PROBABILITY: f64 = 1e-12;

    /// Adds a call: its forecast, the position of the called tool, and whether this is the first
    /// call of the tool in its session. A tool outside the forecast is a miss at every length.
    pub fn add(&mut self, forecast: &CatalogForecast, called: usize, is_first_use: bool) {
        let rank = forecast.rank(called);
        let n_tools = forecast.n_tools();
        self.all.add(rank.unwrap_or(usize::MAX), n_tools);
        if is_first_use {
            self.first_uses.add(rank.unwrap_or(usize::MAX), n_tools);
        }
        self.reciprocal_rank += rank.map_or(0.0, |rank| 1.0 / to_f64(rank));
        self.bits -= (forecast.probability(called) + Self::LEAST_PROBABILITY).log2();
    }

    /// Returns the number of added calls.
    #[must_use]
    pub fn n_calls(&self) -> u64 {
        self.all.n_calls
    }

    /// Returns the number of first uses among the added calls.
    #[must_use]
    pub fn n_first_uses(&self) -> u64 {
        self.first_uses.n_calls
    }

    /// Returns the share of calls that are hits at one of [`Self::HIT_AT`]; 0 at any other length.
    #[must_use]
    pub fn hit_rate(&self, k: usize) -> f64 {
        self.all.at(k)
    }

    /// Returns the share of first uses that are hits at one of [`Self::HIT_AT`]; 0 at any other
    /// length.
    #[must_use]
    pub fn first_use_hit_rate(&self, k: usize) -> f64 {
        self.first_uses.at(k)
    }

    /// Returns the share of calls that are hits of a list with this share of the catalog.
    #[must_use]
    pub fn coverage(&self, share: CatalogShare) -> f64 {
        self.all.within(share)
    }

    /// Returns the share of first uses that are hits of a list with this share of the catalog.
    #[must_use]
    pub fn first_use_coverage(&self, share: CatalogShare) -> f64 {
        self.first_uses.within(share)
    }

    /// Returns the mean reciprocal rank of the called tools.
    #[must_use]
    pub fn mrr(&self) -> f64 {
        self.reciprocal_rank / to_f64(self.all.n_calls.max(1))
    }

    /// Returns the mean surprisal of a call in bits: the negative logarithm of its predicted
    /// probability to the base 2.
    #[must_use]
    pub fn bits(&self) -> f64 {
        self.bits / to_f64(self.all.n_calls.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn calls_and_first_uses_are_counted_separately() {
        let mut metrics = PredictionMetrics::default();
        let forecast = CatalogForecast::from_scores(&[4.0, 2.0, 1.0, 1.0]);
        metrics.add(&forecast, 0, true);
        metrics.add(&forecast, 0, false);
        metrics.add(&forecast, 3, true);
        assert_eq!((metrics.n_calls(), metrics.n_first_uses()), (3, 2));
        assert!(near(metrics.hit_rate(1), 2.0 / 3.0) && near(metrics.first_use_hit_rate(1), 0.5));
        assert!(near(metrics.hit_rate(5), 1.0) && near(metrics.hit_rate(7), 0.0));
        assert!(near(metrics.coverage(CatalogShare::Half), 2.0 / 3.0));
        assert!(near(metrics.first_use_coverage(CatalogShare::Tenth), 0.5));
        assert!(near(metrics.mrr(), (1.0 + 1.0 + 0.25) / 3.0));
        assert!((metrics.bits() - (1.0 + 1.0 + 3.0) / 3.0).abs() < 1e-6);
    }

    #[test]
    fn a_tool_outside_the_forecast_is_never_hit() {
        let mut metrics = PredictionMetrics::default();
        metrics.add(&CatalogForecast::from_scores(&[1.0]), 1, true);
        assert!(near(metrics.hit_rate(20), 0.0) && near(metrics.mrr(), 0.0));
        assert!(metrics.bits() > 39.0 && metrics.bits().is_finite());
    }

    #[test]
    fn metrics_without_calls_are_zero() {
        let metrics = PredictionMetrics::default();
        assert!(near(metrics.first_use_hit_rate(10), 0.0) && near(metrics.bits(), 0.0));
    }

    #[test]
    fn a_share_of_a_catalog_has_at_least_one_tool() {
        let sizes = |n_tools| {
            let sizes = CatalogShare::ALL
                .iter()
                .map(|share| share.list_size(n_tools));
            sizes.collect::<Vec<_>>()
        };
        assert_eq!(sizes(43), [21, 10, 4]);
        assert_eq!(sizes(3), [1, 1, 1]);
    }
}
