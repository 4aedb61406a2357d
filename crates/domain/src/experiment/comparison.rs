//! Sequential comparison of an arm with the control: a confidence interval and a verdict that stay
//! valid however often they are looked at (anytime-valid).
//!
//! The k-th settled unit of the arm is paired with the k-th settled unit of the control. The
//! differences of pairs are independent with the same mean, the difference of the arms, if units
//! behave independently, arrive at both arms in the same way, and do not change over time. The
//! difference of two values from 0 to 1 is scaled to the same range. For each possible mean, a
//! fictitious player bets on the differences; if the player gets rich, the mean is unlikely. This is
//! the hedged capital process of Waudby-Smith and Ramdas, "Estimating means of bounded random variables
//! by betting", JRSS B 2024 (arXiv 2010.09686), theorem 3, with their predictable plug-in bets. For
//! each hypothetical mean m
//!
//! ```text
//! K+(m) = prod_i 1 + min(l_i, c / m)       (x_i - m)
//! K-(m) = prod_i 1 - min(l_i, c / (1 - m)) (x_i - m)
//! l_i   = sqrt(2 ln(2 / alpha) / (v_(i-1) i ln(i + 1)))
//! ```
//!
//! where v is the variance of the earlier differences, shrunk to 1/4, and c is 1/2. If m is the
//! mean, `max(K+, K-) / 2` is below a nonnegative martingale that begins at 1. The probability that
//! it ever exceeds `1 / alpha` is at most `alpha` (Ville's inequality). The interval contains the
//! means for which that has not happened so far.

use strum::IntoStaticStr;

use crate::num::to_f64;

/// The largest part of the capital that one bet can lose.
const MAX_BET_LOSS: f64 = 0.5;
/// Number of bisection steps for each end of the interval.
const N_HALVINGS: u32 = 30;

/// The verdict about an arm, compared with the control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ComparisonVerdict {
    /// The mean of the arm is greater.
    Better,
    /// The mean of the arm is smaller.
    Worse,
    /// Neither is established, or the difference changed over time.
    Undecided,
}

impl ComparisonVerdict {
    /// Returns the published name of the verdict.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The comparison of an arm with the control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Number of compared pairs of units.
    pub n_pairs: usize,
    /// Mean of the arm minus mean of the control, over the pairs, from -1 to 1; `None` without
    /// pairs.
    pub difference: Option<f64>,
    /// The confidence interval (lower, upper) of the difference, from -1 to 1. `None` if no
    /// constant difference fits the observations, because it changed over time.
    pub interval: Option<(f64, f64)>,
    /// The current e-value: the capital of the bets against a difference of 0. At least 0; 1 is no
    /// evidence.
    pub e_value: f64,
    /// The probability that any of the compared arms ever reaches so much evidence if no arm
    /// differs from the control: from 0 to 1, and never increasing.
    pub p_value: f64,
    /// The verdict.
    pub verdict: ComparisonVerdict,
}

/// Compares the values of the units of an arm with the values of the control, each from 0 to 1 and
/// in the order in which they were settled.
///
/// `n_arms` is the number of arms that are compared with the same control. The probability that the
/// verdict about any of them is ever wrong is at most `alpha`, above 0 and below 1 (Bonferroni).
#[must_use]
pub fn compare(arm: &[f64], control: &[f64], alpha: f64, n_arms: usize) -> Comparison {
    let n_arms = to_f64(n_arms.max(1));
    let pairs = arm.iter().zip(control);
    let moved: Vec<f64> = pairs
        .map(|(arm, control)| f64::midpoint(arm - control, 1.0).clamp(0.0, 1.0))
        .collect();
    let game = BettingProcess::new(&moved, alpha / n_arms);
    let (up, down) = (
        game.bet_capital(0.5, BetSide::Up),
        game.bet_capital(0.5, BetSide::Down),
    );
    let most = up.most.max(down.most);
    let last = up.last.max(down.last);
    let half = 2.0_f64.ln();
    let interval = game.interval();
    // If the interval is empty, evidence against a difference of 0 does not tell its sign.
    let is_enough = |won: BetCapital| interval.is_some() && game.is_significant(won);
    let verdict = match (is_enough(up), is_enough(down)) {
        (true, false) => ComparisonVerdict::Better,
        (false, true) => ComparisonVerdict::Worse,
        _ => ComparisonVerdict::Undecided,
    };
    let n = moved.len();
    let mean = moved.iter().sum::<f64>() / to_f64(n.max(1));
    Comparison {
        n_pairs: n,
        difference: (n > 0).then_some(2.0 * mean - 1.0),
        interval,
        e_value: (last - half).exp().min(f64::MAX),
        p_value: (n_arms * (half - most).exp()).min(1.0),
        verdict,
    }
}

/// Direction of a bet.
#[derive(Clone, Copy, Debug)]
enum BetSide {
    /// Bets that the mean is greater.
    Up,
    /// Bets that the mean is smaller.
    Down,
}

/// The logarithm of the capital from bets.
#[derive(Clone, Copy, Debug)]
struct BetCapital {
    last: f64,
    /// Its maximum so far.
    most: f64,
}

struct BettingProcess<'a> {
    values: &'a [f64],
    /// The stake on each value, from the values before it.
    bets: Vec<f64>,
    /// The logarithm of the capital at which a hypothesis is rejected.
    enough: f64,
}

impl<'a> BettingProcess<'a> {
    fn new(values: &'a [f64], alpha: f64) -> Self {
        let enough = (2.0 / alpha).ln();
        // Start values of one pseudo-observation of 1/2 with a variance of 1/4, as in the paper.
        let (mut sum, mut squares, mut variance) = (0.5, 0.25, 0.25);
        let mut bets = Vec::with_capacity(values.len());
        for (before, value) in values.iter().enumerate() {
            let n = to_f64(before + 1);
            bets.push((2.0 * enough / (variance * n * (n + 1.0).ln())).sqrt());
            sum += value;
            let mean = sum / (n + 1.0);
            squares += (value - mean) * (value - mean);
            variance = squares / (n + 1.0);
        }
        Self {
            values,
            bets,
            enough,
        }
    }

    /// Returns the capital from bets against a mean.
    fn bet_capital(&self, mean: f64, side: BetSide) -> BetCapital {
        let (sign, most_bet) = match side {
            BetSide::Up => (1.0, MAX_BET_LOSS / mean),
            BetSide::Down => (-1.0, MAX_BET_LOSS / (1.0 - mean)),
        };
        let mut won = BetCapital {
            last: 0.0,
            most: 0.0,
        };
        for (value, bet) in self.values.iter().zip(&self.bets) {
            let gain: f64 = sign * bet.min(most_bet) * (value - mean);
            won.last += gain.ln_1p();
            won.most = won.most.max(won.last);
        }
        won
    }

    fn is_significant(&self, won: BetCapital) -> bool {
        won.most >= self.enough
    }

    /// Returns the differences that are not rejected. The capital from bets against a mean
    /// decreases monotonically towards the side of the bet, so each end of the interval is found by
    /// bisection.
    fn interval(&self) -> Option<(f64, f64)> {
        let end = |side: BetSide, start: f64| {
            if !self.is_significant(self.bet_capital(start, side)) {
                return start;
            }
            let (mut refuted, mut left) = (start, 1.0 - start);
            for _ in 0..N_HALVINGS {
                let middle = f64::midpoint(refuted, left);
                if self.is_significant(self.bet_capital(middle, side)) {
                    refuted = middle;
                } else {
                    left = middle;
                }
            }
            refuted
        };
        let (lower, upper) = (end(BetSide::Up, 0.0), end(BetSide::Down, 1.0));
        (lower <= upper).then_some((2.0 * lower - 1.0, 2.0 * upper - 1.0))
    }
}

#[cfg(test)]
mod tests;
