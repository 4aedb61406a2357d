//! Queries on recorded data for operators: sessions, their timelines, and tools.

mod paths;
mod timeline;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use riglm_discovery::activity_units::ActivityUnits;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{RecommendationId, SessionId, WorkSessionId};
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::selection::economics::CostModel;
use riglm_domain::usage::invocation::SessionKey;
use riglm_domain::usage::session::SessionSummary;
use riglm_domain::usage::work_session::WorkSession;
use riglm_ports::analytics::{
    DiscoveryRepository, InvocationRepository, ListRepository, SessionFilter, SessionRepository,
    StoreError, ToolDefinitionRepository, UsageRepository,
};
use riglm_ports::clock::Clock;
use tokio::sync::Mutex;

use self::tools::RecentUses;
use super::account_cache::AccountCache;
use super::list_accounts::{RecentSessions, SessionLists};
use crate::proxy::Proxy;
use crate::tracking::CachedTokenCounter;

pub use paths::{ToolPath, ToolPaths, tool_paths};
pub use timeline::{Timeline, TimelineEntry};
pub use tools::{KnownTool, ToolLookup, ToolUsage, UpstreamUsage, UsedTool};

/// Repositories of recorded data, all in one store.
pub trait QueryStore:
    SessionRepository
    + InvocationRepository
    + ListRepository
    + DiscoveryRepository
    + ToolDefinitionRepository
    + UsageRepository
{
}

impl<S> QueryStore for S where
    S: SessionRepository
        + InvocationRepository
        + ListRepository
        + DiscoveryRepository
        + ToolDefinitionRepository
        + UsageRepository
{
}

/// Reads recorded data for operators.
#[derive(Debug)]
pub struct Queries {
    store: Arc<dyn QueryStore>,
    clock: Arc<dyn Clock>,
    proxy: Option<Arc<Proxy>>,
    /// Counts the tokens of definitions.
    counter: Option<Arc<CachedTokenCounter>>,
    /// The recent use of tools, for a short time.
    recent: Mutex<Option<RecentUses>>,
    /// The accounts of sessions and work sessions, which all reports share.
    accounts: AccountCache,
}

/// Maximum number of calls of a session that a page counts and checks. A session with 100,000 calls
/// would take as long as hundreds of others.
const COUNTED_CALLS: u32 = 1_000;

/// A session of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedSession {
    /// The session. At most 1,000 of its calls are counted.
    pub summary: SessionSummary,
    /// Whether the session has more calls.
    pub has_more_calls: bool,
    /// Work sessions of its newest 1,000 calls.
    pub work_sessions: BTreeSet<WorkSessionId>,
    /// Probability that the client searches for a hidden tool that it needs, estimated from its
    /// behaviour so far. `None` if unknown.
    pub search_probability: Option<f64>,
}

/// A page of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionPage {
    /// The sessions, the newest first.
    pub sessions: Vec<ListedSession>,
    /// Cursor of the next page, or `None` on the last page.
    pub next: Option<(Timestamp, SessionId)>,
}

/// A session or a work session.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionView {
    /// A session, which is one connection.
    Connection(Box<SessionSummary>),
    /// A work session, possibly over several sessions.
    Work(WorkSession),
}

impl Queries {
    /// Returns a reader of a store.
    #[must_use]
    pub fn new(store: Arc<dyn QueryStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            proxy: None,
            counter: None,
            recent: Mutex::default(),
            accounts: AccountCache::default(),
        }
    }

    /// Adds the proxy, so that open sessions are also found by the identifiers of their transports.
    #[must_use]
    pub fn with_proxy(self, proxy: Arc<Proxy>) -> Self {
        Self {
            proxy: Some(proxy),
            ..self
        }
    }

    /// Adds a counter, so that the tokens of definitions are known.
    #[must_use]
    pub fn with_token_counter(self, counter: Arc<CachedTokenCounter>) -> Self {
        Self {
            counter: Some(counter),
            ..self
        }
    }

    /// Returns a recommendation, or `None` if no recommendation has this identifier.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn recommendation(
        &self,
        id: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError> {
        self.store.recommendation(id).await
    }

    /// Returns the repository of tool definitions.
    #[must_use]
    pub fn definitions(&self) -> &dyn ToolDefinitionRepository {
        &*self.store
    }

    /// Returns the accounts of the sessions with lists at these prices. Those of ended sessions may be
    /// some minutes old, and those of open ones some seconds if they have thousands of calls.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn accounts_of(
        &self,
        sessions: &[&SessionSummary],
        prices: &CostModel,
    ) -> Result<BTreeMap<SessionId, SessionLists>, StoreError> {
        let now = self.clock.now();
        (self.accounts)
            .of(&*self.store, sessions, prices, now)
            .await
    }

    /// Returns the sessions with lists that began at `since` or later: of the newest `limit`
    /// connections that were open then, and the newest `limit` work sessions. The accounts of work
    /// sessions that nobody has used for an hour may be some minutes old.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn recent_sessions(
        &self,
        since: Timestamp,
        limit: u32,
        prices: &CostModel,
    ) -> Result<RecentSessions, StoreError> {
        let units = ActivityUnits::read(&*self.store, since, limit).await?;
        let now = self.clock.now();
        let read = self.accounts.of_units(&*self.store, &units, prices, now);
        Ok(RecentSessions {
            sessions: read.await?,
            n_connections: units.n_connections as u64,
            is_cut: units.is_cut,
        })
    }

    /// Returns the start of the period of this many days up to now: a full hour, because calls are
    /// counted by hour, and all numbers of a period must be about the same time.
    #[must_use]
    pub fn start_of_period(&self, days: u32) -> Timestamp {
        days_before(self.clock.now(), days)
    }

    /// Returns a page of the sessions before the cursor `before`, the newest first.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn sessions(
        &self,
        before: Option<(Timestamp, SessionId)>,
        is_open: Option<bool>,
        limit: u32,
    ) -> Result<SessionPage, StoreError> {
        let filter = SessionFilter {
            before,
            is_open,
            id: None,
            // One call more than shown tells whether there are more.
            count_up_to: Some(COUNTED_CALLS + 1),
        };
        // One session more than the limit tells whether there is a next page.
        let mut sessions = (self.store)
            .sessions_where(&filter, limit.saturating_add(1))
            .await?;
        let is_last = sessions.len() <= limit as usize;
        if !is_last {
            // Sessions are sorted oldest first, so the first one belongs to the next page.
            sessions.remove(0);
        }
        sessions.reverse();
        let next = (sessions.last().filter(|_| !is_last))
            .map(|last| (last.session.started_at, last.session.id));
        let ids: Vec<SessionId> = sessions.iter().map(|one| one.session.id).collect();
        let mut work = self.store.work_sessions_of(&ids, COUNTED_CALLS).await?;
        let sessions = sessions.into_iter().map(|mut summary| {
            let work_sessions = work.remove(&summary.session.id).unwrap_or_default();
            let has_more_calls = summary.n_calls > COUNTED_CALLS.into();
            summary.n_calls = summary.n_calls.min(COUNTED_CALLS.into());
            ListedSession {
                search_probability: self.search_probability(&summary),
                summary,
                has_more_calls,
                work_sessions,
            }
        });
        Ok(SessionPage {
            sessions: sessions.collect(),
            next,
        })
    }

    /// Returns the probability that the client of a session searches for a hidden tool that it
    /// needs, estimated from its behaviour so far. Returns `None` if it is unknown.
    #[must_use]
    pub fn search_probability(&self, summary: &SessionSummary) -> Option<f64> {
        let session = &summary.session;
        let proxy = self.proxy.as_ref()?;
        proxy.search_probability(&session.principal, &session.client_info.name)
    }

    /// Returns the session with this identifier, or `None`. The identifier can be of a work
    /// session, of a session, or of the transport of an open session.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn session(&self, id: &str) -> Result<Option<SessionView>, StoreError> {
        if let Ok(work) = id.parse::<WorkSessionId>()
            && let Some(session) = self.store.work_session(work).await?
        {
            return Ok(Some(SessionView::Work(session)));
        }
        let of_transport = (self.proxy.as_ref()).and_then(|proxy| proxy.connection_of(id));
        let Some(id) = of_transport.or_else(|| id.parse().ok()) else {
            return Ok(None);
        };
        let filter = SessionFilter {
            id: Some(id),
            ..SessionFilter::default()
        };
        let mut found = self.store.sessions_where(&filter, 1).await?;
        let found = found.pop().map(Box::new);
        Ok(found.map(SessionView::Connection))
    }

    /// Returns the session of the newest call of a work session, or `None` if no call is recorded. At
    /// most one of its calls is counted.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn newest_connection_of(
        &self,
        work: WorkSessionId,
    ) -> Result<Option<SessionSummary>, StoreError> {
        let newest = self.store.calls_of_work(work, 1).await?;
        let Some(call) = newest.last() else {
            return Ok(None);
        };
        let filter = SessionFilter {
            id: Some(call.invocation.session),
            count_up_to: Some(1),
            ..SessionFilter::default()
        };
        Ok(self.store.sessions_where(&filter, 1).await?.pop())
    }

    /// Returns whether a session is open and its newest call belongs to a work session.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn is_working_on(
        &self,
        connection: &SessionSummary,
        work: WorkSessionId,
    ) -> Result<bool, StoreError> {
        if connection.ended_at.is_some() {
            return Ok(false);
        }
        let id = connection.session.id;
        let newest = self.store.work_sessions_of(&[id], 1).await?;
        Ok(newest.get(&id).is_some_and(|works| works.contains(&work)))
    }

    /// Returns the clients with this name or this identifier.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn clients_named(&self, name: &str) -> Result<BTreeSet<KeyedHash>, StoreError> {
        self.store.clients_named(name).await
    }

    /// Returns the tools that were ever listed, by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn tools_seen(&self) -> Result<Vec<ToolRef>, StoreError> {
        self.store.tools_seen().await
    }
}

impl SessionView {
    /// Returns the session key of its calls.
    #[must_use]
    pub fn calls(&self) -> SessionKey {
        match self {
            Self::Connection(summary) => SessionKey::Connection(summary.session.id),
            Self::Work(session) => SessionKey::Work(session.id),
        }
    }
}

/// Returns the full hour before the time this many times 24 hours before `now`, or 1970 if that is
/// out of range.
pub(super) fn days_before(now: Timestamp, days: u32) -> Timestamp {
    let back = SignedDuration::from_hours(24 * i64::from(days));
    full_hour(now.checked_sub(back).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Returns the beginning of the hour of a time.
pub(super) fn full_hour(at: Timestamp) -> Timestamp {
    let hour = TimestampRound::new().smallest(Unit::Hour);
    at.round(hour.mode(RoundMode::Floor)).unwrap_or(at)
}
