//! The work sessions of requests.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::usage::work_session::{IdleGap, WorkSession};

use super::StoreError;

/// Stores work sessions, so that all processes agree on them. They are read with
/// [`SessionRepository`](super::SessionRepository).
#[async_trait]
pub trait WorkSessionRepository: Send + Sync + fmt::Debug {
    /// Returns the work session of a request.
    ///
    /// `candidate` is the work session to begin if no existing one continues. Its key, principal
    /// and client are those of the request, and its start is the time of the request. If the newest
    /// work session with this key continues at that moment ([`WorkSession::continues_at`]), it is
    /// returned, with the moment as its last activity unless it has a later one. Concurrent
    /// requests all get the same work session.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn resolve_work_session(
        &self,
        candidate: &WorkSession,
        idle_gap: IdleGap,
    ) -> Result<WorkSession, StoreError>;
}
