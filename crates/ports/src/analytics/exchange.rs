//! Recorded requests other than tool calls.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::SessionId;
use riglm_domain::mcp::exchange::Exchange;

use super::StoreError;

/// Reads recorded requests for resources and prompts.
#[async_trait]
pub trait ExchangeRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` requests of a session by start, oldest first; ties by
    /// identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError>;
}
