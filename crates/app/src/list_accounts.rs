//! What lists cost and saved the sessions that are stored.
//!
//! Connections whose calls belong to work sessions are judged by those: a client that opens a
//! connection for each call goes on with the same prompt. Calls of such a connection that belong to
//! none are left out then.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::economics::CostModel;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::list_account::{ListAccount, ListActivity, ListSummary};
use riglm_ports::analytics::{ListActivityRepository, StoreError};

/// How many lists, calls and searches of a session are read at most: the account of a longer one
/// is that of its newest part.
const MOST_ROWS: u32 = 10_000;

/// How many sessions are read at once.
const PAGE: usize = 50;

/// The account of a session that was shown lists.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionLists {
    /// The policy of its newest list.
    pub policy: String,
    /// What its lists came to.
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

/// What the lists of a time came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentLists {
    /// Sums over the sessions that were shown lists.
    pub summary: ListSummary,
    /// Connections that were looked at, whether lists of theirs are recorded or not.
    pub n_connections: u64,
}

/// Returns the accounts of those of the connections that were shown lists.
///
/// # Errors
///
/// Returns [`StoreError`] when the store does not answer.
pub async fn accounts_of(
    store: &dyn ListActivityRepository,
    sessions: &[SessionId],
    prices: &CostModel,
) -> Result<BTreeMap<SessionId, SessionLists>, StoreError> {
    let mut accounts = BTreeMap::new();
    for page in sessions.chunks(PAGE) {
        let activities = store.list_activities(page, MOST_ROWS).await?;
        accounts.extend(activities.into_iter().filter_map(|(session, activity)| {
            let lists = SessionLists::new(&activity, prices)?;
            Some((session, lists))
        }));
    }
    Ok(accounts)
}

/// Returns the account of a work session over all its connections; `None` when it was shown no
/// list.
///
/// # Errors
///
/// Returns [`StoreError`] when the store does not answer.
pub async fn account_of_work_session(
    store: &dyn ListActivityRepository,
    work_session: WorkSessionId,
    prices: &CostModel,
) -> Result<Option<SessionLists>, StoreError> {
    let activity = store.list_activity_of(work_session, MOST_ROWS).await?;
    Ok(SessionLists::new(&activity, prices))
}

/// Returns what the lists came to of the newest `limit` connections that began at a moment or
/// later: of the work sessions that they belong to, and of those that belong to none. `clients` has
/// the names that clients give themselves; a work session is that of its first connection.
///
/// # Errors
///
/// Returns [`StoreError`] when the store does not answer.
pub async fn recent_lists(
    store: &dyn ListActivityRepository,
    since: Timestamp,
    limit: u32,
    prices: &CostModel,
    clients: &BTreeMap<SessionId, String>,
) -> Result<RecentLists, StoreError> {
    let connections = store.sessions_since(since, limit).await?;
    let mut recent = RecentLists {
        n_connections: connections.len() as u64,
        ..RecentLists::default()
    };
    let client = |connection: &SessionId| clients.get(connection).map(String::as_str);
    let mut work_sessions: BTreeMap<WorkSessionId, Option<&str>> = BTreeMap::new();
    for page in connections.chunks(PAGE) {
        let known = store.work_sessions_of(page, None).await?;
        let mut others = page.to_vec();
        others.retain(|connection| !known.contains_key(connection));
        for (connection, known) in known {
            for work_session in known {
                work_sessions
                    .entry(work_session)
                    .or_insert_with(|| client(&connection));
            }
        }
        for (connection, lists) in accounts_of(store, &others, prices).await? {
            (recent.summary).add(&lists.policy, client(&connection), &lists.account);
        }
    }
    for (work_session, client) in work_sessions {
        let lists = account_of_work_session(store, work_session, prices).await?;
        if let Some(lists) = lists {
            recent.summary.add(&lists.policy, client, &lists.account);
        }
    }
    Ok(recent)
}

#[cfg(test)]
mod tests;
