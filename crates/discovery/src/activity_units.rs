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
    /// The number of connections that were open in the period.
    pub n_connections: usize,
    /// The connections without a work session that began in the period, the oldest first.
    pub connections: Vec<SessionId>,
    /// The work sessions that began in the period, each with one of its connections: the first one in
    /// the order of reading.
    pub work_sessions: BTreeMap<WorkSessionId, SessionId>,
}

impl ActivityUnits {
    /// Reads the units that began at `since` or later, of the newest `limit` connections that were open
    /// then: a connection that is older may have work sessions in the period.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store fails.
    pub async fn read(
        store: &dyn ListRepository,
        since: Timestamp,
        limit: u32,
    ) -> Result<Self, StoreError> {
        let connections = store.sessions_open_since(since, limit).await?;
        let mut units = Self {
            n_connections: connections.len(),
            ..Self::default()
        };
        // Identifiers of work sessions sort by time, so no row is read of those that are older.
        let first = WorkSessionId::new(since, [0; 10]);
        for page in connections.chunks(CONNECTIONS_PER_READ) {
            let ids: Vec<SessionId> = page.iter().map(|(id, _)| *id).collect();
            let known = store.work_sessions_of(&ids, None).await?;
            let others = page.iter().filter(|(_, started_at)| *started_at >= since);
            let others = others
                .map(|(id, _)| *id)
                .filter(|id| !known.contains_key(id));
            units.connections.extend(others);
            for (connection, work_sessions) in known {
                for work_session in work_sessions.range(first..) {
                    let units = units.work_sessions.entry(*work_session);
                    units.or_insert(connection);
                }
            }
        }
        Ok(units)
    }
}
