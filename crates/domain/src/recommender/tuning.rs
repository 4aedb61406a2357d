//! Weights that follow what people choose and how they rate it.
//!
//! The earlier part of the feedback trains a candidate, the later part judges it: the candidate is
//! used only if the tools that were chosen later would have stood higher with it than with the
//! weights at present, by a margin that chance seldom makes. A run changes a weight by a little, and
//! no weight becomes so large or so small that a factor stands alone or is gone.
//!
//! Who looks from the top of a list chooses what stands there. How far people look is estimated from
//! their choices, and a choice at a place that few look at stands for as many as were not made there
//! (inverse propensity weights, clipped; Joachims, Swaminathan and Schnabel 2017, arXiv 1608.04468).
//! Without that the weights that made the lists would seem to be the best ones.

mod bootstrap;
mod bounds;
mod examples;
mod objective;
mod position_bias;
#[cfg(test)]
mod simulation;

use jiff::Timestamp;

use super::factors::FactorWeights;
use position_bias::PositionBias;

pub use bootstrap::Gain;
pub use bounds::WeightBounds;
pub use examples::{Example, ExampleGroup, JudgedTool, examples};

/// The share of the examples that train; the others, which are later, judge.
const TRAINING_SHARE: f64 = 0.7;
/// How many examples judge at least, as a share of those that there have to be.
const JUDGING_SHARE: f64 = 1.0 - TRAINING_SHARE;
/// How many work sessions the examples that judge have to be of.
const MIN_GROUPS: usize = 20;

/// How weights are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningOptions {
    /// How many examples there have to be.
    pub min_examples: usize,
    /// What chance is made of.
    pub seed: u64,
    /// Examples up to this moment only train: the weights at present were judged by them already.
    pub judged_until: Option<Timestamp>,
}

/// What tuning came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Tuning {
    /// There is too little to go by.
    TooFew(Shortage),
    /// The weights at present are the best within their bounds, to four decimals.
    Settled,
    /// There is a candidate.
    Tried(Trial),
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Examples: recommendations of which a tool was chosen or rated.
    #[error("{found} recommendations have feedback, and {needed} are needed")]
    Examples {
        /// How many there are.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
    /// Later ones among them, which judge.
    #[error(
        "{found} recommendations with feedback are new enough to judge by, and {needed} are needed"
    )]
    Judging {
        /// How many there are.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
    /// Work sessions that these are of.
    #[error("what would judge comes from {found} work sessions, and {needed} are needed")]
    Groups {
        /// How many there are.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
}

/// A candidate, and how it did on the later examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The weights.
    pub candidate: FactorWeights,
    /// How many examples they were made of.
    pub n_training: usize,
    /// How many examples they were judged by.
    pub n_judging: usize,
    /// How fast people stop looking: the k-th place is looked at k to the power of minus this as often
    /// as the first.
    pub position_bias: f64,
    /// What is gained.
    pub gain: Gain,
    /// What would be gained if people looked at every place alike.
    pub plain_gain: f64,
}

impl Trial {
    /// Returns whether the candidate is better than the weights at present: the gain is above zero
    /// at the lower end of its interval, and there is one in the plain count, too. The latter keeps
    /// weights that people are content with, where nobody can tell whether they choose tools because
    /// they stand high or because they are good.
    #[must_use]
    pub fn is_better(&self) -> bool {
        self.gain.low > 0.0 && self.plain_gain > 0.0
    }
}

/// Looks for better weights. `examples` are in the order of time, as [`examples()`] returns them.
#[must_use]
pub fn tune(examples: &[Example], present: &FactorWeights, options: &TuningOptions) -> Tuning {
    let (training, judging) = match split(examples, options) {
        Ok(parts) => parts,
        Err(shortage) => return Tuning::TooFew(shortage),
    };
    let bounds = WeightBounds::around(present);
    let bias = PositionBias::of(training);
    let candidate = objective::minimised(training, bias, present, &bounds);
    if candidate == bounds.rounded(present) {
        return Tuning::Settled;
    }
    let gain = |bias| bootstrap::gain(judging, bias, present, &candidate, options.seed);
    Tuning::Tried(Trial {
        candidate,
        n_training: training.len(),
        n_judging: judging.len(),
        position_bias: bias.0,
        gain: gain(bias),
        plain_gain: gain(PositionBias::NONE).difference(),
    })
}

/// Splits examples into those that train and those that judge.
fn split<'a>(
    examples: &'a [Example],
    options: &TuningOptions,
) -> Result<(&'a [Example], &'a [Example]), Shortage> {
    let (found, needed) = (examples.len(), options.min_examples);
    if found < needed.max(1) {
        return Err(Shortage::Examples { found, needed });
    }
    let n_training = part_of(TRAINING_SHARE, found);
    let is_judged = |example: &Example| {
        let until = options.judged_until;
        until.is_some_and(|until| example.shown_at <= until)
    };
    let n_judged = examples.partition_point(is_judged);
    let (training, judging) = examples.split_at(n_training.max(n_judged));
    let (found, needed) = (judging.len(), part_of(JUDGING_SHARE, needed));
    if found < needed.max(1) {
        return Err(Shortage::Judging { found, needed });
    }
    let groups: std::collections::BTreeSet<_> =
        judging.iter().map(|example| example.group).collect();
    let (found, needed) = (groups.len(), MIN_GROUPS);
    if found < needed {
        return Err(Shortage::Groups { found, needed });
    }
    Ok((training, judging))
}

/// Returns so large a part of a number of things, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of things is one"
)]
fn part_of(share: f64, n: usize) -> usize {
    (share * real(n)) as usize
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of examples and tools are far below 2^52"
)]
fn real(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
