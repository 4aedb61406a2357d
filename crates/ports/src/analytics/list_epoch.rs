//! Epochs of lists.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::selection::epoch::ListEpoch;

use super::StoreError;

/// Stores the epoch of each scope, so that all processes agree on it. Every new one changes
/// [`Topic::ListEpochs`](super::Topic::ListEpochs).
///
/// Epochs of work sessions and of clients may be deleted
/// ([`Maintenance::purge`](super::Maintenance::purge),
/// [`ClientData::delete`](super::ClientData::delete)). Their scope then begins with epoch 1 again.
#[async_trait]
pub trait ListEpochRepository: Send + Sync + fmt::Debug {
    /// Begins an epoch unless it has begun. Returns the current epoch.
    ///
    /// The first epoch of a scope is 1, and each later one has the next number. An epoch with
    /// another number does not begin. Concurrent calls for the same epoch all return the same
    /// epoch, with the tools of the first call.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails, and [`StoreError::Conflict`] for a number
    /// that is not the next one of a scope without any epoch.
    async fn begin_epoch(&self, epoch: &ListEpoch) -> Result<ListEpoch, StoreError>;

    /// Returns the current epoch of a scope; `None` before the first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn list_epoch(&self, scope: &str) -> Result<Option<ListEpoch>, StoreError>;
}
