//! A session of a million calls.
use jiff::Timestamp;
use riglm_adapters_storage::{Durability, Store};
use riglm_domain::id::{InvocationId, ToolName};
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Maintenance as _, RecordSink as _,
    SessionRepository as _, UsageRepository as _,
};
use riglm_ports::contract::scene::{call, end, moment, run, session};

const N_CALLS: u64 = 1_000_000;
const BATCH: u64 = 2_000;
/// More tools than count for the pairs of a session.
const N_TOOLS: u64 = 300;

#[tokio::test]
#[ignore = "needs minutes"]
async fn a_million_calls_of_one_session_are_kept_counted_and_purged() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::sqlite(dir.path().join("riglm.db"), Durability::Process);
    let session = session(run(1), 1);
    store
        .apply(&[Record::SessionOpened(session.clone())])
        .await
        .unwrap();
    for first in (1..=N_CALLS).step_by(usize::try_from(BATCH).unwrap()) {
        let records: Vec<Record> = (first..first + BATCH)
            .flat_map(|sequence| {
                let at = moment(i64::try_from(sequence).unwrap());
                let mut call = call(session.id, 2);
                call.id = InvocationId::new(at, [1; 10]);
                call.started_at = at;
                call.sequence = sequence;
                call.tool = ToolName::from(format!("tool {}", sequence % N_TOOLS).as_str());
                call.arguments = None;
                let mut end = end(&call, Outcome::Ok);
                end.result = None;
                [Record::CallOpened(call), Record::CallClosed(end)]
            })
            .collect();
        store.apply(&records).await.unwrap();
    }
    let of_session = InvocationFilter {
        session: Some(session.id),
        ..InvocationFilter::default()
    };
    assert_eq!(store.count(&of_session).await.unwrap(), N_CALLS);
    let newest = store.invocations(&of_session, 3).await.unwrap();
    let sequences: Vec<u64> = (newest.iter())
        .map(|call| call.invocation.sequence)
        .collect();
    assert_eq!(sequences, [N_CALLS - 2, N_CALLS - 1, N_CALLS]);
    assert_eq!(store.sessions(1).await.unwrap()[0].n_calls, N_CALLS);
    let followers = store.transitions(None, None).await.unwrap();
    assert_eq!(followers.len() as u64, N_TOOLS);
    assert_eq!(
        followers.iter().map(|pair| pair.count).sum::<u64>(),
        N_CALLS - 1
    );
    assert_eq!(store.check().await.unwrap(), []);

    let half = moment(i64::try_from(N_CALLS / 2).unwrap());
    while !store.purge(half, 5_000).await.unwrap().is_done {}
    let counted = store.frequencies(None, Timestamp::MIN).await.unwrap();
    let n_counted: u64 = counted.iter().map(|tool| tool.n_calls).sum();
    assert_eq!(n_counted, store.count(&of_session).await.unwrap());
    assert_eq!(store.check().await.unwrap(), []);
}
