//! The clauses of [`RecordSink`](crate::analytics::RecordSink).

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use jiff::Timestamp;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{
    apply, call, calls, context, end, exchange, feedback, list_shown, moment, only_outcome, page,
    recommendation, run, run_lost, search, session, session_closed, summary, tokens,
};

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

/// A known outcome stays when `unknown` comes later.
pub async fn unknown_replaces_no_outcome(store: &impl UsageStore) {
    ends_one_by_one_and_at_once(store, [Outcome::Error, Outcome::Unknown], Outcome::Error).await;
}

/// A lost run closes every open call of its sessions as `unknown`, also in sessions that ended
/// before.
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
            session_closed(&ended, 6),
            run_lost(1, 7),
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

/// A lost run ends its open sessions; sessions that ended before keep their end.
pub async fn a_lost_run_ends_its_open_sessions(store: &impl UsageStore) {
    let (running, ended) = (session(run(1), 1), session(run(1), 2));
    let opened = [&running, &ended].map(|session| Record::SessionOpened(session.clone()));
    apply(store, &opened).await;
    apply(store, &[session_closed(&ended, 3), run_lost(1, 4)]).await;
    apply(store, &[session_closed(&running, 5)]).await;
    let sessions = store.sessions(9).await.unwrap();
    let ends: Vec<_> = sessions.iter().map(|session| session.ended_at).collect();
    assert_eq!(ends, [Some(moment(4)), Some(moment(3))]);
}

/// A lost run does not affect other runs.
pub async fn a_lost_run_leaves_other_runs_alone(store: &impl UsageStore) {
    let other = session(run(2), 1);
    let opened = [
        Record::SessionOpened(other.clone()),
        Record::CallOpened(call(other.id, 2)),
    ];
    apply(store, &opened).await;
    apply(store, &[run_lost(1, 3)]).await;
    assert_eq!(only_outcome(store).await, None);
    assert_eq!(store.sessions(9).await.unwrap()[0].ended_at, None);
}

/// Records are applied in their order, also before and after a lost run.
pub async fn what_follows_a_lost_run_in_its_batch_is_applied_after_it(store: &impl UsageStore) {
    let session = session(run(1), 1);
    let (before, after) = (call(session.id, 2), call(session.id, 4));
    let records = [
        Record::SessionOpened(session),
        Record::CallOpened(before),
        run_lost(1, 3),
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

/// An end without a beginning creates no row and is lost, in the same batch or another one.
pub async fn an_end_before_its_beginning_makes_no_row(store: &impl UsageStore) {
    let (early, swapped) = (
        call(session(run(1), 1).id, 2),
        call(session(run(1), 1).id, 3),
    );
    let [early_end, swapped_end] =
        [&early, &swapped].map(|call| Record::CallClosed(end(call, Outcome::Ok)));
    apply(store, &[early_end]).await;
    assert_eq!(calls(store).await, []);
    let records = [
        Record::CallOpened(early.clone()),
        swapped_end,
        Record::CallOpened(swapped.clone()),
    ];
    apply(store, &records).await;
    let expected = [early, swapped].map(|call| summary(call, None));
    assert_eq!(calls(store).await, expected);
}

/// The end of an unrecorded session creates no row; the first end of a recorded one stays.
pub async fn the_first_end_of_a_session_stays(store: &impl UsageStore) {
    let (known, unknown) = (session(run(1), 1), session(run(1), 2));
    let opened = Record::SessionOpened(known.clone());
    apply(
        store,
        &[
            opened,
            session_closed(&unknown, 3),
            session_closed(&known, 4),
        ],
    )
    .await;
    apply(store, &[session_closed(&known, 5)]).await;
    let sessions = store.sessions(9).await.unwrap();
    let ends: Vec<_> = sessions
        .iter()
        .map(|row| (row.session.id, row.ended_at))
        .collect();
    assert_eq!(ends, [(known.id, Some(moment(4)))]);
}

/// Times are stored with a precision of microseconds, also times before 1970.
pub async fn times_are_kept_to_the_microsecond(store: &impl UsageStore) {
    let mut late = session(run(1), 1);
    let mut early = session(run(1), 2);
    late.started_at = Timestamp::from_nanosecond(1_800_000_000_123_456_789).unwrap();
    early.started_at = Timestamp::from_microsecond(-3_600_000_001).unwrap();
    let opened = [&late, &early].map(|session| Record::SessionOpened(session.clone()));
    apply(store, &opened).await;
    let sessions = store.sessions(9).await.unwrap();
    let starts: Vec<_> = (sessions.iter())
        .map(|row| row.session.started_at.as_nanosecond())
        .collect();
    assert_eq!(starts, [-3_600_000_001_000, 1_800_000_000_123_456_000]);
}

/// Numbers that do not fit a signed 64-bit integer are stored as its largest value.
pub async fn the_largest_numbers_are_kept_as_far_as_they_fit(store: &impl UsageStore) {
    const LARGEST: u64 = i64::MAX.unsigned_abs();
    let id = session(run(1), 1).id;
    let (mut call, mut exchange) = (call(id, 2), exchange(id, 3));
    call.request_bytes = u64::MAX;
    exchange.duration_us = u64::MAX;
    let mut end = end(&call, Outcome::Ok);
    (end.duration_us, end.wait_us, end.response_bytes) = (u64::MAX, u64::MAX, u64::MAX);
    let tokens = tokens(&call, Some(u64::MAX), Some(LARGEST));
    let records = [
        Record::CallOpened(call),
        Record::CallClosed(end),
        tokens,
        Record::Exchanged(exchange),
    ];
    apply(store, &records).await;
    let read = &calls(store).await[0];
    let end = read.end.as_ref().unwrap();
    assert_eq!(
        [
            Some(read.invocation.request_bytes),
            Some(end.duration_us),
            Some(end.wait_us),
            Some(end.response_bytes),
            read.request_tokens,
            read.response_tokens,
        ],
        [Some(LARGEST); 6]
    );
    let exchanges = store.exchanges(id, 9).await.unwrap();
    assert_eq!(exchanges[0].duration_us, LARGEST);
    let before = counts(store).await;
    store.rebuild().await.unwrap();
    assert_eq!(counts(store).await, before);
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

/// Returns records of every kind, of two sessions.
pub(super) fn one_of_each() -> Vec<Record> {
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
        tokens(&done, Some(5), None),
        Record::Exchanged(exchange(second.id, 5)),
        Record::ListShown(list_shown(first.id, 5)),
        Record::Searched(search(first.id, 5)),
        Record::ContextGiven(context(first.id, 5)),
        Record::Recommended(recommendation(first.id, 5)),
        Record::FeedbackGiven(feedback(first.id, 5, "echo")),
        session_closed(&first, 6),
        run_lost(2, 7),
    ]
}

/// Returns all stored rows as text, to compare two states of the store.
pub(super) async fn everything(store: &impl UsageStore) -> String {
    const ALL: u32 = u32::MAX;
    let sessions = store.sessions(ALL).await.unwrap();
    let (mut exchanges, mut lists_shown) = (Vec::new(), Vec::new());
    for row in &sessions {
        exchanges.extend(store.exchanges(row.session.id, ALL).await.unwrap());
        lists_shown.extend(store.lists_shown(row.session.id, ALL).await.unwrap());
    }
    let searches = store.searches(None, ALL).await.unwrap();
    let contexts = store.contexts(None, ALL).await.unwrap();
    let recommendations = store.recommendations(ALL).await.unwrap();
    let feedback = store.feedback(None, None, ALL).await.unwrap();
    let definitions = store.tool_definitions(None).await.unwrap();
    format!(
        "{sessions:#?}\n{:#?}\n{exchanges:#?}\n{lists_shown:#?}\n{searches:#?}\n{contexts:#?}\n\
         {recommendations:#?}\n{feedback:#?}\n{definitions:#?}\n{}",
        calls(store).await,
        counts(store).await,
    )
}

/// Returns all counts as text.
pub(super) async fn counts(store: &impl UsageStore) -> String {
    let since = Timestamp::MIN;
    format!(
        "{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        store.frequencies(None, since).await.unwrap(),
        store.sessions_using(None, None).await.unwrap(),
        store.cooccurrences(None, None).await.unwrap(),
        store.transitions(None, None).await.unwrap(),
        store.statistics(None, None, since).await.unwrap(),
    )
}
