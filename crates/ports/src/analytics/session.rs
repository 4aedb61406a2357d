//! Recorded sessions.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::session::SessionSummary;

use super::StoreError;

/// Reads recorded sessions.
///
/// A session counts the calls whose beginning is recorded. Its tools are those of every page that
/// was listed to it.
#[async_trait]
pub trait SessionRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` sessions by start, oldest first; ties by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions(&self, limit: u32) -> Result<Vec<SessionSummary>, StoreError>;
}
