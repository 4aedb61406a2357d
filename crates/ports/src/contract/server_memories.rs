//! The clauses of [`ServerMemoryRepository`](crate::analytics::ServerMemoryRepository).

use riglm_domain::id::UpstreamName;

use super::UsageStore;
use super::scene::{moment, odd_texts};
use crate::analytics::ServerMemory;

/// A memory is read with all its values, in the order of the parts.
pub async fn a_memory_is_read_as_it_was_learned(store: &impl UsageStore) {
    let all = (odd_texts().into_iter()).map(|text| ServerMemory {
        fingerprint: text.clone(),
        content: text.repeat(5),
        ..memory("up", &text, 3)
    });
    let mut all: Vec<_> = all.filter(ServerMemory::fits).collect();
    store.remember_servers(&all).await.unwrap();
    all.sort_by(|one, other| one.part.cmp(&other.part));
    assert_eq!(recall(store, &["up"]).await, all);
}

/// A later memory of a part replaces the earlier one, whatever its fingerprint and its time, and no
/// memory of another part.
pub async fn a_later_memory_replaces_the_earlier_one(store: &impl UsageStore) {
    let [a, b] = ["a", "b"].map(|part| memory("up", part, 5));
    store.remember_servers(&[a, b.clone()]).await.unwrap();
    let later = [8, 2].map(|at| ServerMemory {
        fingerprint: format!("fingerprint {at}"),
        content: format!("content {at}"),
        ..memory("up", "a", at)
    });
    store.remember_servers(&later).await.unwrap();
    let [_, last] = later;
    assert_eq!(recall(store, &["up"]).await, [last, b]);
}

/// Memories are those of the named upstreams, ordered by upstream. Upstreams without memories are
/// left out.
pub async fn memories_are_those_of_the_named_upstreams(store: &impl UsageStore) {
    store.remember_servers(&[]).await.unwrap();
    let [b, upper, a] = ["b", "B", "a"].map(|upstream| memory(upstream, "tools", 1));
    let all = [b.clone(), upper.clone(), a.clone()];
    store.remember_servers(&all).await.unwrap();
    let named = recall(store, &["b", "none", "a", "B", "b"]).await;
    assert_eq!(named, [upper, a.clone(), b]);
    assert_eq!(recall(store, &["a"]).await, [a]);
    assert_eq!(recall(store, &["none"]).await, []);
    assert_eq!(recall(store, &[]).await, []);
}

/// Of each upstream the parts that were learned last are kept; of those of one moment, the last by
/// name.
pub async fn the_newest_memories_of_an_upstream_are_kept(store: &impl UsageStore) {
    let other = memory("other", "a", 0);
    store
        .remember_servers(std::slice::from_ref(&other))
        .await
        .unwrap();
    let part = |n: usize| format!("{n:02}");
    let n_parts = ServerMemory::MAX_PARTS + 2;
    let parts: Vec<_> = (0..n_parts)
        .map(|n| memory("up", &part(n), if n == 9 { 1 } else { 2 }))
        .collect();
    store.remember_servers(&parts).await.unwrap();
    let kept = |gone: &[usize]| -> Vec<String> {
        let all = (0..n_parts).filter(|n| !gone.contains(n));
        all.map(part).collect()
    };
    let names = |memories: Vec<ServerMemory>| -> Vec<String> {
        memories.into_iter().map(|memory| memory.part).collect()
    };
    assert_eq!(names(recall(store, &["up"]).await), kept(&[0, 9]));
    // A part that is learned again is not the oldest any more.
    store
        .remember_servers(&[memory("up", "01", 3), memory("up", "00", 3)])
        .await
        .unwrap();
    assert_eq!(names(recall(store, &["up"]).await), kept(&[2, 9]));
    assert_eq!(recall(store, &["other"]).await, [other]);
}

/// A memory of the largest size is stored; one that is larger only removes the earlier one.
pub async fn a_memory_that_is_too_large_is_forgotten(store: &impl UsageStore) {
    let with_content = |n_bytes| ServerMemory {
        content: "x".repeat(n_bytes),
        ..memory("up", &"p".repeat(ServerMemory::MAX_PART_BYTES), 1)
    };
    let largest = with_content(ServerMemory::MAX_CONTENT_BYTES);
    let long_name = memory("up", &"p".repeat(ServerMemory::MAX_PART_BYTES + 1), 1);
    store
        .remember_servers(&[largest.clone(), long_name])
        .await
        .unwrap();
    // Compared without printing 16 MiB.
    assert!(recall(store, &["up"]).await == [largest]);
    let a = memory("up", "a", 1);
    let too_large = with_content(ServerMemory::MAX_CONTENT_BYTES + 1);
    store
        .remember_servers(&[too_large, a.clone()])
        .await
        .unwrap();
    assert!(recall(store, &["up"]).await == [a]);
}

/// Returns the memories of upstreams.
pub(super) async fn recall(store: &impl UsageStore, upstreams: &[&str]) -> Vec<ServerMemory> {
    let upstreams: Vec<_> = upstreams.iter().map(|name| upstream(name)).collect();
    store.recall_servers(&upstreams).await.unwrap()
}

/// Returns a memory that was learned `at` milliseconds into the scene.
pub(super) fn memory(of: &str, part: &str, at: i64) -> ServerMemory {
    ServerMemory {
        upstream: upstream(of),
        fingerprint: "0123456789abcdef".into(),
        part: part.into(),
        content: format!(r#"{{ "part":"{part}" }}"#),
        learned_at: moment(at),
    }
}

fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).unwrap()
}
