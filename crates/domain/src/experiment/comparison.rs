//! What can be said of an arm at any time: an interval and a verdict that hold however often one
//! looks.
//!
//! The k-th unit of the arm that is settled is paired with the k-th of the control. The differences
//! of pairs are independent with the same mean, the difference of the arms, as far as units behave
//! independently, come to both arms in the same way, and do not change over time. A difference of
//! two values from 0 to 1, moved to the same range, is bet on: the hedged capital process of
//! Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024
//! (arXiv 2010.09686), theorem 3, with their predictable plug-in bets. For each supposed mean m
//!
//! ```text
//! K+(m) = prod_i 1 + min(l_i, c / m)       (x_i - m)
//! K-(m) = prod_i 1 - min(l_i, c / (1 - m)) (x_i - m)
//! l_i   = sqrt(2 ln(2 / alpha) / (v_(i-1) i ln(i + 1)))
//! ```
//!
//! where v is the variance of the differences before, shrunk to 1/4, and c is 1/2. If m is the mean,
//! `max(K+, K-) / 2` is below a nonnegative martingale that begins at 1, and exceeds `1 / alpha` at
//! any time with a probability of at most `alpha` (Ville's inequality). The interval has the means
//! for which that has not happened so far.

/// The greatest part of the capital that is lost by one bet.
const MOST_LOST: f64 = 0.5;
/// How often the range of an end of the interval is halved.
const N_HALVINGS: u32 = 30;

/// What is known of an arm against the control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonVerdict {
    /// The mean of the arm is greater.
    Better,
    /// The mean of the arm is smaller.
    Worse,
    /// Neither is known, or the difference changed over time.
    Undecided,
}

impl ComparisonVerdict {
    /// Returns the name under which the verdict is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Undecided => "undecided",
        }
    }
}

/// An arm against the control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many pairs of units were compared.
    pub n_pairs: usize,
    /// The mean of the arm less that of the control, over the pairs, from -1 to 1; `None` without any.
    pub difference: Option<f64>,
    /// The lower and the upper end of where the difference is, from -1 to 1; `None` where no
    /// difference fits all that was seen, because it changed over time.
    pub interval: Option<(f64, f64)>,
    /// The capital won now by betting against that there is no difference: a number from 0, of which
    /// 1 says nothing.
    pub e_value: f64,
    /// How likely it is that so much is ever won against the control by any of the arms that are
    /// compared, if none differs: a number from 0 to 1 that never grows.
    pub p_value: f64,
    /// What is known.
    pub verdict: ComparisonVerdict,
}

/// Compares the values of the units of an arm with those of the control, each from 0 to 1 and in the
/// order in which they were settled.
///
/// The verdict on any of `n_arms` arms that are compared with the same control is wrong at any time
/// with a probability of at most `alpha`, above 0 and below 1 (Bonferroni).
#[must_use]
pub fn compare(arm: &[f64], control: &[f64], alpha: f64, n_arms: usize) -> Comparison {
    let n_arms = float(n_arms.max(1));
    let pairs = arm.iter().zip(control);
    let moved: Vec<f64> = pairs
        .map(|(arm, control)| f64::midpoint(arm - control, 1.0).clamp(0.0, 1.0))
        .collect();
    let game = Game::new(&moved, alpha / n_arms);
    let (up, down) = (game.won(0.5, Side::Up), game.won(0.5, Side::Down));
    let most = up.most.max(down.most);
    let last = up.last.max(down.last);
    let half = 2.0_f64.ln();
    let interval = game.interval();
    // Where no difference is left, what was won against none of them says which one it is.
    let is_enough = |won: Won| interval.is_some() && game.is_enough(won);
    let verdict = match (is_enough(up), is_enough(down)) {
        (true, false) => ComparisonVerdict::Better,
        (false, true) => ComparisonVerdict::Worse,
        _ => ComparisonVerdict::Undecided,
    };
    let n = moved.len();
    let mean = moved.iter().sum::<f64>() / float(n.max(1));
    Comparison {
        n_pairs: n,
        difference: (n > 0).then_some(2.0 * mean - 1.0),
        interval,
        e_value: (last - half).exp().min(f64::MAX),
        p_value: (n_arms * (half - most).exp()).min(1.0),
        verdict,
    }
}

/// In which direction is bet.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// That the mean is greater.
    Up,
    /// That it is smaller.
    Down,
}

/// The logarithm of a capital.
#[derive(Clone, Copy, Debug)]
struct Won {
    /// After the last bet.
    last: f64,
    /// At its highest.
    most: f64,
}

struct Game<'a> {
    values: &'a [f64],
    /// How much is bet on each value, before it is known.
    bets: Vec<f64>,
    /// The logarithm of the capital that is enough.
    enough: f64,
}

impl<'a> Game<'a> {
    fn new(values: &'a [f64], alpha: f64) -> Self {
        let enough = (2.0 / alpha).ln();
        let (mut sum, mut squares, mut variance) = (0.5, 0.25, 0.25);
        let mut bets = Vec::with_capacity(values.len());
        for (before, value) in values.iter().enumerate() {
            let n = float(before + 1);
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

    /// Returns what is won by betting against a mean.
    fn won(&self, mean: f64, side: Side) -> Won {
        let (sign, most_bet) = match side {
            Side::Up => (1.0, MOST_LOST / mean),
            Side::Down => (-1.0, MOST_LOST / (1.0 - mean)),
        };
        let mut won = Won {
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

    fn is_enough(&self, won: Won) -> bool {
        won.most >= self.enough
    }

    /// Returns the differences that are left. The more a mean is moved to its side, the less is won
    /// by betting against it, so that an end is found by halving.
    fn interval(&self) -> Option<(f64, f64)> {
        let end = |side: Side, start: f64| {
            if !self.is_enough(self.won(start, side)) {
                return start;
            }
            let (mut refuted, mut left) = (start, 1.0 - start);
            for _ in 0..N_HALVINGS {
                let middle = f64::midpoint(refuted, left);
                if self.is_enough(self.won(middle, side)) {
                    refuted = middle;
                } else {
                    left = middle;
                }
            }
            refuted
        };
        let (lower, upper) = (end(Side::Up, 0.0), end(Side::Down, 1.0));
        (lower <= upper).then_some((2.0 * lower - 1.0, 2.0 * upper - 1.0))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of units are far below 2^52"
)]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
