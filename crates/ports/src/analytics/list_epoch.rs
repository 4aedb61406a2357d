//! Epochs of lists.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::list_epoch::ListEpoch;

use super::StoreError;

/// Keeps the epoch of each scope, on which all processes agree. Every new one changes
/// [`Topic::ListEpochs`](super::Topic::ListEpochs).
///
/// Epochs of work sessions and of clients may be removed
/// ([`Maintenance::purge`](super::Maintenance::purge),
/// [`ClientData::delete`](super::ClientData::delete)): their scope begins with epoch 1 again.
#[async_trait]
pub trait ListEpochRepository: Send + Sync + fmt::Debug {
    /// Begins an epoch unless it has begun; returns the epoch that holds. The first epoch of a
    /// scope is 1, each further one has the next number: an epoch with another number than that
    /// does not begin. Of several that begin the same epoch at once all return the same, with the
    /// tools of the first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails, and [`StoreError::Conflict`] for a number
    /// that is not the next one of a scope without any epoch.
    async fn begin_epoch(&self, epoch: &ListEpoch) -> Result<ListEpoch, StoreError>;

    /// Returns the epoch of a scope; `None` before the first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn list_epoch(&self, scope: &str) -> Result<Option<ListEpoch>, StoreError>;
}
