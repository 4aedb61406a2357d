//! Recorded sessions, and work sessions.

use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::usage::session::SessionSummary;
use riglm_domain::usage::work_session::WorkSession;

use super::StoreError;

/// Reads recorded sessions and work sessions.
///
/// The call count of a session includes the calls whose beginning is recorded. Its tools are the
/// tools of every page that was listed to it.
#[async_trait]
pub trait SessionRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` sessions by start, oldest first; ties by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions(&self, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
        self.sessions_where(&SessionFilter::default(), limit).await
    }

    /// Returns the newest `limit` sessions that match, oldest first, as [`Self::sessions`] does.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions_where(
        &self,
        filter: &SessionFilter,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, StoreError>;

    /// Returns the clients of recorded sessions that identify themselves with this name, and the
    /// client whose keyed hash in hexadecimal it is.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn clients_named(&self, name: &str) -> Result<BTreeSet<KeyedHash>, StoreError>;

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

/// A filter of sessions, with a limit for counting their calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only sessions that started before this one; ties by identifier. It is the cursor of a page.
    pub before: Option<(Timestamp, SessionId)>,
    /// Only sessions without a recorded end (true), or only sessions with one (false).
    pub is_open: Option<bool>,
    /// Only the session with this identifier.
    pub id: Option<SessionId>,
    /// The maximum of the call count of each session. With it, listing many sessions does not wait
    /// until all calls of a long session are counted.
    pub count_up_to: Option<u32>,
}
