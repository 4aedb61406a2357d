//! Predictors that arms of experiments have in place of that of everybody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::prediction::PredictorSet;
use riglm_ports::predictor::Predictor;

use super::learner::{Learner, Origin};
use super::shared_learner::SharedLearner;

/// The most predictors that arms of experiments have together, beside that of everybody: each has
/// a memory of its own, and learns from every call.
pub const MAX_ARM_PREDICTORS: usize = 4;

/// Makes a predictor that learned nothing yet.
pub(super) type MakePredictor = dyn Fn() -> Box<dyn Predictor> + Send + Sync;

/// How a predictor is made that arms have.
#[derive(Clone)]
pub struct ArmPredictor {
    /// The name of it in the plans of experiments.
    pub set: PredictorSet,
    /// Under which name its snapshots are kept, which tells predictors apart that learn
    /// differently.
    pub model: String,
    /// Makes one that learned nothing yet.
    pub make: Arc<MakePredictor>,
}

impl fmt::Debug for ArmPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArmPredictor")
            .field("set", &self.set)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// A predictor of arms, with what it learned.
#[derive(Debug)]
pub(super) struct OfArms {
    pub(super) how: ArmPredictor,
    pub(super) learner: SharedLearner,
    is_ready: AtomicBool,
}

impl OfArms {
    /// Returns one that learned nothing yet.
    pub(super) fn new(how: ArmPredictor) -> Self {
        let learner = Learner::new((how.make)(), Origin::default());
        Self {
            how,
            learner: SharedLearner::new(learner),
            is_ready: AtomicBool::new(false),
        }
    }

    /// Returns whether it learned all that was recorded before.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }
}
