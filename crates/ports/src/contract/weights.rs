//! The clauses of [`WeightRepository`](crate::analytics::WeightRepository).

use std::collections::BTreeMap;

use super::UsageStore;
use super::scene::{audit, odd_texts, weights};
use crate::analytics::StoreError;

/// A version is read with all its values, and is used from then on.
pub async fn a_version_that_is_added_is_used(store: &impl UsageStore) {
    let mut expected = Vec::new();
    for version in 1..=3 {
        let mut added = weights("find \u{0}'", version);
        if version == 2 {
            added.weights = BTreeMap::new();
        }
        store.add_weights(&added, &audit(1)).await.unwrap();
        let used = store.used_weights("find \u{0}'").await.unwrap();
        assert_eq!(used.as_ref(), Some(&added));
        expected.push(added);
    }
    let versions = store.weight_versions("find \u{0}'", 9).await.unwrap();
    assert_eq!(versions, expected);
}

/// A ranking can have any name, and has no weights before its first version.
pub async fn each_ranking_has_versions_of_its_own(store: &impl UsageStore) {
    for ranking in odd_texts() {
        assert_eq!(store.used_weights(&ranking).await.unwrap(), None);
        assert_eq!(store.weight_versions(&ranking, 9).await.unwrap(), []);
        let first = weights(&ranking, 1);
        store.add_weights(&first, &audit(1)).await.unwrap();
        let versions = store.weight_versions(&ranking, 9).await.unwrap();
        assert_eq!(versions, [first]);
    }
}

/// A version that does not follow the newest one is refused, with nothing written.
pub async fn a_version_that_does_not_follow_is_refused(store: &impl UsageStore) {
    for (version, newest) in [
        (0, 0),
        (2, 0),
        (1, 0),
        (1, 1),
        (3, 1),
        (2, 1),
        (2, 2),
        (1, 2),
    ] {
        let before = store.revisions().await.unwrap();
        let entry = audit(10 + u8::try_from(10 * newest + version).unwrap());
        let added = store.add_weights(&weights("r", version), &entry).await;
        if version == newest + 1 {
            added.unwrap();
            continue;
        }
        let found = conflict(&added.unwrap_err());
        assert_eq!(found, (version.saturating_sub(1), newest));
        let versions = store.weight_versions("r", 9).await.unwrap();
        assert_eq!(versions.len() as u64, newest);
        let used = store.used_weights("r").await.unwrap();
        assert_eq!(used.map_or(0, |used| used.version), newest);
        assert!(!store.entries(99).await.unwrap().contains(&entry));
        assert_eq!(store.revisions().await.unwrap(), before);
    }
}

/// An existing version can be used again, older or newer; a new one still follows the newest.
pub async fn an_existing_version_can_be_used_again(store: &impl UsageStore) {
    for version in 1..=2 {
        let added = weights("r", version);
        store.add_weights(&added, &audit(1)).await.unwrap();
    }
    for version in [1, 1, 2, 1] {
        assert!(store.use_weights("r", version, &audit(2)).await.unwrap());
        let used = store.used_weights("r").await.unwrap();
        assert_eq!(used, Some(weights("r", version)));
        assert_eq!(store.weight_versions("r", 9).await.unwrap().len(), 2);
    }
    let third = weights("r", 3);
    store.add_weights(&third, &audit(3)).await.unwrap();
    assert_eq!(store.used_weights("r").await.unwrap(), Some(third));
}

/// Switching to an unknown version writes nothing.
pub async fn an_unknown_version_writes_nothing(store: &impl UsageStore) {
    let first = weights("r", 1);
    store.add_weights(&first, &audit(1)).await.unwrap();
    let before = store.revisions().await.unwrap();
    for (ranking, version) in [("r", 2), ("r", 0), ("other", 1), ("r", u64::MAX)] {
        let used = store.use_weights(ranking, version, &audit(2)).await;
        assert!(!used.unwrap(), "{ranking} {version}");
    }
    assert_eq!(store.used_weights("r").await.unwrap(), Some(first));
    assert_eq!(store.used_weights("other").await.unwrap(), None);
    assert_eq!(store.entries(9).await.unwrap(), [audit(1)]);
    assert_eq!(store.revisions().await.unwrap(), before);
}

/// Adding and using weights writes the entry for the audit trail.
pub async fn every_change_of_weights_has_its_entry(store: &impl UsageStore) {
    let first = weights("r", 1);
    store.add_weights(&first, &audit(1)).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [audit(1)]);
    store.use_weights("r", 1, &audit(2)).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [audit(1), audit(2)]);
}

/// The newest versions are returned, oldest first.
pub async fn the_newest_versions_come_oldest_first(store: &impl UsageStore) {
    for version in 1..=12 {
        let added = weights("r", version);
        store.add_weights(&added, &audit(1)).await.unwrap();
    }
    for (limit, expected) in [(0, 13..13), (1, 12..13), (4, 9..13), (99, 1..13)] {
        let versions = store.weight_versions("r", limit).await.unwrap();
        let numbers = versions.iter().map(|row| row.version);
        assert!(numbers.eq(expected), "{limit}");
    }
}

/// Returns the versions of a conflict: the expected one and the stored one.
pub(super) fn conflict(error: &StoreError) -> (u64, u64) {
    let StoreError::Conflict {
        expected, found, ..
    } = error
    else {
        unreachable!("expected a conflict, not {error:?}");
    };
    (*expected, *found)
}
