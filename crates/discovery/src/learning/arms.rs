//! Predictors of experiment arms, used instead of the default predictor.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::prediction::PredictorSet;
use riglm_ports::predictor;

use super::learner::{Learner, Origin};
use super::shared_learner::SharedLearner;

/// The most predictors of arms, in addition to the default one. Each has its own memory and learns
/// from every call.
pub const MAX_ARM_PREDICTORS: usize = 4;

/// Creates a predictor that has learned nothing yet.
pub(super) type MakePredictor = dyn Fn() -> Box<dyn predictor::Learner> + Send + Sync;

/// The factory of a predictor for arms.
#[derive(Clone)]
pub struct ArmPredictor {
    /// The predictor set in the plans of experiments.
    pub set: PredictorSet,
    /// The name of its snapshots; predictors that learn differently need different names.
    pub model: String,
    /// Creates a predictor that has learned nothing yet.
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

/// A predictor of arms with its learned data.
#[derive(Debug)]
pub(super) struct ArmLearner {
    pub(super) how: ArmPredictor,
    pub(super) learner: SharedLearner,
    is_ready: AtomicBool,
}

impl ArmLearner {
    /// Creates one that has learned nothing yet.
    pub(super) fn new(how: ArmPredictor) -> Self {
        let learner = Learner::new((how.make)(), Origin::default());
        Self {
            how,
            learner: SharedLearner::new(learner),
            is_ready: AtomicBool::new(false),
        }
    }

    /// Returns whether it has learned the calls recorded before the start.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }
}
