//! A learner that can be queried while it learns.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::learner::Learner;

/// A learner that one task trains while others query it.
#[derive(Clone, Debug)]
pub(super) struct SharedLearner(Arc<RwLock<Learner>>);

impl SharedLearner {
    pub(super) fn new(learner: Learner) -> Self {
        Self(Arc::new(RwLock::new(learner)))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Learner> {
        self.0.read()
    }

    // Hold the lock for one call at a time, because predictions wait for it.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Learner> {
        self.0.write()
    }

    /// Returns whether both are the same learner, not only equal ones.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Replaces the learned data by that of another learner.
    pub(super) fn take_over(&self, other: &Self) {
        std::mem::swap(&mut *self.write(), &mut *other.write());
    }
}
