//! A learner that is asked while it learns.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::learner::Learner;

/// A learner that is taught by one task, and asked by others meanwhile.
#[derive(Clone, Debug)]
pub(super) struct SharedLearner(Arc<RwLock<Learner>>);

impl SharedLearner {
    pub(super) fn new(learner: Learner) -> Self {
        Self(Arc::new(RwLock::new(learner)))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Learner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held for one call at a time: others wait for it.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Learner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what another one learned in the place of what this one learned.
    pub(super) fn take_over(&self, other: &Self) {
        std::mem::swap(&mut *self.write(), &mut *other.write());
    }
}
