//! Costs and savings of lists for stored sessions.
//!
//! If the calls of a connection belong to work sessions, those are counted instead: a client that
//! opens a connection for each call continues with the same prompt. Other calls of such a
//! connection are left out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_discovery::activity_units::{ActivityUnits, CONNECTIONS_PER_READ, MAX_ACTIVITY_ROWS};
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::selection::account::{ListAccount, ListActivity, ListSummary};
use riglm_domain::selection::economics::CostModel;
use riglm_ports::analytics::{ListRepository, StoreError};

/// The account of a session with lists.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionLists {
    /// The policy of its newest list.
    pub policy: String,
    /// The costs and savings of its lists.
    pub account: ListAccount,
}

impl SessionLists {
    fn new(activity: &ListActivity, prices: &CostModel) -> Option<Self> {
        Some(Self {
            policy: activity.newest_list()?.policy.clone(),
            account: ListAccount::new(activity, prices),
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
    let mut accounts = BTreeMap::new();
    for page in sessions.chunks(CONNECTIONS_PER_READ) {
        let activities = store.list_activities(page, MAX_ACTIVITY_ROWS).await?;
        accounts.extend(activities.into_iter().filter_map(|(session, activity)| {
            let lists = SessionLists::new(&activity, prices)?;
            Some((session, lists))
        }));
    }
    Ok(accounts)
}

/// Returns the account of a work session over all its connections; `None` if it has no list.
///
/// # Errors
///
/// Returns [`StoreError`] if the store fails.
pub async fn account_of_work_session(
    store: &dyn ListRepository,
    work_session: WorkSessionId,
    prices: &CostModel,
) -> Result<Option<SessionLists>, StoreError> {
    let activity = store
        .list_activity_of(work_session, MAX_ACTIVITY_ROWS)
        .await?;
    Ok(SessionLists::new(&activity, prices))
}

/// Returns the costs and savings of the newest `limit` connections that began at `since` or later:
/// by work session, or by connection for those without. `clients` has the declared names of
/// clients; a work session has the name of its first connection.
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
        ..RecentLists::default()
    };
    let client = |connection: &SessionId| clients.get(connection).map(String::as_str);
    for page in units.connections.chunks(CONNECTIONS_PER_READ) {
        for (connection, lists) in accounts_of(store, page, prices).await? {
            (recent.summary).add(&lists.policy, client(&connection), &lists.account);
        }
    }
    for (work_session, connection) in units.work_sessions {
        let lists = account_of_work_session(store, work_session, prices).await?;
        if let Some(lists) = lists {
            (recent.summary).add(&lists.policy, client(&connection), &lists.account);
        }
    }
    Ok(recent)
}

#[cfg(test)]
mod tests;
