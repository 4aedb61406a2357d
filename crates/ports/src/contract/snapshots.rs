//! The clauses of [`SnapshotRepository`](crate::analytics::SnapshotRepository).

use super::UsageStore;
use super::scene::{odd_texts, snapshot};
use super::weights::conflict;
use crate::analytics::Topic;

/// The newest snapshot of a model is read with all its values.
pub async fn the_newest_snapshot_is_read_as_it_was_saved(store: &impl UsageStore) {
    for version in 1..=4 {
        let mut saved = snapshot("m\u{0}", version);
        if version == 3 {
            saved.learned_to = None;
            saved.bytes.clear();
        }
        store.save_snapshot(&saved).await.unwrap();
        let newest = store.newest_snapshot("m\u{0}").await.unwrap();
        assert_eq!(newest, Some(saved));
    }
}

/// A large snapshot is stored unchanged.
pub async fn a_large_snapshot_survives(store: &impl UsageStore) {
    let mut saved = snapshot("m", 1);
    saved.bytes = saved.bytes.repeat(4_000);
    store.save_snapshot(&saved).await.unwrap();
    assert_eq!(store.newest_snapshot("m").await.unwrap(), Some(saved));
}

/// A model can have any name, and has no snapshot before its first.
pub async fn each_model_has_snapshots_of_its_own(store: &impl UsageStore) {
    let models = odd_texts();
    for model in &models {
        assert_eq!(store.newest_snapshot(model).await.unwrap(), None);
        store.save_snapshot(&snapshot(model, 1)).await.unwrap();
    }
    store.save_snapshot(&snapshot(&models[0], 2)).await.unwrap();
    for (model, version) in models.iter().zip([2].into_iter().chain([1; 99])) {
        let newest = store.newest_snapshot(model).await.unwrap();
        assert_eq!(newest, Some(snapshot(model, version)));
    }
}

/// A version that does not follow the newest one is refused, with nothing written.
pub async fn a_snapshot_that_does_not_follow_is_refused(store: &impl UsageStore) {
    let follows = [
        (0, 0),
        (2, 0),
        (1, 0),
        (1, 1),
        (3, 1),
        (2, 1),
        (3, 2),
        (5, 3),
        (3, 3),
        (1, 3),
    ];
    for (version, newest) in follows {
        let before = store.revisions().await.unwrap();
        let saved = store.save_snapshot(&snapshot("m", version)).await;
        if version == newest + 1 {
            saved.unwrap();
            continue;
        }
        let found = conflict(&saved.unwrap_err());
        assert_eq!(found, (version.saturating_sub(1), newest));
        let read = store.newest_snapshot("m").await.unwrap();
        assert_eq!(read.map_or(0, |read| read.version), newest);
        assert_eq!(store.revisions().await.unwrap(), before);
    }
}

/// All snapshots are deleted, and the change feed reports it, also without a snapshot.
pub async fn deleted_snapshots_are_reported(store: &impl UsageStore) {
    let mut last = Topic::Erasures.revision(&store.revisions().await.unwrap());
    for models in [&["m", "n"][..], &[]] {
        for model in models {
            store.save_snapshot(&snapshot(model, 1)).await.unwrap();
        }
        store.delete_snapshots().await.unwrap();
        for model in ["m", "n"] {
            assert_eq!(store.newest_snapshot(model).await.unwrap(), None);
        }
        let revision = Topic::Erasures.revision(&store.revisions().await.unwrap());
        assert!(revision > last);
        last = revision;
    }
    // The first version of a model is 1 again.
    store.save_snapshot(&snapshot("m", 1)).await.unwrap();
}
