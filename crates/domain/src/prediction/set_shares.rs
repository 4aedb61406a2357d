//! Shares of the sets of weights in their mean, by past performance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::num::to_f64;

/// The share of each set of weights, separately for each context: Bayesian averaging with a fixed
/// share (Herbster and Warmuth 1998). A set gains a share in proportion to the probability that it
/// gave to the called tool. A part is spread evenly after each call, so that every set can return.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SetShares {
    shares: BTreeMap<u64, Vec<f64>>,
}

impl SetShares {
    /// Part of the shares that is spread evenly after each call.
    pub(super) const SPREAD: f64 = 0.05;

    /// Returns the shares of a context, if it has separate ones; their sum is 1.
    pub(super) fn of(&self, context: u64) -> Option<&[f64]> {
        let shares = self.shares.get(&context)?;
        Some(shares)
    }

    /// Learns the logarithms of the probabilities that the sets gave to the called tool. All shares
    /// of a new context are equal before.
    pub(super) fn learn(&mut self, context: u64, log_p: &[f64]) {
        let even = 1.0 / to_f64(log_p.len().max(1));
        let shares = self.shares.entry(context);
        let shares = shares.or_insert_with(|| vec![even; log_p.len()]);
        let best = log_p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (share, log_p) in shares.iter_mut().zip(log_p) {
            *share *= (log_p - best).exp();
        }
        let sum: f64 = shares.iter().sum();
        for share in shares {
            *share = (1.0 - Self::SPREAD) * *share / sum + Self::SPREAD * even;
        }
    }

    pub(super) fn is_sound(&self, n_sets: usize) -> bool {
        self.shares.values().all(|shares| {
            let are_shares = shares.iter().all(|share| (0.0..=1.0).contains(share));
            shares.len() == n_sets && are_shares && shares.iter().sum::<f64>() > 0.5
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_sets_gain_shares_and_others_can_return() {
        let mut shares = SetShares::default();
        assert_eq!(shares.of(7), None);
        for _ in 0..20 {
            shares.learn(7, &[-1.0, -3.0]);
        }
        let before = shares.of(7).unwrap()[1];
        assert!((SetShares::SPREAD / 2.0..0.1).contains(&before), "{before}");
        for _ in 0..5 {
            shares.learn(7, &[-3.0, -1.0]);
        }
        let after = shares.of(7).unwrap();
        assert!(after[1] > 0.9 && (after.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(shares.of(8), None);
        assert!(shares.is_sound(2) && !shares.is_sound(3));
    }

    #[test]
    fn an_impossible_call_leaves_finite_shares() {
        let mut shares = SetShares::default();
        shares.learn(7, &[-1e6, 0.0, -740.0]);
        assert!(shares.is_sound(3));
    }
}
