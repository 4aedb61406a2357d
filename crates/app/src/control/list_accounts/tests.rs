use riglm_domain::id::WorkSessionId;
use riglm_domain::usage::invocation::Invocation;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::contract::scene::{call, list_shown, moment, run, search, session};
use riglm_ports::fake::MemoryStore;

use super::*;

/// Opens a connection that is shown a list, searches, and calls a hidden tool.
async fn use_tools(store: &MemoryStore, n: u8, policy: &str, work_session: Option<WorkSessionId>) {
    let opened = session(run(1), n);
    let mut shown = list_shown(opened.id, n);
    shown.policy = policy.into();
    let call = Invocation {
        work_session,
        ..call(opened.id, n + 2)
    };
    let records = [
        Record::Searched(search(opened.id, n + 1)),
        Record::SessionOpened(opened),
        Record::ListShown(shown),
        Record::CallOpened(call),
    ];
    store.apply(&records).await.unwrap();
}

#[tokio::test]
async fn only_sessions_with_shown_lists_have_accounts() {
    let store = MemoryStore::default();
    use_tools(&store, 10, "epoch", None).await;
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
        use_tools(&store, n, "epoch", Some(work_session)).await;
    }
    use_tools(&store, 40, "all", None).await;
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
    let work_account = account_of_work_session(&store, work_session, &prices)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(epoch.total, work_account.account);
    let none = recent(60).await.unwrap();
    assert_eq!(none, RecentLists::default());
    let newest = recent_lists(&store, moment(0), 1, &prices, &clients)
        .await
        .unwrap();
    assert_eq!(newest.summary.by_policy.keys().collect::<Vec<_>>(), ["all"]);
    let unknown = WorkSessionId::new(moment(2), [2; 10]);
    let unknown = account_of_work_session(&store, unknown, &prices).await;
    assert_eq!(unknown.unwrap(), None);
}
