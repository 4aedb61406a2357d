//! Lists that sessions were shown, and what the sessions did with them: list policies are evaluated
//! by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::selection::account::ListActivity;
use riglm_domain::selection::shown::ListShown;

use super::StoreError;

/// Reads the lists that sessions were shown, alone and together with their calls and searches.
///
/// A [`ListActivity`] has lists, calls and searches without their contents. The newest `limit` of
/// each kind are read, oldest first: calls and searches by identifier, lists by moment. Further
/// rounds of a multi-round call do not count as calls.
#[async_trait]
pub trait ListRepository: Send + Sync + fmt::Debug {
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

    /// Returns the sessions that were open at a moment or later, each with its start: the newest
    /// `limit` by start, oldest first; ties by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions_open_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<(SessionId, Timestamp)>, StoreError>;

    /// Returns the work sessions of the newest `limit` calls of each session, by position. A session
    /// without such calls in a work session has no entry.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn work_sessions_of(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, BTreeSet<WorkSessionId>>, StoreError>;

    /// Returns the work sessions with calls that began at a moment or later, by the time in their
    /// identifiers: the newest `limit`, each with the session of its newest call.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn work_sessions_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<BTreeMap<WorkSessionId, SessionId>, StoreError>;

    /// Returns the activity of each session, which may be empty. `limit` applies to each of them.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn list_activities(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, ListActivity>, StoreError>;

    /// Returns the activity of a work session over all its connections.
    ///
    /// The activity has the calls of the work session. It also has the searches and lists of its
    /// connections from its beginning to its last activity, and the list that was current at its
    /// beginning. It is empty for a work session without calls. Of a work session with more than
    /// `limit` calls, only the connections of the newest `limit` count.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn list_activity_of(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<ListActivity, StoreError>;
}
