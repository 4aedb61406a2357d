//! Options and results of a tuning run, with messages.

use std::fmt;
use std::sync::Arc;

use riglm_domain::recommendation::tuning::{CandidateWeights, InsufficientData};
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_domain::recommendation::{Factor, FactorWeights};
use riglm_ports::analytics::{DiscoveryRepository, StoreError, WeightRepository};

use super::source::{InvalidVersion, RankingWeights};

/// Repositories for weight tuning.
#[derive(Clone, Debug)]
pub struct TuningStores {
    /// Recommendations, and feedback on them.
    pub discovery: Arc<dyn DiscoveryRepository>,
    /// Weights.
    pub weights: Arc<dyn WeightRepository>,
}

impl TuningStores {
    /// Returns the repositories of one store.
    #[must_use]
    pub fn of<S>(store: &Arc<S>) -> Self
    where
        S: DiscoveryRepository + WeightRepository + 'static,
    {
        Self {
            discovery: Arc::clone(store) as _,
            weights: Arc::clone(store) as _,
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningRun {
    /// The present weights.
    pub present: RankingWeights,
    /// The number of recommendations with feedback.
    pub n_examples: usize,
    /// The outcome.
    pub outcome: RunOutcome,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// There is too little feedback.
    TooFew(InsufficientData),
    /// The present weights are the best within one step.
    Settled,
    /// The gain of the candidate may be due to chance.
    NotBetter(CandidateWeights),
    /// The candidate is better. It was not adopted, because the run was only a look.
    Better(CandidateWeights),
    /// The candidate is better and has been adopted.
    Adopted {
        /// Its version.
        version: u64,
        /// The candidate.
        trial: CandidateWeights,
    },
    /// The candidate is better, but another process changed the weights during the run. Nothing was
    /// written.
    Overtaken(CandidateWeights),
}

/// The reason why weights cannot be tuned or rolled back.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The configuration has weights, which take precedence.
    #[error(
        "recommend.weights is configured and overrides tuned weights; remove it to enable tuning"
    )]
    Configured,
    /// There is no earlier version.
    #[error("the weights have no version before the one in use")]
    NoEarlier,
    /// The version does not exist.
    #[error("the weights have no version {0}")]
    NoVersion(u64),
    /// A stored version does not have valid weights.
    #[error(transparent)]
    Unusable(#[from] InvalidVersion),
    /// The run was aborted.
    #[error("the search for better weights was interrupted")]
    CutOff,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All versions of the weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightHistory {
    /// The versions, oldest first.
    pub versions: Vec<WeightVersion>,
    /// The version in use.
    pub used: Option<u64>,
    /// Whether the configuration has weights, which take precedence over the version in use.
    pub is_configured: bool,
}

/// Returns the reason for adopting a candidate: the changes, the number of recommendations, and the
/// gain.
pub(super) fn reason(before: &FactorWeights, trial: &CandidateWeights) -> String {
    format!("{}; {}", changes(before, trial), evidence(trial))
}

fn changes(before: &FactorWeights, trial: &CandidateWeights) -> String {
    let changed: Vec<String> = (Factor::ALL.iter())
        .filter_map(|&factor| {
            let (before, after) = (before.of(factor), trial.candidate.of(factor));
            // Weights are shown with four decimals, so a smaller change would not be visible.
            let is_same = (before - after).abs() < 5e-5;
            let name = factor.as_str();
            (!is_same).then(|| format!("{name} {before:.4} to {after:.4}"))
        })
        .collect();
    changed.join(", ")
}

fn evidence(trial: &CandidateWeights) -> String {
    let gain = &trial.gain;
    format!(
        "tuned on {} recommendations with feedback, evaluated on {} later ones: mean reciprocal \
         rank {:.4} to {:.4}, gain {:+.4} ({:+.4} to {:+.4})",
        trial.n_training,
        trial.n_judging,
        gain.before,
        gain.after,
        gain.difference(),
        gain.low,
        gain.high
    )
}

impl fmt::Display for TuningRun {
    /// Writes the outcome and its reason as one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = &self.present.weights;
        match &self.outcome {
            RunOutcome::TooFew(shortage) => write!(f, "weights unchanged: {shortage}"),
            RunOutcome::Settled => write!(
                f,
                "weights unchanged: one step finds no better weights on {} recommendations with \
                 feedback",
                self.n_examples
            ),
            RunOutcome::NotBetter(trial) => write!(
                f,
                "weights unchanged: the gain may be random ({})",
                reason(before, trial)
            ),
            RunOutcome::Better(trial) => {
                write!(f, "found better weights: {}", reason(before, trial))
            }
            RunOutcome::Adopted { version, trial } => write!(
                f,
                "weights changed to version {version}: {}",
                reason(before, trial)
            ),
            RunOutcome::Overtaken(_) => {
                write!(
                    f,
                    "weights unchanged: another process changed them at the same time"
                )
            }
        }
    }
}
