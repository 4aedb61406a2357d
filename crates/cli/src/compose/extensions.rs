//! Parts that a program of its own puts in place of the configured ones.

use std::fmt;
use std::sync::Arc;

use riglm_discovery::learning::LearningTurns;
use riglm_ports::clock::Clock;
use riglm_ports::external_predictor::ExternalPredictor;
use riglm_ports::predictor::Learner;

/// Adapters of a program that embeds riglm. The default has none: everything follows the
/// configuration.
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    /// A predictor that learns, in place of the one that `prediction.predictor` names. Arms of
    /// experiments still name predictors of riglm.
    pub predictor: Option<PredictorFactory>,
    /// A source of scores for the next tool, in place of a command or URL in
    /// `prediction.predictor`. Its deadline and its role are those of the configuration; by default
    /// it is an expert of the mix with 50 ms.
    pub external_predictor: Option<Arc<dyn ExternalPredictor>>,
    /// A clock in place of that of the system, for records and for what is learned from them.
    pub clock: Option<Arc<dyn Clock>>,
    /// The turns of learning, for a program that decides when the recorded calls are learned. By
    /// default that is every two seconds.
    pub learning_turns: Option<Arc<LearningTurns>>,
}

/// Creates predictors that have learned nothing yet.
#[derive(Clone)]
pub struct PredictorFactory {
    /// The name of its learned data in the store. Predictors that learn differently need different
    /// names.
    pub model: String,
    /// Creates one.
    pub make: Arc<MakeLearner>,
}

/// Creates a predictor that has learned nothing yet.
pub type MakeLearner = dyn Fn() -> Box<dyn Learner> + Send + Sync;

impl fmt::Debug for PredictorFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredictorFactory")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
