use std::sync::Arc;

use jiff::SignedDuration;
use riglm_domain::id::WorkSessionId;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::contract::scene::{call, list_shown, moment, run, search, session};
use riglm_ports::fake::{ManualClock, MemoryStore};

use super::super::queries::Queries;
use super::*;

/// A connection that is shown a list, searches, and calls a hidden tool.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) struct TestSession<'a> {
    /// The number of the connection, and of the milliseconds of the scene at which it starts. Other
    /// numbers are at least 3 away.
    pub(in crate::control) n: u8,
    /// The policy of the list.
    pub(in crate::control) policy: &'a str,
    /// The work session of the call.
    pub(in crate::control) work_session: Option<WorkSessionId>,
    /// The time between the scene and this session.
    pub(in crate::control) delay: SignedDuration,
}

impl TestSession<'_> {
    pub(in crate::control) fn new(n: u8) -> Self {
        Self {
            n,
            policy: "epoch",
            work_session: None,
            delay: SignedDuration::ZERO,
        }
    }

    pub(in crate::control) fn later(self, delay: SignedDuration) -> Self {
        Self { delay, ..self }
    }

    /// Returns the records of the connection, the list, the search and the call.
    pub(in crate::control) fn records(&self) -> [Record; 4] {
        let mut opened = session(run(1), self.n);
        opened.started_at += self.delay;
        let mut shown = list_shown(opened.id, self.n);
        shown.policy = self.policy.into();
        shown.shown_at += self.delay;
        let mut searched = search(opened.id, self.n + 1);
        searched.searched_at += self.delay;
        let mut call = call(opened.id, self.n + 2);
        call.work_session = self.work_session;
        call.started_at += self.delay;
        [
            Record::SessionOpened(opened),
            Record::ListShown(shown),
            Record::Searched(searched),
            Record::CallOpened(call),
        ]
    }
}

pub(in crate::control) async fn use_tools(store: &MemoryStore, session: &TestSession<'_>) {
    store.apply(&session.records()).await.unwrap();
}

#[tokio::test]
async fn only_sessions_with_shown_lists_have_accounts() {
    let store = MemoryStore::default();
    use_tools(&store, &TestSession::new(10)).await;
    let idle = session(run(1), 20);
    store
        .apply(&[Record::SessionOpened(idle.clone())])
        .await
        .unwrap();
    let shown = session(run(1), 10).id;
    let prices = CostModel::default();
    let accounts = accounts_of(&store, &[idle.id, shown], &prices)
        .await
        .unwrap();
    assert_eq!(accounts.keys().copied().collect::<Vec<_>>(), [shown]);
    let lists = &accounts[&shown];
    assert_eq!(lists.policy, "epoch");
    let account = lists.account;
    assert_eq!((account.searches, account.tool_misses), (1, 1));
    assert_eq!(account.tokens_saved, 70_000 - 1_600);
}

#[tokio::test]
async fn connections_of_a_work_session_are_judged_together() {
    let store = MemoryStore::default();
    let work_session = WorkSessionId::new(moment(1), [1; 10]);
    for n in [10, 20, 30] {
        let session = TestSession {
            work_session: Some(work_session),
            ..TestSession::new(n)
        };
        use_tools(&store, &session).await;
    }
    let without = TestSession {
        policy: "all",
        ..TestSession::new(40)
    };
    use_tools(&store, &without).await;
    let prices = CostModel::default();
    let clients = [10, 20, 30].map(|n| (session(run(1), n).id, "agent".to_owned()));
    let clients = BTreeMap::from(clients);
    let recent = |since| recent_lists(&store, moment(since), 99, &prices, &clients);
    let all = recent(0).await.unwrap();
    assert_eq!(all.n_connections, 4);
    assert_eq!(all.summary.all.sessions, 2);
    let epoch = all.summary.by_policy["epoch"];
    assert_eq!(epoch.sessions, 1);
    assert_eq!((epoch.total.searches, epoch.total.tool_misses), (2, 1));
    let agent = all.summary.by_client["agent"];
    assert_eq!((agent.sessions, agent.share_looking()), (1, Some(1.0)));
    // The connections are still open, but nothing has begun since.
    let none = recent(60).await.unwrap();
    assert_eq!(
        (none.n_connections, none.summary),
        (4, ListSummary::default())
    );
    let newest = recent_lists(&store, moment(0), 1, &prices, &clients)
        .await
        .unwrap();
    assert_eq!(newest.summary.by_policy.keys().collect::<Vec<_>>(), ["all"]);
}

/// Returns the sessions since a millisecond of the scene.
async fn recent_sessions(store: &Arc<MemoryStore>, since: i64, limit: u32) -> RecentSessions {
    let clock = Arc::new(ManualClock::at(moment(100)));
    let queries = Queries::new(store.clone(), clock);
    let prices = CostModel::default();
    let recent = queries.recent_sessions(moment(since), limit, &prices).await;
    recent.unwrap()
}

#[tokio::test]
async fn work_sessions_of_an_older_connection_count_in_their_period() {
    let store = Arc::new(MemoryStore::default());
    let work_session = |n: u8| WorkSessionId::new(moment(n.into()), [n; 10]);
    let one = TestSession {
        work_session: Some(work_session(12)),
        ..TestSession::new(10)
    };
    use_tools(&store, &one).await;
    let mut later = call(session(run(1), 10).id, 60);
    later.work_session = Some(work_session(60));
    store.apply(&[Record::CallOpened(later)]).await.unwrap();
    let began = async |since| {
        let recent = recent_sessions(&store, since, 9).await;
        let sessions = recent.sessions.into_iter();
        sessions.map(|one| one.began_at).collect::<Vec<_>>()
    };
    assert_eq!(began(0).await, [12, 60].map(moment));
    assert_eq!(began(50).await, [60].map(moment));
    assert!(began(70).await.is_empty());
}

#[tokio::test]
async fn recent_sessions_are_limited_and_say_so() {
    let store = Arc::new(MemoryStore::default());
    for n in [10, 20, 30] {
        use_tools(&store, &TestSession::new(n)).await;
    }
    let recent = |limit| recent_sessions(&store, 0, limit);
    let all = recent(3).await;
    assert_eq!((all.n_connections, all.is_cut), (3, false));
    let mut began: Vec<Timestamp> = all.sessions.iter().map(|one| one.began_at).collect();
    began.sort();
    // The search is the first use.
    assert_eq!(began, [11, 21, 31].map(moment));
    let newest = recent(2).await;
    assert_eq!((newest.n_connections, newest.is_cut), (2, true));
    let connections: Vec<SessionId> = newest.sessions.iter().map(|one| one.connection).collect();
    assert_eq!(connections, [20, 30].map(|n| session(run(1), n).id));
}

#[tokio::test]
async fn a_connection_with_many_work_sessions_does_not_exceed_the_limit() {
    let store = Arc::new(MemoryStore::default());
    let work_session = |n: u8| WorkSessionId::new(moment(n.into()), [n; 10]);
    use_tools(&store, &TestSession::new(10)).await;
    for n in [20, 30, 40] {
        let mut call = call(session(run(1), 10).id, n);
        call.work_session = Some(work_session(n));
        store.apply(&[Record::CallOpened(call)]).await.unwrap();
    }
    let recent = recent_sessions(&store, 0, 2).await;
    assert_eq!((recent.n_connections, recent.is_cut), (1, true));
    let began = recent.sessions.iter().map(|one| one.began_at);
    assert_eq!(began.collect::<Vec<_>>(), [30, 40].map(moment));
}
