//! The clauses of [`RecordSink`](crate::analytics::RecordSink).

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use riglm_domain::invocation::Outcome;
use riglm_domain::record::Record;
use riglm_domain::session::Session;

use super::UsageStore;
use super::scene::{apply, call, calls, end, exchange, moment, only_outcome, page, run, session};

/// All records of one call become visible together or not at all.
pub async fn the_records_of_a_call_become_visible_together(store: &impl UsageStore) {
    let session = session(run(1), 1);
    let mut records = Vec::new();
    for n in 1..=200 {
        let call = call(session.id, n);
        records.push(Record::CallClosed(end(&call, Outcome::Ok)));
        records.insert(0, Record::CallOpened(call));
    }
    let mut applying = pin!(store.apply(&records));
    loop {
        let step = poll_fn(|context| Poll::Ready(applying.as_mut().poll(context))).await;
        let seen = calls(store).await;
        assert!(
            seen.is_empty() || seen.len() == 200,
            "saw {} calls",
            seen.len()
        );
        assert!(seen.iter().all(|call| call.end.is_some()));
        if let Poll::Ready(outcome) = step {
            outcome.unwrap();
            break;
        }
    }
    assert_eq!(calls(store).await.len(), 200);
}

/// Applying a record again changes nothing.
pub async fn applying_again_changes_nothing(store: &impl UsageStore) {
    let records = one_of_each();
    apply(store, &records).await;
    let once = everything(store).await;
    apply(store, &records).await;
    assert_eq!(everything(store).await, once);
    for record in &records {
        apply(store, std::slice::from_ref(record)).await;
    }
    assert_eq!(everything(store).await, once);
    let doubled: Vec<_> = records.iter().chain(&records).cloned().collect();
    apply(store, &doubled).await;
    assert_eq!(everything(store).await, once);
}

/// The first end of a call stays; later ends are ignored.
pub async fn the_first_end_of_a_call_stays(store: &impl UsageStore) {
    ends_one_by_one_and_at_once(store, [Outcome::Timeout, Outcome::Ok], Outcome::Timeout).await;
}

/// Any other outcome replaces `unknown`.
pub async fn any_other_outcome_replaces_unknown(store: &impl UsageStore) {
    ends_one_by_one_and_at_once(store, [Outcome::Unknown, Outcome::Ok], Outcome::Ok).await;
}

/// An outcome that is known stays when `unknown` comes later.
pub async fn unknown_replaces_no_outcome(store: &impl UsageStore) {
    ends_one_by_one_and_at_once(store, [Outcome::Error, Outcome::Unknown], Outcome::Error).await;
}

/// A lost run closes every open call of its sessions as `unknown`, of those that ended before too.
pub async fn a_lost_run_closes_every_open_call_of_its_sessions(store: &impl UsageStore) {
    let (running, ended) = (session(run(1), 1), session(run(1), 2));
    let done = call(running.id, 3);
    apply(
        store,
        &[
            Record::SessionOpened(running.clone()),
            Record::SessionOpened(ended.clone()),
            Record::CallOpened(done.clone()),
            Record::CallClosed(end(&done, Outcome::Ok)),
            Record::CallOpened(call(running.id, 4)),
            Record::CallOpened(call(ended.id, 5)),
            closed(&ended, 6),
            lost(1, 7),
        ],
    )
    .await;
    let outcomes: Vec<_> = calls(store)
        .await
        .into_iter()
        .map(|call| call.end.map(|end| end.outcome))
        .collect();
    let unknown = Some(Outcome::Unknown);
    assert_eq!(outcomes, [Some(Outcome::Ok), unknown, unknown]);
}

/// A lost run ends its open sessions; those that ended before keep their end.
pub async fn a_lost_run_ends_its_open_sessions(store: &impl UsageStore) {
    let (running, ended) = (session(run(1), 1), session(run(1), 2));
    let opened = [&running, &ended].map(|session| Record::SessionOpened(session.clone()));
    apply(store, &opened).await;
    apply(store, &[closed(&ended, 3), lost(1, 4)]).await;
    apply(store, &[closed(&running, 5)]).await;
    let sessions = store.sessions(9).await.unwrap();
    let ends: Vec<_> = sessions.iter().map(|session| session.ended_at).collect();
    assert_eq!(ends, [Some(moment(4)), Some(moment(3))]);
}

/// A lost run leaves other runs alone.
pub async fn a_lost_run_leaves_other_runs_alone(store: &impl UsageStore) {
    let other = session(run(2), 1);
    let opened = [
        Record::SessionOpened(other.clone()),
        Record::CallOpened(call(other.id, 2)),
    ];
    apply(store, &opened).await;
    apply(store, &[lost(1, 3)]).await;
    assert_eq!(only_outcome(store).await, None);
    assert_eq!(store.sessions(9).await.unwrap()[0].ended_at, None);
}

/// Records are applied in their order, also around a lost run.
pub async fn what_follows_a_lost_run_in_its_batch_is_applied_after_it(store: &impl UsageStore) {
    let session = session(run(1), 1);
    let (before, after) = (call(session.id, 2), call(session.id, 4));
    let records = [
        Record::SessionOpened(session),
        Record::CallOpened(before),
        lost(1, 3),
        Record::CallOpened(after),
    ];
    apply(store, &records).await;
    let ends: Vec<_> = calls(store)
        .await
        .iter()
        .map(|call| call.end.is_some())
        .collect();
    assert_eq!(ends, [true, false]);
}

/// An empty batch changes nothing and is no error.
pub async fn no_records_are_applied_without_effect(store: &impl UsageStore) {
    apply(store, &[]).await;
    assert_eq!(calls(store).await, []);
    assert_eq!(store.sessions(9).await.unwrap(), []);
}

async fn ends_one_by_one_and_at_once(
    store: &impl UsageStore,
    ends: [Outcome; 2],
    expected: Outcome,
) {
    let call = call(session(run(1), 1).id, 2);
    let [first, second] = ends.map(|outcome| Record::CallClosed(end(&call, outcome)));
    apply(store, &[Record::CallOpened(call.clone())]).await;
    apply(store, std::slice::from_ref(&first)).await;
    apply(store, std::slice::from_ref(&second)).await;
    assert_eq!(only_outcome(store).await, Some(expected));

    let mut other = call.clone();
    other.id = super::scene::call(call.session, 3).id;
    let [first, second] = ends.map(|outcome| Record::CallClosed(end(&other, outcome)));
    apply(store, &[Record::CallOpened(other), first, second]).await;
    let outcomes: Vec<_> = calls(store)
        .await
        .into_iter()
        .map(|call| call.end.map(|end| end.outcome))
        .collect();
    assert_eq!(outcomes, [Some(expected), Some(expected)]);
}

fn closed(session: &Session, millis: i64) -> Record {
    Record::SessionClosed {
        session: session.id,
        ended_at: moment(millis),
    }
}

fn lost(n: u8, millis: i64) -> Record {
    Record::RunLost {
        run: run(n),
        noticed_at: moment(millis),
    }
}

fn one_of_each() -> Vec<Record> {
    let (first, second) = (session(run(1), 1), session(run(2), 2));
    let (done, open) = (call(first.id, 3), call(second.id, 4));
    vec![
        Record::SessionOpened(first.clone()),
        Record::SessionOpened(second.clone()),
        Record::ToolsSeen {
            listing: page("one", &["b", "a"]),
            seen_at: moment(2),
        },
        Record::ToolsListed {
            session: first.id,
            listing: "one".into(),
            listed_at: moment(3),
        },
        Record::CallOpened(done.clone()),
        Record::CallClosed(end(&done, Outcome::Ok)),
        Record::CallOpened(open),
        Record::Exchanged(exchange(second.id, 5)),
        closed(&first, 6),
        lost(2, 7),
    ]
}

async fn everything(store: &impl UsageStore) -> String {
    let second = session(run(2), 2).id;
    format!(
        "{:#?}\n{:#?}\n{:#?}",
        store.sessions(9).await.unwrap(),
        calls(store).await,
        store.exchanges(second, 9).await.unwrap(),
    )
}
