//! Costs and savings of lists for stored sessions.
//!
//! If the calls of a connection belong to work sessions, those are counted instead: a client that
//! opens a connection for each call continues with the same prompt. Other calls of such a
//! connection are left out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_discovery::activity_units::{ActivityUnits, CONNECTIONS_PER_READ, MAX_ACTIVITY_ROWS};
use riglm_domain::id::SessionId;
use riglm_domain::selection::account::{Calibration, ListAccount, ListActivity, ListSummary};
use riglm_domain::selection::economics::CostModel;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::analytics::{ListRepository, StoreError};

/// The account of a session with lists.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionLists {
    /// The policy of its newest list.
    pub policy: String,
    /// The costs and savings of its lists.
    pub account: ListAccount,
    /// The calls under lists with an expected coverage.
    pub calibration: Calibration,
}

impl SessionLists {
    fn new(activity: &ListActivity, prices: &CostModel) -> Option<Self> {
        let policy = activity.newest_list()?.policy.clone();
        let (account, calibration) = ListAccount::with_calibration(activity, prices);
        Some(Self {
            policy,
            account,
            calibration,
        })
    }
}

/// The costs and savings of all lists in a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentLists {
    /// Sums over the sessions with lists.
    pub summary: ListSummary,
    /// The number of connections in the period, with or without recorded lists.
    pub n_connections: u64,
    /// Whether older connections or work sessions of the period were left out.
    pub is_cut: bool,
}

/// A work session with lists, or a connection without a work session.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentSession {
    /// The work session, or the connection.
    pub key: SessionKey,
    /// The connection; for a work session, that of its newest call.
    pub connection: SessionId,
    /// The time of its first call or search; without both, of its first list.
    pub began_at: Timestamp,
    /// The time of its newest call or search; without both, of its newest list.
    pub last_active_at: Timestamp,
    /// The account of its lists.
    pub lists: SessionLists,
}

impl RecentSession {
    /// Returns `None` for a session without lists.
    fn new(
        key: SessionKey,
        connection: SessionId,
        activity: &ListActivity,
        prices: &CostModel,
    ) -> Option<Self> {
        let lists = SessionLists::new(activity, prices)?;
        let calls = activity.calls.iter().map(|call| call.at);
        let searches = activity.searches.iter().map(|search| search.at);
        let uses = calls.chain(searches);
        let shown = activity.lists.iter().map(|list| list.at);
        // The first list of a work session may be days older, if its connection got it before the
        // work session began.
        Some(Self {
            key,
            connection,
            began_at: uses.clone().min().or_else(|| shown.clone().min())?,
            last_active_at: uses.max().or_else(|| shown.max())?,
            lists,
        })
    }
}

/// The sessions with lists of a period.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentSessions {
    /// The sessions with lists.
    pub sessions: Vec<RecentSession>,
    /// The number of connections that were read, with or without lists.
    pub n_connections: u64,
    /// Whether older sessions of the period were left out.
    pub is_cut: bool,
}

/// Returns the accounts of the connections with lists.
///
/// # Errors
///
/// Returns [`StoreError`] if the store fails.
pub async fn accounts_of(
    store: &dyn ListRepository,
    sessions: &[SessionId],
    prices: &CostModel,
) -> Result<BTreeMap<SessionId, SessionLists>, StoreError> {
    let units = ActivityUnits {
        connections: sessions.to_vec(),
        ..ActivityUnits::default()
    };
    let read = sessions_of(store, &units, prices).await?.into_iter();
    Ok(read.map(|one| (one.connection, one.lists)).collect())
}

/// Returns the costs and savings since `since`, of the newest `limit` connections that were open then:
/// by work session (of the newest `limit`), or by connection for those without. `clients` has the
/// declared names of clients; a work session has the name of the connection of its newest call.
///
/// # Errors
///
/// Returns [`StoreError`] if the store fails.
pub async fn recent_lists(
    store: &dyn ListRepository,
    since: Timestamp,
    limit: u32,
    prices: &CostModel,
    clients: &BTreeMap<SessionId, String>,
) -> Result<RecentLists, StoreError> {
    let units = ActivityUnits::read(store, since, limit).await?;
    let mut recent = RecentLists {
        n_connections: units.n_connections as u64,
        is_cut: units.is_cut,
        ..RecentLists::default()
    };
    for RecentSession {
        connection, lists, ..
    } in sessions_of(store, &units, prices).await?
    {
        let client = clients.get(&connection).map(String::as_str);
        (recent.summary).add(&lists.policy, client, &lists.account);
    }
    Ok(recent)
}

/// Returns the sessions with lists among some units.
pub(super) async fn sessions_of(
    store: &dyn ListRepository,
    units: &ActivityUnits,
    prices: &CostModel,
) -> Result<Vec<RecentSession>, StoreError> {
    let mut sessions = Vec::new();
    for page in units.connections.chunks(CONNECTIONS_PER_READ) {
        let activities = store.list_activities(page, MAX_ACTIVITY_ROWS).await?;
        sessions.extend(activities.iter().filter_map(|(connection, activity)| {
            let key = SessionKey::Connection(*connection);
            RecentSession::new(key, *connection, activity, prices)
        }));
    }
    for (work_session, connection) in &units.work_sessions {
        let activity = store
            .list_activity_of(*work_session, MAX_ACTIVITY_ROWS)
            .await?;
        let key = SessionKey::Work(*work_session);
        sessions.extend(RecentSession::new(key, *connection, &activity, prices));
    }
    Ok(sessions)
}

#[cfg(test)]
pub(super) mod tests;
