//! Predictors of single principals, each of which learns from the calls of its principal alone.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;
use sha2::{Digest, Sha256};

use super::arms::MakePredictor;
use super::learner::{Learner, Origin};
use super::shared_learner::SharedLearner;

/// The most principals with a predictor in memory. Beyond it, the predictor without a request for
/// the longest time is dropped. It is learned again from the store when it is needed.
pub const MAX_PRINCIPAL_PREDICTORS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// Whether learned data of one principal may affect another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LearningIsolation {
    /// Learned data of one principal helps the others.
    #[default]
    Shared,
    /// Each principal has learned data of its own alone.
    PerPrincipal,
}

/// The factory of the predictors of principals.
#[derive(Clone)]
pub struct PrincipalPredictors {
    /// The beginning of the names of their snapshots.
    pub model: String,
    /// Creates a predictor that has learned nothing yet.
    pub make: Arc<MakePredictor>,
    /// The principals whose predictors are ready at the start; others are learned when they are
    /// first needed.
    pub expected: Vec<Principal>,
}

impl fmt::Debug for PrincipalPredictors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrincipalPredictors")
            .field("model", &self.model)
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}

impl PrincipalPredictors {
    /// Returns the name of the snapshots of a principal. It has a hash, because names of principals
    /// may be of any length.
    pub(super) fn model_of(&self, principal: &Principal) -> String {
        let hash: [u8; 32] = Sha256::digest(principal.as_str()).into();
        format!("{}, principal {}", self.model, hex::encode(hash))
    }
}

/// The predictor of one principal.
#[derive(Debug)]
pub(super) struct PrincipalLearner {
    pub(super) principal: Principal,
    pub(super) learner: SharedLearner,
}

/// The predictors of the principals that were needed last.
#[derive(Debug)]
pub(super) struct PrincipalLearners {
    pub(super) how: PrincipalPredictors,
    learners: Mutex<LruCache<Principal, Arc<PrincipalLearner>>>,
}

impl PrincipalLearners {
    pub(super) fn new(how: PrincipalPredictors) -> Self {
        let all = Self {
            learners: Mutex::new(LruCache::new(MAX_PRINCIPAL_PREDICTORS)),
            how,
        };
        let expected = all.how.expected.clone();
        for principal in expected.iter().take(MAX_PRINCIPAL_PREDICTORS.get()) {
            let _ = all.of(principal);
        }
        all
    }

    /// Returns the predictor of a principal. A new one has learned nothing until the task has read
    /// the calls of its principal.
    pub(super) fn of(&self, principal: &Principal) -> Arc<PrincipalLearner> {
        let mut learners = self.learners.lock();
        if let Some(known) = learners.get(principal) {
            return Arc::clone(known);
        }
        let learner = Learner::new((self.how.make)(), Origin::default()).only_of(principal.clone());
        let new = Arc::new(PrincipalLearner {
            principal: principal.clone(),
            learner: SharedLearner::new(learner),
        });
        learners.put(principal.clone(), Arc::clone(&new));
        new
    }

    /// Returns the predictor of a principal if it is in memory. This is no need of the principal: no
    /// predictor is created, and none stays longer because of it.
    pub(super) fn peek(&self, principal: &Principal) -> Option<Arc<PrincipalLearner>> {
        self.learners.lock().peek(principal).cloned()
    }

    /// Returns all predictors, by principal.
    pub(super) fn all(&self) -> Vec<Arc<PrincipalLearner>> {
        let learners = self.learners.lock();
        let mut all: Vec<_> = learners.iter().map(|(_, one)| Arc::clone(one)).collect();
        all.sort_by(|one, other| one.principal.cmp(&other.principal));
        all
    }
}
