//! The units in which the recorded activity of clients is evaluated: work sessions, and connections
//! without any.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_ports::analytics::{ListRepository, StoreError};

/// The most lists, calls and searches to read for a unit. A longer one is covered by its newest part.
pub const MAX_ACTIVITY_ROWS: u32 = 10_000;

/// The number of connections in one read.
pub const CONNECTIONS_PER_READ: usize = 50;

/// The units of a period.
///
/// If the calls of a connection belong to work sessions, those are its units: a client that opens a
/// connection for each call continues with the same prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityUnits {
    /// The number of connections in the period.
    pub n_connections: usize,
    /// The connections without a work session, the newest first.
    pub connections: Vec<SessionId>,
    /// The work sessions, each with one of its connections: the first one in the order of reading.
    pub work_sessions: BTreeMap<WorkSessionId, SessionId>,
}

impl ActivityUnits {
    /// Reads the units of the newest `limit` connections that began at `since` or later.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store fails.
    pub async fn read(
        store: &dyn ListRepository,
        since: Timestamp,
        limit: u32,
    ) -> Result<Self, StoreError> {
        let connections = store.sessions_since(since, limit).await?;
        let mut units = Self {
            n_connections: connections.len(),
            ..Self::default()
        };
        for page in connections.chunks(CONNECTIONS_PER_READ) {
            let known = store.work_sessions_of(page, None).await?;
            let others = page.iter().filter(|one| !known.contains_key(one));
            units.connections.extend(others.copied());
            for (connection, work_sessions) in known {
                for work_session in work_sessions {
                    let units = units.work_sessions.entry(work_session);
                    units.or_insert(connection);
                }
            }
        }
        Ok(units)
    }
}
