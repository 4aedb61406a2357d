//! Lists as they were shown to clients.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::SessionId;
use riglm_domain::selection::shown::ListShown;

use super::StoreError;

/// Reads the lists that sessions were shown.
#[async_trait]
pub trait ListShownRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` lists of a session by moment, oldest first. If several lists have
    /// the same moment, only the first recorded one is kept.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn lists_shown(
        &self,
        session: SessionId,
        limit: u32,
    ) -> Result<Vec<ListShown>, StoreError>;
}
