use riglm_domain::id::WorkSessionId;
use riglm_domain::usage::invocation::Invocation;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::contract::scene::{call, end, moment, run, session};
use riglm_ports::fake::MemoryStore;

use super::*;

const GAP: SignedDuration = SignedDuration::from_millis(10);

/// Returns a call of a session at a time. `tool` is one of two tools.
fn call_at(connection: u8, number: u8, at_ms: i64, tool: &str) -> Invocation {
    let mut made = call(session(run(1), connection).id, number);
    let at = moment(at_ms);
    made.id = InvocationId::new(at, [number; 10]);
    (made.started_at, made.tool) = (at, tool.into());
    (made.work_session, made.continues) = (None, None);
    made
}

async fn store_of(calls: &[Invocation]) -> MemoryStore {
    let store = MemoryStore::default();
    let records: Vec<Record> = calls.iter().cloned().map(Record::CallOpened).collect();
    store.apply(&records).await.unwrap();
    store
}

/// Returns the calls of each session, as positions in the catalog.
async fn sessions(store: &MemoryStore) -> Vec<Vec<usize>> {
    let (catalog, tools) = history_catalog(store).await.unwrap();
    assert_eq!(catalog.tools.len(), tools.len());
    let mut history = ReplayHistory::new(store, tools, |_| GAP);
    let mut twice = Vec::new();
    for _ in 0..2 {
        let mut all = Vec::new();
        while let Some(session) = history.next().await.unwrap() {
            all.push(session.calls.iter().map(|call| call.tool).collect());
        }
        twice.push(all);
        history.restart().await.unwrap();
    }
    assert_eq!(twice[0], twice[1]);
    twice.swap_remove(0)
}

#[tokio::test]
async fn sessions_come_in_the_order_of_their_first_calls() {
    let store = store_of(&[
        call_at(1, 1, 0, "a"),
        call_at(2, 2, 4, "b"),
        call_at(1, 3, 8, "b"),
        call_at(1, 4, 18, "a"),
    ])
    .await;
    assert_eq!(sessions(&store).await, [vec![0, 1, 0], vec![1]]);
}

#[tokio::test]
async fn an_idle_gap_ends_a_session() {
    let store = store_of(&[
        call_at(1, 1, 0, "a"),
        call_at(1, 2, 10, "a"),
        call_at(1, 3, 21, "b"),
    ])
    .await;
    assert_eq!(sessions(&store).await, [vec![0, 0], vec![1]]);
}

#[tokio::test]
async fn a_work_session_is_one_session_and_rounds_are_ignored() {
    let mut calls = [1, 2, 3].map(|n| call_at(n, n, i64::from(n), "a"));
    for made in &mut calls[..2] {
        made.work_session = Some(WorkSessionId::new(moment(0), [7; 10]));
    }
    let mut round = call_at(3, 4, 4, "a");
    round.continues = Some(calls[2].id);
    let store = store_of(&[calls.as_slice(), &[round]].concat()).await;
    assert_eq!(sessions(&store).await, [vec![0, 0], vec![0]]);
}

#[tokio::test]
async fn a_history_longer_than_a_page_is_read_whole() {
    let n_calls = u16::try_from(PAGE_SIZE).unwrap() * 2 + 7;
    let calls: Vec<Invocation> = (0..n_calls)
        .map(|n| {
            let mut made = call_at(u8::from(n % 2 == 1), 1, i64::from(n), "a");
            let [high, low] = n.to_be_bytes();
            made.id = InvocationId::new(made.started_at, [high, low, 0, 0, 0, 0, 0, 0, 0, 0]);
            made
        })
        .collect();
    let store = store_of(&calls).await;
    let sizes: Vec<usize> = sessions(&store).await.iter().map(Vec::len).collect();
    assert_eq!(
        sizes,
        [usize::from(n_calls).div_ceil(2), usize::from(n_calls) / 2]
    );
}

#[tokio::test]
async fn replayed_sessions_have_client_times_and_outcomes() {
    let made = call_at(1, 1, 5, "a");
    let failed = call_at(1, 2, 6, "a");
    let store = store_of(&[made.clone(), failed.clone()]).await;
    let client = session(run(1), 1);
    let records = [
        Record::SessionOpened(client.clone()),
        Record::CallClosed(end(&made, Outcome::Ok)),
        Record::CallClosed(end(&failed, Outcome::Error)),
    ];
    store.apply(&records).await.unwrap();
    let (catalog, tools) = history_catalog(&store).await.unwrap();
    assert_eq!(catalog.tools[0].name, "a");
    assert_eq!(catalog.tools[0].server, made.upstream.to_string());
    let mut history = ReplayHistory::new(&store, tools, |_| GAP);
    let read = history.next().await.unwrap().unwrap();
    assert_eq!(read.principal, Some(made.principal.clone()));
    assert_eq!(read.client, Some(client.client_info.name));
    assert_eq!(read.started_at, Some(moment(5)));
    let calls: Vec<_> = read.calls.iter().map(|call| (call.ok, call.at)).collect();
    assert_eq!(calls, [(true, Some(moment(5))), (false, Some(moment(6)))]);
}
