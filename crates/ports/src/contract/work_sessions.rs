//! The clauses of [`WorkSessionRepository`](crate::analytics::WorkSessionRepository), and of
//! [`SessionRepository`](crate::analytics::SessionRepository) about work sessions.

use std::time::Duration;

use jiff::SignedDuration;
use riglm_domain::usage::work_session::{IdleGap, WorkSession};

use super::UsageStore;
use super::scene::{moment, work_session};

const GAP: Duration = Duration::from_millis(100);

/// A request without a continuing work session begins one, which is read with all its values.
pub async fn a_request_begins_a_work_session(store: &impl UsageStore) {
    let candidate = work_session("key", 1, 0);
    assert_eq!(resolve(store, &candidate).await, candidate);
    let read = store.work_session(candidate.id).await.unwrap();
    assert_eq!(read, Some(candidate));
}

/// An unknown work session is `None`.
pub async fn an_unknown_work_session_is_none(store: &impl UsageStore) {
    resolve(store, &work_session("key", 1, 0)).await;
    let unknown = work_session("key", 2, 0).id;
    assert_eq!(store.work_session(unknown).await.unwrap(), None);
}

/// A request within the gap continues the work session and is its last activity.
pub async fn a_request_within_the_gap_goes_on(store: &impl UsageStore) {
    let mut expected = work_session("key", 1, 0);
    resolve(store, &expected).await;
    for (n, millis) in [(2, 90), (3, 190), (4, 290)] {
        expected.last_active_at = moment(millis);
        let resolved = resolve(store, &work_session("key", n, millis)).await;
        assert_eq!(resolved, expected);
        let read = store.work_session(expected.id).await.unwrap();
        assert_eq!(read.as_ref(), Some(&expected));
    }
    assert_eq!(store.work_sessions(9).await.unwrap(), [expected]);
}

/// A request later than the gap begins another work session; a request exactly at the gap does not.
pub async fn a_request_after_the_gap_begins_another(store: &impl UsageStore) {
    let first = work_session("key", 1, 0);
    resolve(store, &first).await;
    let on_time = resolve(store, &work_session("key", 2, 100)).await;
    assert_eq!(on_time.id, first.id);
    let mut late = work_session("key", 3, 200);
    late.started_at += SignedDuration::from_micros(1);
    late.last_active_at = late.started_at;
    assert_eq!(resolve(store, &late).await, late);
    assert_eq!(store.work_sessions(9).await.unwrap(), [on_time, late]);
}

/// The allowed gap grows with the length of the work session, within its bounds.
pub async fn a_long_work_session_may_be_silent_for_longer(store: &impl UsageStore) {
    let gap = IdleGap::new(GAP, 3 * GAP);
    let first = work_session("key", 1, 0);
    for (n, millis) in [(1, 0), (2, 90), (3, 270), (4, 570)] {
        let candidate = work_session("key", n, millis);
        let resolved = store.resolve_work_session(&candidate, gap).await.unwrap();
        assert_eq!(resolved.id, first.id, "{millis}");
    }
    let late = work_session("key", 5, 871);
    let resolved = store.resolve_work_session(&late, gap).await.unwrap();
    assert_eq!(resolved, late);
}

/// A request with an earlier time continues the work session, whose last activity stays.
pub async fn an_earlier_request_goes_on_too(store: &impl UsageStore) {
    let known = work_session("key", 1, 500);
    resolve(store, &known).await;
    for millis in [490, 0] {
        let resolved = resolve(store, &work_session("key", 2, millis)).await;
        assert_eq!(resolved, known);
    }
    assert_eq!(store.work_sessions(9).await.unwrap(), [known]);
}

/// A request continues the newest work session of its key.
pub async fn the_newest_work_session_goes_on(store: &impl UsageStore) {
    let (old, new) = (work_session("key", 1, 0), work_session("key", 2, 1_000));
    resolve(store, &old).await;
    resolve(store, &new).await;
    let resolved = resolve(store, &work_session("key", 3, 50)).await;
    assert_eq!(resolved, new);
}

/// Requests of different keys have different work sessions.
pub async fn other_keys_have_other_work_sessions(store: &impl UsageStore) {
    let (one, two) = (work_session("one", 1, 0), work_session("two", 2, 10));
    assert_eq!(resolve(store, &one).await, one);
    assert_eq!(resolve(store, &two).await, two);
}

/// A candidate that is resolved again is returned itself.
pub async fn a_candidate_resolved_again_gets_itself(store: &impl UsageStore) {
    let candidate = work_session("key", 1, 0);
    for gap in [GAP, Duration::ZERO, Duration::MAX] {
        let resolved = store
            .resolve_work_session(&candidate, gap.into())
            .await
            .unwrap();
        assert_eq!(resolved, candidate);
    }
    assert_eq!(store.work_sessions(9).await.unwrap(), [candidate]);
}

/// The newest work sessions by last activity are returned, oldest first; ties by identifier.
pub async fn the_newest_work_sessions_come_oldest_first(store: &impl UsageStore) {
    let [one, two, three] =
        [("b", 3, 0), ("a", 2, 0), ("c", 1, 5)].map(|(key, n, at)| work_session(key, n, at));
    for candidate in [&one, &two, &three] {
        resolve(store, candidate).await;
    }
    for (limit, expected) in [
        (0, vec![]),
        (1, vec![&three]),
        (2, vec![&one, &three]),
        (9, vec![&two, &one, &three]),
    ] {
        let rows = store.work_sessions(limit).await.unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), expected, "{limit}");
    }
    let active = resolve(store, &work_session("b", 4, 9)).await;
    assert_eq!(store.work_sessions(1).await.unwrap(), [active]);
}

async fn resolve(store: &impl UsageStore, candidate: &WorkSession) -> WorkSession {
    store
        .resolve_work_session(candidate, GAP.into())
        .await
        .unwrap()
}
