//! One of the predictors that are taught.

use std::fmt;
use std::sync::Arc;

use crate::learning::arms::MakePredictor;
use crate::learning::learner::{Learner, Origin};
use crate::learning::shared_learner::SharedLearner;

/// A predictor that is taught, and what is known of its snapshots.
pub(super) struct Taught {
    /// Under which name snapshots are kept.
    pub(super) model: String,
    make: Arc<MakePredictor>,
    pub(super) learner: SharedLearner,
    /// The newest snapshot that is known, 0 without any.
    pub(super) version: u64,
    /// How many calls had been learned from when the last snapshot was taken.
    pub(super) n_saved: Option<u64>,
}

impl fmt::Debug for Taught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taught")
            .field("model", &self.model)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Taught {
    pub(super) fn new(model: String, make: Arc<MakePredictor>, learner: SharedLearner) -> Self {
        Self {
            model,
            make,
            learner,
            version: 0,
            n_saved: None,
        }
    }

    /// Returns one of its kind that learned nothing yet.
    pub(super) fn untaught(&self, origin: Origin) -> SharedLearner {
        SharedLearner::new(Learner::new((self.make)(), origin))
    }

    /// Forgets what was learned.
    pub(super) fn begin_anew(&self, origin: Origin) {
        self.learner.take_over(&self.untaught(origin));
    }
}
