//! The clauses of [`ListEpochRepository`](crate::analytics::ListEpochRepository).

use riglm_domain::selection::epoch::ListEpoch;

use super::UsageStore;
use super::scene::{expected_coverage, list_epoch, odd_texts, size_choice};
use super::weights::conflict;

/// An epoch that begins is current, and is read with all its values.
pub async fn an_epoch_that_begins_holds(store: &impl UsageStore) {
    for epoch in 1..=3 {
        let tools: Vec<_> = odd_texts()
            .into_iter()
            .skip(usize::from(epoch == 2))
            .collect();
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        let begun = list_epoch("scope", epoch, if epoch == 3 { &[] } else { &tools });
        assert_eq!(store.begin_epoch(&begun).await.unwrap(), begun);
        let read = store.list_epoch("scope").await.unwrap();
        assert_eq!(read, Some(begun));
    }
}

/// An epoch keeps the decision about its size, with the exact probability, or none.
pub async fn the_size_choice_of_an_epoch_is_read(store: &impl UsageStore) {
    for (epoch, size_choice) in [
        (1, Some(size_choice())),
        (2, None),
        (3, Some(size_choice())),
    ] {
        let begun = ListEpoch {
            size_choice,
            ..list_epoch("scope", epoch, &["a"])
        };
        assert_eq!(store.begin_epoch(&begun).await.unwrap(), begun);
        assert_eq!(store.list_epoch("scope").await.unwrap(), Some(begun));
    }
}

/// An epoch keeps the expected coverage of its list, or none. The next epoch has its own.
pub async fn the_expected_coverage_of_an_epoch_is_read(store: &impl UsageStore) {
    for (epoch, expected_coverage) in [
        (1, Some(expected_coverage())),
        (2, None),
        (3, Some(expected_coverage())),
    ] {
        let begun = ListEpoch {
            expected_coverage,
            ..list_epoch("scope", epoch, &["a"])
        };
        assert_eq!(store.begin_epoch(&begun).await.unwrap(), begun);
        assert_eq!(store.list_epoch("scope").await.unwrap(), Some(begun));
    }
}

/// Each scope, of any name, has its own epochs, and none before its first.
pub async fn each_scope_has_epochs_of_its_own(store: &impl UsageStore) {
    for scope in odd_texts() {
        assert_eq!(store.list_epoch(&scope).await.unwrap(), None);
        let first = list_epoch(&scope, 1, &["a"]);
        store.begin_epoch(&first).await.unwrap();
        assert_eq!(store.list_epoch(&scope).await.unwrap(), Some(first));
    }
}

/// An epoch keeps the tools of its beginning.
pub async fn an_epoch_keeps_the_tools_of_its_beginning(store: &impl UsageStore) {
    let first = list_epoch("scope", 1, &["a"]);
    store.begin_epoch(&first).await.unwrap();
    let second = list_epoch("scope", 1, &["b"]);
    assert_eq!(store.begin_epoch(&second).await.unwrap(), first);
    assert_eq!(store.list_epoch("scope").await.unwrap(), Some(first));
}

/// An epoch whose number is not the next one does not begin: the current epoch is returned.
pub async fn only_the_next_epoch_begins(store: &impl UsageStore) {
    for epoch in 1..=2 {
        let begun = list_epoch("scope", epoch, &["a"]);
        store.begin_epoch(&begun).await.unwrap();
    }
    let holding = list_epoch("scope", 2, &["a"]);
    let before = store.revisions().await.unwrap();
    for epoch in [0, 1, 4, u64::MAX] {
        let other = list_epoch("scope", epoch, &["b"]);
        assert_eq!(store.begin_epoch(&other).await.unwrap(), holding);
    }
    assert_eq!(store.list_epoch("scope").await.unwrap(), Some(holding));
    assert_eq!(store.revisions().await.unwrap(), before);
}

/// The first epoch of a scope is 1; another number is a conflict.
pub async fn the_first_epoch_is_one(store: &impl UsageStore) {
    for epoch in [0, 2, 7] {
        let refused = store.begin_epoch(&list_epoch("scope", epoch, &["a"])).await;
        let found = conflict(&refused.unwrap_err());
        assert_eq!(found, (epoch.saturating_sub(1), 0));
        assert_eq!(store.list_epoch("scope").await.unwrap(), None);
    }
}
