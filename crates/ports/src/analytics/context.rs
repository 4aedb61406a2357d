//! Recorded contexts: tasks that clients declared.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::{ContextId, SessionId};
use riglm_domain::intent::context::Context;
use riglm_domain::privacy::principal::Principal;

use super::StoreError;

/// Reads recorded contexts.
#[async_trait]
pub trait ContextRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` contexts by identifier, oldest first, of a session or of all.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn contexts(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError>;

    /// Returns the newest `limit` contexts of a principal by identifier, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn contexts_of(
        &self,
        principal: &Principal,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError>;

    /// Returns the stored contexts with these identifiers, oldest first by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn contexts_with(&self, ids: &[ContextId]) -> Result<Vec<Context>, StoreError>;
}
