//! Recorded searches for tools.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::SessionId;
use riglm_domain::retrieval::search::Search;

use super::StoreError;

/// Reads recorded searches.
#[async_trait]
pub trait SearchRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` searches by identifier, oldest first, of a session or of all.
    /// Results keep their order.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn searches(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Search>, StoreError>;
}
