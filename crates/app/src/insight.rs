//! What operators see of what was recorded: sessions with what happened in them, and tools.

mod timeline;
mod tools;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{RecommendationId, SessionId, WorkSessionId};
use riglm_domain::invocation::CallSession;
use riglm_domain::recommendation::Recommendation;
use riglm_domain::session::SessionSummary;
use riglm_domain::tool::ToolRef;
use riglm_domain::work_session::WorkSession;
use riglm_ports::analytics::{
    InvocationRepository, ListActivityRepository, ListShownRepository, RecommendationRepository,
    SearchRepository, SessionFilter, SessionRepository, StoreError, ToolDefinitionRepository,
    UsageRepository, WorkSessionRepository,
};
use riglm_ports::clock::Clock;

use crate::proxy::Proxy;

pub use timeline::{Timeline, TimelineEntry};
pub use tools::{KnownTool, ToolInsight, UpstreamUse, UsedTool, Which};

/// What is read. One store is all of them.
pub trait InsightStore:
    SessionRepository
    + WorkSessionRepository
    + InvocationRepository
    + ListShownRepository
    + ListActivityRepository
    + SearchRepository
    + ToolDefinitionRepository
    + RecommendationRepository
    + UsageRepository
{
}

impl<S> InsightStore for S where
    S: SessionRepository
        + WorkSessionRepository
        + InvocationRepository
        + ListShownRepository
        + ListActivityRepository
        + SearchRepository
        + ToolDefinitionRepository
        + RecommendationRepository
        + UsageRepository
{
}

/// Reads what was recorded, for operators.
#[derive(Debug)]
pub struct Insight {
    store: Arc<dyn InsightStore>,
    clock: Arc<dyn Clock>,
    proxy: Option<Arc<Proxy>>,
}

/// How many calls of a session a page counts and looks at: one with 100,000 would take as long as the
/// answers to hundreds of calls.
const COUNTED_CALLS: u32 = 1_000;

/// A session of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedSession {
    /// The session; of its calls at most 1,000 are counted.
    pub summary: SessionSummary,
    /// Whether it made more than that.
    pub has_more_calls: bool,
    /// The work sessions of its newest 1,000 calls.
    pub work_sessions: BTreeSet<WorkSessionId>,
    /// Probability that its client looks for a hidden tool that it needs, by what it did so far; `None`
    /// where that is not known.
    pub seeks: Option<f64>,
}

/// A page of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionPage {
    /// The sessions, the newest first.
    pub sessions: Vec<ListedSession>,
    /// Where the next page begins; `None` of the last one.
    pub next: Option<(Timestamp, SessionId)>,
}

/// A session: one connection, or what a client did over several.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionView {
    /// A connection.
    Connection(Box<SessionSummary>),
    /// A work session.
    Work(WorkSession),
}

impl Insight {
    /// Returns a reader of a store.
    #[must_use]
    pub fn new(store: Arc<dyn InsightStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            proxy: None,
        }
    }

    /// Has sessions be found by the identifiers that their transports gave to open ones, too.
    #[must_use]
    pub fn with_proxy(self, proxy: Arc<Proxy>) -> Self {
        Self {
            proxy: Some(proxy),
            ..self
        }
    }

    /// Returns a recommendation; `None` when there is none with this identifier.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn recommendation(
        &self,
        id: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError> {
        self.store.recommendation(id).await
    }

    /// Returns where the definitions of tools are read.
    #[must_use]
    pub fn definitions(&self) -> &dyn ToolDefinitionRepository {
        &*self.store
    }

    /// Returns the newest sessions, the newest first, that stand before `before`.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
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
            count_up_to: Some(COUNTED_CALLS + 1),
        };
        let mut sessions = (self.store)
            .sessions_where(&filter, limit.saturating_add(1))
            .await?;
        let is_last = sessions.len() <= limit as usize;
        if !is_last {
            // They come oldest first, and the oldest is the one too many.
            sessions.remove(0);
        }
        sessions.reverse();
        let next = (sessions.last().filter(|_| !is_last))
            .map(|last| (last.session.started_at, last.session.id));
        let ids: Vec<SessionId> = sessions.iter().map(|one| one.session.id).collect();
        let newest = Some(COUNTED_CALLS);
        let mut work = self.store.work_sessions_of(&ids, newest).await?;
        let sessions = sessions.into_iter().map(|mut summary| {
            let work_sessions = work.remove(&summary.session.id).unwrap_or_default();
            let has_more_calls = summary.n_calls > COUNTED_CALLS.into();
            summary.n_calls = summary.n_calls.min(COUNTED_CALLS.into());
            ListedSession {
                seeks: self.seeks(&summary),
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

    /// Returns the probability that the client of a session looks for a hidden tool that it needs, by what it
    /// did so far; `None` where that is not known.
    #[must_use]
    pub fn seeks(&self, summary: &SessionSummary) -> Option<f64> {
        let session = &summary.session;
        let proxy = self.proxy.as_ref()?;
        proxy.seeks(&session.principal, &session.client_info.name)
    }

    /// Returns the session with this identifier, which may be that of a work session, of a connection,
    /// or the one that its transport gave to an open connection; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn session(&self, id: &str) -> Result<Option<SessionView>, StoreError> {
        if let Ok(work) = id.parse::<WorkSessionId>()
            && let Some(session) = self.store.work_session(work).await?
        {
            return Ok(Some(SessionView::Work(session)));
        }
        let of_transport = self
            .proxy
            .as_ref()
            .and_then(|proxy| proxy.connection_of(id));
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

    /// Returns the connection over which the newest call of a work session came; `None` where none is
    /// recorded.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn connection_of_work(
        &self,
        work: WorkSessionId,
    ) -> Result<Option<SessionId>, StoreError> {
        let newest = self.store.calls_of_work(work, 1).await?;
        Ok(newest.last().map(|call| call.invocation.session))
    }

    /// Returns the clients that give themselves a name, and the one whose identifier it is.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn clients_named(&self, name: &str) -> Result<BTreeSet<KeyedHash>, StoreError> {
        self.store.clients_named(name).await
    }

    /// Returns the tools that were ever listed, by upstream and name.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn tools_seen(&self) -> Result<Vec<ToolRef>, StoreError> {
        self.store.tools_seen().await
    }
}

impl SessionView {
    /// Returns what calls of it belong to.
    #[must_use]
    pub fn calls(&self) -> CallSession {
        match self {
            Self::Connection(summary) => CallSession::Connection(summary.session.id),
            Self::Work(session) => CallSession::Work(session.id),
        }
    }
}
