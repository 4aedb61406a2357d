//! The overview: the state of the proxy, what the lists of a period did, and the open sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::selection::account::{ListSummary, PolicySummary};
use riglm_domain::selection::economics::CostModel;
use riglm_domain::usage::session::SessionSummary;
use riglm_ports::analytics::StoreError;
use riglm_ports::clock::Clock;

use super::current_filtering::CurrentFiltering;
use super::list_accounts::SessionLists;
use super::queries::{ListedSession, Queries, SessionPage, UpstreamUsage, days_before};
use super::report_cache::ReportCache;
use crate::proxy::Proxy;
use crate::selection::Strategy;

/// Maximum number of connections, and of work sessions, in a report: the newest ones.
const MAX_SESSIONS: u32 = 1_000;

/// Maximum number of open sessions.
const MAX_OPEN_SESSIONS: u32 = 20;

/// The time for which a report on a period is kept.
const KEEP: Duration = Duration::from_secs(5);

/// The state of the proxy and its sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    /// The time of this overview.
    pub at: Timestamp,
    /// The start of the process.
    pub started_at: Timestamp,
    /// Whether the proxy is paused.
    pub is_paused: bool,
    /// The end of the pause, if the proxy is paused and the pause has an end.
    pub paused_until: Option<Timestamp>,
    /// The strategy for the selection of lists.
    pub strategy: Strategy,
    /// The start of the period.
    pub since: Timestamp,
    /// The recorded activity; `None` if nothing is recorded.
    pub activity: Option<RecordedActivity>,
}

/// The recorded activity of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedActivity {
    /// The report on the period. It may be some seconds old.
    pub period: Arc<PeriodReport>,
    /// The newest open sessions, the newest first.
    pub open_sessions: Vec<SessionWithLists>,
    /// Whether more sessions are open.
    pub has_more_open_sessions: bool,
}

/// The sums over a period.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodReport {
    /// The start of the period, a full hour.
    pub since: Timestamp,
    /// The sum of the uses of all upstreams.
    pub usage: UpstreamUsage,
    /// Sums over the sessions with lists.
    pub lists: PolicySummary,
    /// The number of connections that were open in the period, with or without lists.
    pub n_connections: u64,
    /// Whether older sessions of the period were left out.
    pub is_cut: bool,
}

/// A session with the account of its lists.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionWithLists {
    /// The session.
    pub session: ListedSession,
    /// The account of its lists; `None` before its first list.
    pub lists: Option<SessionLists>,
}

/// A page of sessions, each with the account of its lists.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountedPage {
    /// The sessions, the newest first.
    pub sessions: Vec<SessionWithLists>,
    /// Cursor of the next page, or `None` on the last page.
    pub next: Option<(Timestamp, SessionId)>,
}

impl AccountedPage {
    fn new(page: SessionPage, mut accounts: BTreeMap<SessionId, SessionLists>) -> Self {
        let sessions = page.sessions.into_iter().map(|session| SessionWithLists {
            lists: accounts.remove(&session.summary.session.id),
            session,
        });
        Self {
            sessions: sessions.collect(),
            next: page.next,
        }
    }
}

/// Makes overviews. The reports on periods are cached for some seconds, the accounts of ended sessions
/// for some minutes, and those of open ones for as long as reading them is expensive.
#[derive(Debug)]
pub struct OverviewService {
    proxy: Arc<Proxy>,
    queries: Option<Arc<Queries>>,
    filtering: CurrentFiltering,
    clock: Arc<dyn Clock>,
    started_at: Timestamp,
    periods: ReportCache<u32, PeriodReport>,
}

impl OverviewService {
    /// Creates the service; `queries` is `None` if nothing is recorded. The process counts as
    /// started now.
    #[must_use]
    pub fn new(
        proxy: Arc<Proxy>,
        queries: Option<Arc<Queries>>,
        filtering: CurrentFiltering,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            proxy,
            queries,
            filtering,
            started_at: clock.now(),
            clock,
            periods: ReportCache::new(KEEP),
        }
    }

    /// Returns the overview with a report on the last `days`. The report covers the newest 1,000
    /// connections and the newest 1,000 work sessions.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn overview(&self, days: u32) -> Result<Overview, StoreError> {
        let activity = match &self.queries {
            Some(queries) => Some(self.read_activity(queries, days).await?),
            None => None,
        };
        let at = self.clock.now();
        let since = activity.as_ref().map(|activity| activity.period.since);
        let is_paused = self.proxy.is_paused();
        Ok(Overview {
            at,
            started_at: self.started_at,
            is_paused,
            paused_until: self.proxy.pause().end().filter(|_| is_paused),
            strategy: self.filtering.strategy(),
            since: since.unwrap_or_else(|| days_before(at, days)),
            activity,
        })
    }

    /// Returns a page of the sessions before the cursor `before`, the newest first, each with the
    /// account of its lists; `None` if nothing is recorded.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn sessions(
        &self,
        before: Option<(Timestamp, SessionId)>,
        is_open: Option<bool>,
        limit: u32,
    ) -> Result<Option<AccountedPage>, StoreError> {
        let Some(queries) = &self.queries else {
            return Ok(None);
        };
        let page = queries.sessions(before, is_open, limit).await?;
        let prices = self.filtering.prices();
        Ok(Some(self.with_accounts(queries, page, &prices).await?))
    }

    async fn with_accounts(
        &self,
        queries: &Queries,
        page: SessionPage,
        prices: &CostModel,
    ) -> Result<AccountedPage, StoreError> {
        let sessions = page.sessions.iter().map(|session| &session.summary);
        let sessions: Vec<&SessionSummary> = sessions.collect();
        let accounts = queries.accounts_of(&sessions, prices).await?;
        Ok(AccountedPage::new(page, accounts))
    }

    async fn read_activity(
        &self,
        queries: &Arc<Queries>,
        days: u32,
    ) -> Result<RecordedActivity, StoreError> {
        let prices = self.filtering.prices();
        let computation = report_on_period(Arc::clone(queries), days, prices);
        let period = self.periods.get(days, computation).await?;
        let page = queries
            .sessions(None, Some(true), MAX_OPEN_SESSIONS)
            .await?;
        let page = self.with_accounts(queries, page, &prices).await?;
        Ok(RecordedActivity {
            period,
            open_sessions: page.sessions,
            has_more_open_sessions: page.next.is_some(),
        })
    }
}

async fn report_on_period(
    queries: Arc<Queries>,
    days: u32,
    prices: CostModel,
) -> Result<PeriodReport, StoreError> {
    let since = queries.start_of_period(days);
    let recent = (queries.recent_sessions(since, MAX_SESSIONS, &prices)).await?;
    let mut sums = ListSummary::default();
    for session in &recent.sessions {
        let lists = &session.lists;
        sums.add(&lists.policy, None, &lists.account);
    }
    let mut usage = UpstreamUsage::default();
    for upstream in queries.upstream_uses(days).await?.values() {
        usage.n_tools += upstream.n_tools;
        usage.n_calls += upstream.n_calls;
        usage.n_failed += upstream.n_failed;
    }
    Ok(PeriodReport {
        since,
        usage,
        lists: sums.all,
        n_connections: recent.n_connections,
        is_cut: recent.is_cut,
    })
}

#[cfg(test)]
mod tests {
    use riglm_domain::usage::invocation::Outcome;
    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::RecordSink as _;
    use riglm_ports::contract::scene::{
        call, end, moment, page, run, search, session, session_closed,
    };
    use riglm_ports::fake::{ManualClock, MemoryStore};

    use super::super::list_accounts::tests::{TestSession, use_tools};
    use super::super::queries::full_hour;
    use super::*;
    use crate::selection::{FilteringConfig, Pause};
    use crate::testing::proxy_parts;

    struct Scene {
        store: Arc<MemoryStore>,
        clock: Arc<ManualClock>,
        proxy: Arc<Proxy>,
        service: OverviewService,
    }

    /// Returns a service over an empty store, one second after the start of the scene.
    fn scene() -> Scene {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::at(moment(1_000)));
        let proxy = Arc::new(Proxy::new(proxy_parts(Vec::new())));
        let queries = Queries::new(store.clone(), clock.clone());
        let queries = Some(Arc::new(queries));
        let service = service(&proxy, queries, &clock);
        Scene {
            store,
            clock,
            proxy,
            service,
        }
    }

    fn service(
        proxy: &Arc<Proxy>,
        queries: Option<Arc<Queries>>,
        clock: &Arc<ManualClock>,
    ) -> OverviewService {
        let options = FilteringConfig {
            strategy: Strategy::Prediction,
            ..FilteringConfig::default()
        };
        let filtering = CurrentFiltering::new(options, None);
        OverviewService::new(Arc::clone(proxy), queries, filtering, clock.clone())
    }

    impl Scene {
        async fn activity(&self, days: u32) -> RecordedActivity {
            let overview = self.service.overview(days).await.unwrap();
            overview.activity.unwrap()
        }
    }

    #[tokio::test]
    async fn totals_are_sums_over_sessions_and_calls() {
        let scene = scene();
        for n in [10, 20] {
            use_tools(&scene.store, &TestSession::new(n)).await;
        }
        // A session without lists, with a call that failed.
        let idle = session(run(1), 30);
        let failed = call(idle.id, 31);
        let seen = Record::ToolsSeen {
            listing: page("1", &["echo", "other"]),
            seen_at: moment(0),
        };
        let end = Record::CallClosed(end(&failed, Outcome::Error));
        let records = [
            Record::SessionOpened(idle),
            Record::CallOpened(failed),
            end,
            seen,
        ];
        scene.store.apply(&records).await.unwrap();
        let period = scene.activity(1).await.period;
        assert_eq!(
            period.since,
            full_hour(moment(0)) - jiff::SignedDuration::from_hours(24)
        );
        assert_eq!((period.n_connections, period.is_cut), (3, false));
        assert_eq!(
            period.usage,
            UpstreamUsage {
                n_tools: 2,
                n_calls: 3,
                n_failed: 1,
            }
        );
        let lists = &period.lists;
        assert_eq!(
            (
                lists.sessions,
                lists.sessions_hiding,
                lists.sessions_looking
            ),
            (2, 2, 2)
        );
        let total = &lists.total;
        assert_eq!(
            (total.tools_used, total.tool_misses, total.searches),
            (2, 2, 2)
        );
        assert_eq!(
            (total.shown_tokens, total.available_tokens),
            (3_200, 140_000)
        );
        assert_eq!(total.tokens_saved, 2 * (70_000 - 1_600));
    }

    #[tokio::test(start_paused = true)]
    async fn totals_are_cached_and_open_sessions_are_not() {
        let scene = scene();
        use_tools(&scene.store, &TestSession::new(10)).await;
        assert_eq!(scene.activity(1).await.period.lists.sessions, 1);
        use_tools(&scene.store, &TestSession::new(20)).await;
        let soon = scene.activity(1).await;
        assert_eq!(soon.period.lists.sessions, 1);
        assert_eq!(soon.open_sessions.len(), 2);
        // Another period is another report.
        assert_eq!(scene.activity(2).await.period.lists.sessions, 2);
        tokio::time::advance(KEEP).await;
        assert_eq!(scene.activity(1).await.period.lists.sessions, 2);
    }

    #[tokio::test]
    async fn open_sessions_are_limited_and_come_with_their_lists() {
        let scene = scene();
        use_tools(&scene.store, &TestSession::new(200)).await;
        for n in 0..20 {
            let opened = Record::SessionOpened(session(run(1), 100 + n));
            scene.store.apply(&[opened]).await.unwrap();
        }
        let activity = scene.activity(1).await;
        assert!(activity.has_more_open_sessions);
        let ids = |activity: &RecordedActivity| -> Vec<SessionId> {
            let open = activity.open_sessions.iter();
            open.map(|open| open.session.summary.session.id).collect()
        };
        let newest = [200].into_iter().chain((101..120).rev());
        let newest: Vec<SessionId> = newest.map(|n| session(run(1), n).id).collect();
        assert_eq!(ids(&activity), newest);
        let lists = activity.open_sessions[0].lists.as_ref().unwrap();
        assert_eq!(
            (lists.account.searches, lists.account.available_tools),
            (1, 700)
        );
        assert_eq!(activity.open_sessions[1].lists, None);
        let closed = session_closed(&session(run(1), 200), 300);
        scene.store.apply(&[closed]).await.unwrap();
        let activity = scene.activity(1).await;
        assert!(!activity.has_more_open_sessions);
        assert_eq!(activity.open_sessions.len(), 20);
        assert!(!ids(&activity).contains(&session(run(1), 200).id));
    }

    #[tokio::test(start_paused = true)]
    async fn accounts_of_ended_sessions_are_kept_for_a_while() {
        let scene = scene();
        use_tools(&scene.store, &TestSession::new(10)).await;
        let one = session(run(1), 10);
        let n_searches = async || {
            let page = scene.service.sessions(None, None, 5).await;
            let page = page.unwrap().unwrap();
            page.sessions[0].lists.as_ref().unwrap().account.searches
        };
        let search_again = async |n: u8| {
            let searched = Record::Searched(search(one.id, n));
            scene.store.apply(&[searched]).await.unwrap();
        };
        assert_eq!(n_searches().await, 1);
        search_again(40).await;
        assert_eq!(n_searches().await, 2, "an open session is read again");
        let closed = session_closed(&one, 300);
        scene.store.apply(&[closed]).await.unwrap();
        assert_eq!(n_searches().await, 2);
        search_again(50).await;
        assert_eq!(n_searches().await, 3, "it ended only just now");
        scene.clock.advance(Duration::from_mins(2));
        assert_eq!(n_searches().await, 3);
        search_again(60).await;
        assert_eq!(n_searches().await, 3, "it is kept");
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!(n_searches().await, 4);
    }

    #[tokio::test]
    async fn past_sessions_come_in_pages_with_their_lists() {
        let scene = scene();
        for n in [10, 20, 30] {
            use_tools(&scene.store, &TestSession::new(n)).await;
            let closed = session_closed(&session(run(1), n), 300);
            scene.store.apply(&[closed]).await.unwrap();
        }
        let first = scene.service.sessions(None, Some(false), 2).await;
        let first = first.unwrap().unwrap();
        let ids: Vec<SessionId> = (first.sessions.iter())
            .map(|one| one.session.summary.session.id)
            .collect();
        assert_eq!(ids, [30, 20].map(|n| session(run(1), n).id));
        for one in &first.sessions {
            let account = &one.lists.as_ref().unwrap().account;
            assert_eq!((account.searches, account.tool_misses), (1, 1));
            assert_eq!(account.available_tools, 700);
        }
        let last = scene.service.sessions(first.next, Some(false), 2).await;
        let last = last.unwrap().unwrap();
        assert_eq!((last.sessions.len(), last.next), (1, None));
        let open = scene.service.sessions(None, Some(true), 2).await;
        assert!(open.unwrap().unwrap().sessions.is_empty());
        let unrecorded = service(&scene.proxy, None, &scene.clock);
        let sessions = unrecorded.sessions(None, None, 2).await;
        assert_eq!(sessions.unwrap(), None);
    }

    #[tokio::test]
    async fn the_state_of_the_proxy_is_known_without_recording() {
        let scene = scene();
        let service = service(&scene.proxy, None, &scene.clock);
        scene.clock.set(moment(90_000));
        let overview = service.overview(2).await.unwrap();
        assert_eq!(overview.started_at, moment(1_000));
        assert_eq!(overview.at, moment(90_000));
        assert_eq!(
            overview.since,
            full_hour(moment(0)) - jiff::SignedDuration::from_hours(48)
        );
        assert_eq!(overview.strategy, Strategy::Prediction);
        assert_eq!((overview.is_paused, overview.paused_until), (false, None));
        assert_eq!(overview.activity, None);
        let end = Timestamp::constant(32_503_680_000, 0);
        scene.proxy.set_pause(Pause::Until(end));
        let overview = service.overview(2).await.unwrap();
        assert_eq!(
            (overview.is_paused, overview.paused_until),
            (true, Some(end))
        );
        scene.proxy.set_pause(Pause::Off);
        let overview = service.overview(2).await.unwrap();
        assert_eq!((overview.is_paused, overview.paused_until), (false, None));
    }
}
