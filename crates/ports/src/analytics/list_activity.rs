//! What sessions did that lists are judged by.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::list_account::ListActivity;

use super::StoreError;

/// Reads lists, calls and searches together, without what was said in them.
///
/// The newest `limit` of each kind are read, oldest first: calls and searches by identifier, lists
/// by moment. Further rounds of a logical call are no calls of their own.
#[async_trait]
pub trait ListActivityRepository: Send + Sync + fmt::Debug {
    /// Returns the sessions that started at a moment or later, the newest `limit` by start, oldest
    /// first; ties by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions_since(
        &self,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<SessionId>, StoreError>;

    /// Returns the work sessions that calls of each of the sessions belong to, the newest `limit` calls
    /// by position where that is given; nothing for a session without such calls.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn work_sessions_of(
        &self,
        sessions: &[SessionId],
        limit: Option<u32>,
    ) -> Result<BTreeMap<SessionId, BTreeSet<WorkSessionId>>, StoreError>;

    /// Returns what each of the sessions did, which may be nothing; `limit` is for each of them.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn list_activities(
        &self,
        sessions: &[SessionId],
        limit: u32,
    ) -> Result<BTreeMap<SessionId, ListActivity>, StoreError>;

    /// Returns what a work session did over all connections over which it called: its calls, and
    /// what these connections searched and were shown from its beginning to its last activity, with
    /// the list that held at its beginning. Nothing for a work session without calls.
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
