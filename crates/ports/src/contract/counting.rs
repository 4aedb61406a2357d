//! Clauses for incremental counting: counts that are updated with each row agree with counts
//! computed from all rows. The reference is the in-memory store, which computes them at each query.

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::records::everything;
use super::scene::{
    RandomNumbers, apply, stream, stream_client, stream_hour, stream_principals, tool,
};
use crate::analytics::{ClientData as _, ClientSelector};
use crate::fake::MemoryStore;

/// Incremental counts agree with counts computed from all rows. The records come in batches of any
/// size, out of order and repeated, with lost runs among them.
pub async fn incremental_counts_agree_with_counts_of_all_rows(store: &impl UsageStore) {
    let scratch = MemoryStore::default();
    for seed in 1..=3 {
        apply(&scratch, &apply_stream(store, seed).await).await;
        assert_same(store, &scratch, &format!("seed {seed}")).await;
    }
}

/// The counts agree after a purge in small steps, and when more records follow.
pub async fn counts_agree_after_a_purge_in_small_steps(store: &impl UsageStore) {
    let scratch = MemoryStore::default();
    for (seed, hours) in [(4, 20), (5, 45), (6, 30)] {
        apply(&scratch, &apply_stream(store, seed).await).await;
        let before = stream_hour(hours);
        purge_in_steps(store, before, 7).await;
        purge_in_steps(&scratch, before, u32::MAX).await;
        assert_same(store, &scratch, &format!("seed {seed}, {hours} hours")).await;
    }
    purge_in_steps(store, stream_hour(100), 50).await;
    assert_same(store, &MemoryStore::default(), "nothing left").await;
}

/// The counts agree after the rows of a client were deleted.
pub async fn counts_agree_after_a_client_is_removed(store: &impl UsageStore) {
    let scratch = MemoryStore::default();
    for seed in 7..=8 {
        apply(&scratch, &apply_stream(store, seed).await).await;
        let clients = ClientSelector(stream_client(1).to_string());
        let deleted = store.delete(&clients).await.unwrap();
        let expected = scratch.delete(&clients).await;
        assert_eq!(deleted, expected.unwrap(), "seed {seed}");
        assert_same(store, &scratch, &format!("seed {seed}")).await;
    }
}

/// Rebuilt counts are the same as before, also after a purge.
pub async fn rebuilt_counts_are_the_same(store: &impl UsageStore) {
    apply_stream(store, 9).await;
    for hours in [0, 30] {
        purge_in_steps(store, stream_hour(hours), 40).await;
        let before = answers(store).await;
        store.rebuild().await.unwrap();
        assert_eq!(answers(store).await, before, "{hours} hours");
    }
    apply_stream(store, 10).await;
    let before = answers(store).await;
    store.rebuild().await.unwrap();
    assert_eq!(answers(store).await, before);
}

/// The integrity check finds no problem after all these changes.
pub async fn the_integrity_check_finds_nothing_after_changes(store: &impl UsageStore) {
    apply_stream(store, 11).await;
    assert_eq!(store.check().await.unwrap(), []);
    purge_in_steps(store, stream_hour(25), 13).await;
    assert_eq!(store.check().await.unwrap(), []);
    let clients = ClientSelector(stream_client(2).to_string());
    store.delete(&clients).await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    store.rebuild().await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
}

/// Applies the stream of a seed in batches of random sizes, some of them twice; returns the applied
/// records.
async fn apply_stream(store: &impl UsageStore, seed: u64) -> Vec<Record> {
    let mut numbers = RandomNumbers::new(!seed);
    let records = stream(seed);
    let mut applied = Vec::new();
    let mut rest = &records[..];
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(rest.len().min(1 + numbers.below(40)));
        let n_times = if numbers.once_in(6) { 2 } else { 1 };
        for _ in 0..n_times {
            apply(store, batch).await;
            applied.extend_from_slice(batch);
        }
        rest = later;
    }
    applied
}

/// Purges step by step until no row is old enough. Asserts that every step removes rows.
pub(super) async fn purge_in_steps(store: &impl UsageStore, before: Timestamp, limit: u32) {
    for _ in 0..10_000 {
        let purged = store.purge(before, limit).await.unwrap();
        if purged.is_done {
            return;
        }
        let n_rows = purged.n_calls + purged.n_sessions + purged.n_others;
        assert_ne!(n_rows, 0, "a step that removes nothing is the last one");
    }
    assert!(store.purge(before, limit).await.unwrap().is_done);
}

async fn assert_same(store: &impl UsageStore, scratch: &MemoryStore, what: &str) {
    let (kept, expected) = (answers(store).await, answers(scratch).await);
    for (kept, expected) in kept.iter().zip(&expected) {
        assert_eq!(kept, expected, "{what}");
    }
    assert_eq!(everything(store).await, everything(scratch).await, "{what}");
}

/// Returns the answers to all queries of counts, for the tools of the stream.
async fn answers(store: &impl UsageStore) -> Vec<String> {
    let [alice, bob] = stream_principals();
    let some: Vec<ToolRef> = ["a\u{0}", "\u{241b}0", "nobody's"].map(tool).into();
    let mut answers = Vec::new();
    for scope in [None, Some(&alice), Some(&bob)] {
        for since in [Timestamp::MIN, stream_hour(17), stream_hour(40)] {
            answers.push(format!(
                "{:#?}",
                store.frequencies(scope, since).await.unwrap()
            ));
            for tools in [None, Some(&some[..])] {
                let statistics = store.statistics(scope, tools, since).await;
                answers.push(format!("{:#?}", statistics.unwrap()));
            }
        }
        for tools in [None, Some(&some[..])] {
            let using = store.sessions_using(scope, tools).await.unwrap();
            let pairs = store.cooccurrences(scope, tools).await.unwrap();
            let transitions = store.transitions(scope, tools).await.unwrap();
            answers.push(format!("{using:#?}"));
            answers.push(format!("{pairs:#?}"));
            answers.push(format!("{transitions:#?}"));
        }
    }
    answers
}
