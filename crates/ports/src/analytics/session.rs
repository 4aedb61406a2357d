//! Recorded sessions.

use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::SessionId;
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
    async fn sessions(&self, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
        self.sessions_where(&SessionFilter::default(), limit).await
    }

    /// Returns the newest `limit` sessions that fit, oldest first, as [`Self::sessions`] does.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn sessions_where(
        &self,
        filter: &SessionFilter,
        limit: u32,
    ) -> Result<Vec<SessionSummary>, StoreError>;

    /// Returns the clients of recorded sessions that give themselves this name, and the one whose keyed
    /// hash in hexadecimal it is.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn clients_named(&self, name: &str) -> Result<BTreeSet<KeyedHash>, StoreError>;
}

/// Which sessions are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only those that stand before this one: by their start, and by their identifier where they
    /// started at the same moment.
    pub before: Option<(Timestamp, SessionId)>,
    /// Only those whose end is not recorded, or only those whose end is.
    pub is_open: Option<bool>,
    /// Only this one.
    pub id: Option<SessionId>,
    /// How far the calls of each are counted: who lists many sessions need not wait until all calls of
    /// a long one are.
    pub count_up_to: Option<u32>,
}
