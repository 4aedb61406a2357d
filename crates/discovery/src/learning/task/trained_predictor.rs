//! One predictor in training.

use std::fmt;
use std::sync::Arc;

use riglm_domain::privacy::principal::Principal;

use crate::learning::arms::MakePredictor;
use crate::learning::learner::{Learner, Origin};
use crate::learning::shared_learner::SharedLearner;

/// A predictor in training, with the state of its snapshots.
pub(super) struct TrainedPredictor {
    /// The name of its snapshots.
    pub(super) model: String,
    make: Arc<MakePredictor>,
    pub(super) learner: SharedLearner,
    /// The only principal that it learns from; `None` for all.
    pub(super) principal: Option<Principal>,
    /// The newest known snapshot, 0 without any.
    pub(super) version: u64,
    /// The number of learned calls at the last snapshot.
    pub(super) n_saved: Option<u64>,
}

impl fmt::Debug for TrainedPredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taught")
            .field("model", &self.model)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl TrainedPredictor {
    pub(super) fn new(model: String, make: Arc<MakePredictor>, learner: SharedLearner) -> Self {
        Self {
            model,
            make,
            learner,
            principal: None,
            version: 0,
            n_saved: None,
        }
    }

    /// Makes it learn from the calls of one principal alone.
    pub(super) fn only_of(self, principal: Principal) -> Self {
        Self {
            principal: Some(principal),
            ..self
        }
    }

    /// Creates an untrained predictor of the same kind.
    pub(super) fn new_learner(&self, origin: Origin) -> SharedLearner {
        let learner = Learner::new((self.make)(), origin);
        SharedLearner::new(match &self.principal {
            Some(principal) => learner.only_of(principal.clone()),
            None => learner,
        })
    }

    /// Discards the learned data.
    pub(super) fn reset(&self, origin: Origin) {
        self.learner.take_over(&self.new_learner(origin));
    }
}
