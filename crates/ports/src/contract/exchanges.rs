//! The clauses of [`InvocationRepository`](crate::analytics::InvocationRepository) about requests
//! for resources and prompts.

use riglm_domain::id::ExchangeId;
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, exchange, moment, odd_texts, run, session};

/// A request is read with every value that was recorded.
pub async fn an_exchange_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let full = exchange(session, 2);
    let mut bare = exchange(session, 3);
    bare.target = None;
    let records = [full.clone(), bare.clone()].map(Record::Exchanged);
    apply(store, &records).await;
    assert_eq!(store.exchanges(session, 9).await.unwrap(), [full, bare]);
}

/// Any text of a method or a target is stored unchanged.
pub async fn any_texts_of_an_exchange_survive(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let expected: Vec<_> = (2..)
        .zip(odd_texts())
        .map(|(n, text)| {
            let mut odd = exchange(session, n);
            odd.method.clone_from(&text);
            odd.target = Some(text);
            odd
        })
        .collect();
    let records: Vec<_> = expected.iter().cloned().map(Record::Exchanged).collect();
    apply(store, &records).await;
    assert_eq!(store.exchanges(session, u32::MAX).await.unwrap(), expected);
}

/// The newest requests of the session by start come back, oldest first, and no others.
pub async fn the_newest_exchanges_of_a_session_come_oldest_first(store: &impl UsageStore) {
    let (asked, other) = (session(run(1), 1).id, session(run(1), 2).id);
    let records = [(asked, 4), (other, 9), (asked, 3), (asked, 5)]
        .map(|(session, n)| Record::Exchanged(exchange(session, n)));
    apply(store, &records).await;
    for (limit, expected) in [(0, &[][..]), (1, &[5]), (2, &[4, 5]), (9, &[3, 4, 5])] {
        let starts: Vec<_> = (store.exchanges(asked, limit).await.unwrap().iter())
            .map(|exchange| exchange.started_at)
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(starts, expected, "{limit}");
    }
}

/// Requests that started at the same moment are ordered by identifier.
pub async fn exchanges_of_one_moment_are_ordered_by_identifier(store: &impl UsageStore) {
    let session = session(run(1), 1).id;
    let exchanges = [3, 1, 2].map(|n| {
        let mut exchange = exchange(session, n);
        exchange.started_at = moment(9);
        exchange
    });
    apply(store, &exchanges.clone().map(Record::Exchanged)).await;
    let mut expected: Vec<ExchangeId> = exchanges.iter().map(|exchange| exchange.id).collect();
    expected.sort_unstable();
    let ids: Vec<_> = (store.exchanges(session, 2).await.unwrap().iter())
        .map(|exchange| exchange.id)
        .collect();
    assert_eq!(ids, expected[1..]);
}
