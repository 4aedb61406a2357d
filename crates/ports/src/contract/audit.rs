//! The clauses of [`AuditTrail`](crate::analytics::AuditTrail).

use riglm_domain::privacy::principal::Principal;
use serde_json::Value;

use super::UsageStore;
use super::scene::{audit, moment, odd_texts};

/// An entry is read with every value that was added.
pub async fn an_entry_is_read_as_it_was_added(store: &impl UsageStore) {
    let mut bare = audit(1);
    bare.detail = None;
    let mut all = vec![bare];
    for (n, text) in (2..).zip(odd_texts()) {
        let mut odd = audit(n);
        odd.actor = Principal::from_name(&text);
        odd.action.clone_from(&text);
        odd.target.clone_from(&text);
        odd.detail = Some(Value::from(text).to_string());
        all.push(odd);
    }
    for entry in &all {
        store.add(entry).await.unwrap();
    }
    assert_eq!(store.entries(u32::MAX).await.unwrap(), all);
}

/// An entry with a known identifier does not change the stored entry.
pub async fn an_entry_is_never_changed(store: &impl UsageStore) {
    let first = audit(1);
    let mut second = first.clone();
    second.action = "another".into();
    store.add(&first).await.unwrap();
    store.add(&second).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [first]);
}

/// The newest entries by identifier come back, oldest first.
pub async fn the_newest_entries_come_oldest_first(store: &impl UsageStore) {
    for n in [3, 1, 4, 2] {
        let mut entry = audit(n);
        // Against the order of the identifiers.
        entry.at = moment(9 - i64::from(n));
        store.add(&entry).await.unwrap();
    }
    for (limit, expected) in [(0, &[][..]), (1, &[5]), (3, &[7, 6, 5]), (9, &[8, 7, 6, 5])] {
        let moments: Vec<_> = (store.entries(limit).await.unwrap().iter())
            .map(|entry| entry.at)
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| moment(*n)).collect();
        assert_eq!(moments, expected, "{limit}");
    }
}

/// A cursor returns only entries with a smaller identifier.
pub async fn entries_before_one_have_a_smaller_identifier(store: &impl UsageStore) {
    for n in 1..=4 {
        store.add(&audit(n)).await.unwrap();
    }
    let page = store.entries_before(Some(audit(4).id), 2).await.unwrap();
    assert_eq!(page, [audit(2), audit(3)]);
    let page = store.entries_before(Some(audit(1).id), 2).await.unwrap();
    assert_eq!(page, []);
}
