//! Work sessions.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::WorkSessionId;
use riglm_domain::work_session::{IdleGap, WorkSession};

use super::StoreError;

/// Keeps work sessions, on which all processes agree.
#[async_trait]
pub trait WorkSessionRepository: Send + Sync + fmt::Debug {
    /// Returns the work session that a request belongs to.
    ///
    /// `candidate` is the work session that begins with the request, if none goes on: its key, its
    /// principal and its client are those of the request, and it began when it came. When the
    /// newest work session with this key continues at that moment
    /// ([`WorkSession::continues_at`]), that one is returned, with the moment as its last activity
    /// unless it had a later one. Of several requests at once all get the same.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn resolve_work_session(
        &self,
        candidate: &WorkSession,
        idle_gap: IdleGap,
    ) -> Result<WorkSession, StoreError>;

    /// Returns a work session; `None` when there is none with this identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn work_session(&self, id: WorkSessionId) -> Result<Option<WorkSession>, StoreError>;

    /// Returns the newest `limit` work sessions by last activity, oldest first; ties by
    /// identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn work_sessions(&self, limit: u32) -> Result<Vec<WorkSession>, StoreError>;
}
