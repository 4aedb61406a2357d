//! What a run is made of, and what it came to, also in words.

use std::fmt;
use std::sync::Arc;

use riglm_domain::recommender::tuning::{Shortage, Trial};
use riglm_domain::recommender::{Factor, FactorWeights};
use riglm_domain::weights::WeightVersion;
use riglm_ports::analytics::{
    FeedbackRepository, RecommendationRepository, StoreError, WeightRepository,
};

use super::source::RankingWeights;

/// What of the store weights are tuned on.
#[derive(Clone, Debug)]
pub struct TuningStores {
    /// What was recommended.
    pub recommendations: Arc<dyn RecommendationRepository>,
    /// What was said of it.
    pub feedback: Arc<dyn FeedbackRepository>,
    /// The weights.
    pub weights: Arc<dyn WeightRepository>,
}

impl TuningStores {
    /// Returns the parts of one store.
    #[must_use]
    pub fn of<S>(store: &Arc<S>) -> Self
    where
        S: RecommendationRepository + FeedbackRepository + WeightRepository + 'static,
    {
        Self {
            recommendations: Arc::clone(store) as _,
            feedback: Arc::clone(store) as _,
            weights: Arc::clone(store) as _,
        }
    }
}

/// How weights are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// How many recommendations with feedback there have to be.
    pub min_examples: usize,
    /// What chance is made of.
    pub seed: u64,
}

/// What a run read, and what it came to.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningRun {
    /// The weights at present.
    pub present: RankingWeights,
    /// How many recommendations with feedback there are.
    pub n_examples: usize,
    /// What became of it.
    pub outcome: RunOutcome,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// There is too little to go by.
    TooFew(Shortage),
    /// The weights at present are the best within their bounds.
    Settled,
    /// A candidate was no better than chance may make it.
    NotBetter(Trial),
    /// A candidate is better; it was only to be looked for.
    Better(Trial),
    /// A candidate is better, and is used from now on.
    Adopted {
        /// Its version.
        version: u64,
        /// The candidate.
        trial: Trial,
    },
    /// A candidate is better, and another process changed the weights meanwhile: nothing was written.
    Overtaken(Trial),
}

/// Why weights are neither tuned nor taken back.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The configuration has weights, which win.
    #[error(
        "recommend.weights is configured and wins over weights that are tuned; remove it to have \
         them tuned"
    )]
    Configured,
    /// There is no version to go back to.
    #[error("there is no version of the weights before the one that is used")]
    NoEarlier,
    /// There is no such version.
    #[error("the weights have no version {0}")]
    NoVersion(u64),
    /// A stored version is no weights of the factors.
    #[error("{0}")]
    Unusable(String),
    /// The work was cut off.
    #[error("the search for better weights did not come to its end")]
    CutOff,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All versions of the weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightHistory {
    /// The versions, oldest first.
    pub versions: Vec<WeightVersion>,
    /// The one that is used.
    pub used: Option<u64>,
    /// The configuration has weights, which win over the version that is used.
    pub is_configured: bool,
}

/// Returns why a candidate is used: what changed, how many recommendations say so, and what is gained.
pub(super) fn reason(before: &FactorWeights, trial: &Trial) -> String {
    format!("{}; {}", changes(before, trial), evidence(trial))
}

fn changes(before: &FactorWeights, trial: &Trial) -> String {
    let changed: Vec<String> = (Factor::ALL.into_iter())
        .filter_map(|factor| {
            let (before, after) = (before.of(factor), trial.candidate.of(factor));
            let is_same = (before - after).abs() < 5e-5;
            let name = factor.as_str();
            (!is_same).then(|| format!("{name} {before:.4} to {after:.4}"))
        })
        .collect();
    changed.join(", ")
}

fn evidence(trial: &Trial) -> String {
    let gain = &trial.gain;
    format!(
        "made of {} recommendations with feedback, judged by {} later ones: mean reciprocal rank \
         {:.4} to {:.4}, a gain of {:+.4} ({:+.4} to {:+.4})",
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
    /// Says what became of the weights and why, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = &self.present.weights;
        match &self.outcome {
            RunOutcome::TooFew(shortage) => write!(f, "the weights stay: {shortage}"),
            RunOutcome::Settled => write!(
                f,
                "the weights stay: none within a step are better on {} recommendations with feedback",
                self.n_examples
            ),
            RunOutcome::NotBetter(trial) => write!(
                f,
                "the weights stay: what was found may be better by chance alone ({})",
                reason(before, trial)
            ),
            RunOutcome::Better(trial) => {
                write!(f, "better weights were found: {}", reason(before, trial))
            }
            RunOutcome::Adopted { version, trial } => write!(
                f,
                "the weights have version {version} now: {}",
                reason(before, trial)
            ),
            RunOutcome::Overtaken(_) => {
                write!(
                    f,
                    "the weights stay: another process changed them meanwhile"
                )
            }
        }
    }
}
