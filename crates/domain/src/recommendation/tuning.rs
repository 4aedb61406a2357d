//! Tuning of the ranking weights from the choices and ratings of users.
//!
//! The earlier part of the feedback trains candidate weights, the later part evaluates them. The
//! candidate is used only if it ranks the later chosen tools higher than the present weights do, by
//! a margin that is seldom due to chance. A run changes each weight by a small step, and keeps
//! weights within bounds, so that no factor decides alone and none disappears.
//!
//! Users read a list from the top and choose the tools that they see there. The position bias is
//! estimated from their choices, and a choice at a seldom read position counts more (inverse
//! propensity weights, clipped; Joachims, Swaminathan and Schnabel 2017, arXiv 1608.04468). Without
//! this correction the weights that made the lists would seem to be the best ones.

mod bootstrap;
mod bounds;
mod examples;
mod objective;
mod position_bias;
use crate::num::to_f64;

#[cfg(test)]
mod simulation;

use jiff::Timestamp;

use super::factors::FactorWeights;
use position_bias::PositionBias;

pub use bootstrap::Gain;
pub use bounds::WeightBounds;
pub use examples::{Example, ExampleGroup, JudgedTool, examples};

/// The share of the examples that train. The other, later examples evaluate.
const TRAINING_SHARE: f64 = 0.7;
/// The minimum number of evaluation examples, as a share of the minimum number of examples.
const EVALUATION_SHARE: f64 = 1.0 - TRAINING_SHARE;
/// The minimum number of work sessions that the evaluation examples come from.
const MIN_GROUPS: usize = 20;

/// The options of tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningOptions {
    /// The minimum number of examples.
    pub min_examples: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Examples up to this moment only train: they were used to evaluate the present weights.
    pub judged_until: Option<Timestamp>,
}

/// The outcome of a tuning run.
#[derive(Clone, Debug, PartialEq)]
pub enum TuningOutcome {
    /// There is too little data.
    TooFew(InsufficientData),
    /// The present weights are the best within their bounds, to four decimals.
    Settled,
    /// There is a candidate.
    Tried(CandidateWeights),
}

/// The data that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsufficientData {
    /// Examples: recommendations with a chosen or rated tool.
    #[error("{found} recommendations have feedback, but {needed} are needed")]
    Examples {
        /// The present number.
        found: usize,
        /// The required number.
        needed: usize,
    },
    /// Later examples, for evaluation.
    #[error(
        "{found} recommendations with feedback are new enough for the evaluation, but {needed} \
         are needed"
    )]
    Judging {
        /// The present number.
        found: usize,
        /// The required number.
        needed: usize,
    },
    /// Work sessions of the later examples.
    #[error(
        "the recommendations for the evaluation are from {found} work sessions, but {needed} are \
         needed"
    )]
    Groups {
        /// The present number.
        found: usize,
        /// The required number.
        needed: usize,
    },
}

/// Candidate weights with their evaluation on the later examples.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateWeights {
    /// The candidate weights.
    pub candidate: FactorWeights,
    /// The number of training examples.
    pub n_training: usize,
    /// The number of evaluation examples.
    pub n_judging: usize,
    /// The position bias: the exponent of the decrease of attention. Position k is read k to the
    /// power of minus this as often as the first one.
    pub position_bias: f64,
    /// The gain over the present weights.
    pub gain: Gain,
    /// The gain under the assumption that users read every position equally often.
    pub plain_gain: f64,
}

impl CandidateWeights {
    /// Returns whether the candidate is better than the present weights: the lower end of the
    /// interval of the gain is above zero, and the plain gain is above zero too.
    ///
    /// The second condition keeps weights that satisfy users, because nothing shows whether they
    /// choose a tool for its position or for its quality.
    #[must_use]
    pub fn is_better(&self) -> bool {
        self.gain.low > 0.0 && self.plain_gain > 0.0
    }
}

/// Searches for better weights. `examples` are in the order of time, as [`examples()`] returns
/// them.
#[must_use]
pub fn tune(
    examples: &[Example],
    present: &FactorWeights,
    options: &TuningOptions,
) -> TuningOutcome {
    let (training, judging) = match split_examples(examples, options) {
        Ok(parts) => parts,
        Err(shortage) => return TuningOutcome::TooFew(shortage),
    };
    let bounds = WeightBounds::around(present);
    let bias = PositionBias::of(training);
    let candidate = objective::minimize_loss(training, bias, present, &bounds);
    if candidate == bounds.round(present) {
        return TuningOutcome::Settled;
    }
    let gain = |bias| bootstrap::gain(judging, bias, present, &candidate, options.seed);
    TuningOutcome::Tried(CandidateWeights {
        candidate,
        n_training: training.len(),
        n_judging: judging.len(),
        position_bias: bias.0,
        gain: gain(bias),
        plain_gain: gain(PositionBias::NONE).difference(),
    })
}

/// Splits examples into training and evaluation examples.
fn split_examples<'a>(
    examples: &'a [Example],
    options: &TuningOptions,
) -> Result<(&'a [Example], &'a [Example]), InsufficientData> {
    let (found, needed) = (examples.len(), options.min_examples);
    if found < needed.max(1) {
        return Err(InsufficientData::Examples { found, needed });
    }
    let n_training = share_of(TRAINING_SHARE, found);
    let is_judged = |example: &Example| {
        let until = options.judged_until;
        until.is_some_and(|until| example.shown_at <= until)
    };
    // Examples that evaluated the present weights must not evaluate their successors.
    let n_judged = examples.partition_point(is_judged);
    let (training, judging) = examples.split_at(n_training.max(n_judged));
    let (found, needed) = (judging.len(), share_of(EVALUATION_SHARE, needed));
    if found < needed.max(1) {
        return Err(InsufficientData::Judging { found, needed });
    }
    let groups: std::collections::BTreeSet<_> =
        judging.iter().map(|example| example.group).collect();
    let (found, needed) = (groups.len(), MIN_GROUPS);
    if found < needed {
        return Err(InsufficientData::Groups { found, needed });
    }
    Ok((training, judging))
}

/// Returns this share of `n`, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of things is one"
)]
fn share_of(share: f64, n: usize) -> usize {
    (share * to_f64(n)) as usize
}

#[cfg(test)]
mod tests;
