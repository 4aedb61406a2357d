//! The units in which the recorded activity of clients is evaluated: work sessions, and connections
//! without any.

use std::collections::{BTreeMap, BTreeSet};

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
    /// The work sessions that began in the period, each with the connection of its newest call.
    pub work_sessions: BTreeMap<WorkSessionId, SessionId>,
    /// Whether older connections or work sessions of the period were left out.
    pub is_cut: bool,
}

impl ActivityUnits {
    /// Reads the units that began at `since` or later, of the newest `limit` connections that were open
    /// then: a connection that is older may have work sessions in the period. Of the work sessions in
    /// the period, only the newest `limit` are read. The newest call of a connection tells whether its
    /// calls belong to work sessions.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store fails.
    pub async fn read(
        store: &dyn ListRepository,
        since: Timestamp,
        limit: u32,
    ) -> Result<Self, StoreError> {
        // One more than the limit tells whether there are more. The first ones are the oldest.
        let one_more = limit.saturating_add(1);
        let mut connections = store.sessions_open_since(since, one_more).await?;
        let mut work_sessions = store.work_sessions_since(since, one_more).await?;
        let has_more = [connections.len(), work_sessions.len()].map(|n| n > limit as usize);
        if has_more[0] {
            connections.remove(0);
        }
        if has_more[1] {
            work_sessions.pop_first();
        }
        let asked: BTreeSet<SessionId> = connections.iter().map(|(id, _)| *id).collect();
        work_sessions.retain(|_, connection| asked.contains(connection));
        let of_work: BTreeSet<SessionId> = work_sessions.values().copied().collect();
        let mut units = Self {
            n_connections: connections.len(),
            connections: Vec::new(),
            work_sessions,
            is_cut: has_more.contains(&true),
        };
        for page in connections.chunks(CONNECTIONS_PER_READ) {
            let began = page.iter().filter(|(_, started_at)| *started_at >= since);
            let began: Vec<SessionId> = (began.map(|(id, _)| *id))
                .filter(|id| !of_work.contains(id))
                .collect();
            let known = store.work_sessions_of(&began, 1).await?;
            let others = began.into_iter().filter(|id| !known.contains_key(id));
            units.connections.extend(others);
        }
        Ok(units)
    }
}
