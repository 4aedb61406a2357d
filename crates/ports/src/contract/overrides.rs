//! The clauses of [`OverrideRepository`](crate::analytics::OverrideRepository).

use std::slice;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};

use super::UsageStore;
use super::scene::{audit, exclusion, moment, odd_texts};

/// An override is read with every value that it was set with, for each kind of scope.
pub async fn an_override_is_read_as_it_was_set(store: &impl UsageStore) {
    let mut bare = exclusion(1, "echo", OverrideScope::Global);
    bare.action = OverrideAction::Include;
    bare.reason = None;
    let mut all = vec![bare];
    for (n, text) in (2..).zip(odd_texts()) {
        let scope = match n % 3 {
            0 => OverrideScope::Profile(text.clone()),
            1 => OverrideScope::Client(text.clone()),
            _ => OverrideScope::Session(text.clone()),
        };
        let mut odd = exclusion(n, &text, scope);
        odd.action = OverrideAction::Pin;
        odd.expires_at = Some(moment(90));
        odd.reason = Some(text);
        all.push(odd);
    }
    for row in all.iter().rev() {
        store.set_override(row, &audit(1)).await.unwrap();
    }
    assert_eq!(store.overrides(moment(5)).await.unwrap(), all);
}

/// An override replaces another one for the same tool and scope, and no other.
pub async fn one_for_the_same_tool_and_scope_is_replaced(store: &impl UsageStore) {
    let global = || OverrideScope::Global;
    let profile = |name: &str| OverrideScope::Profile(name.into());
    let first = exclusion(1, "echo", global());
    let others = [
        exclusion(2, "Echo", global()),
        exclusion(3, "echo", profile("p")),
        exclusion(4, "echo", profile("q")),
        exclusion(5, "echo", OverrideScope::Client("p".into())),
    ];
    let mut second = exclusion(6, "echo", global());
    second.action = OverrideAction::Pin;
    set(store, &first).await;
    for other in &others {
        set(store, other).await;
    }
    set(store, &second).await;
    let expected: Vec<_> = others.into_iter().chain([second]).collect();
    assert_eq!(all(store).await, expected);
}

/// An override that is set again under its identifier exists once, with the last values.
pub async fn an_override_that_is_set_again_is_there_once(store: &impl UsageStore) {
    let first = exclusion(1, "echo", OverrideScope::Global);
    let second = exclusion(1, "add", OverrideScope::Profile("p".into()));
    for row in [&first, &first, &second] {
        set(store, row).await;
    }
    assert_eq!(all(store).await, [second]);
}

/// A removed override is gone, and the result says whether it existed.
pub async fn a_removed_override_is_gone(store: &impl UsageStore) {
    let rows = [1, 2].map(|n| exclusion(n, &n.to_string(), OverrideScope::Global));
    for row in &rows {
        set(store, row).await;
    }
    let removed = store.remove_override(rows[0].id, &audit(9)).await;
    assert!(removed.unwrap());
    assert_eq!(all(store).await, rows[1..]);
}

/// Only the overrides that are in force at the moment are read: they end later, or never.
pub async fn only_overrides_that_hold_are_read(store: &impl UsageStore) {
    let mut ending = exclusion(1, "echo", OverrideScope::Global);
    ending.expires_at = Some(moment(50));
    let lasting = exclusion(2, "add", OverrideScope::Global);
    set(store, &ending).await;
    set(store, &lasting).await;
    let before = moment(50) - SignedDuration::from_micros(1);
    let both = [ending, lasting.clone()];
    assert_eq!(store.overrides(before).await.unwrap(), both);
    for later in [moment(50), Timestamp::MAX] {
        let holding = store.overrides(later).await.unwrap();
        assert_eq!(holding, slice::from_ref(&lasting));
    }
    assert_eq!(store.overrides(Timestamp::MIN).await.unwrap(), both);
}

/// Setting and removing an override writes the entry for the audit trail.
pub async fn every_change_of_overrides_has_its_entry(store: &impl UsageStore) {
    let row = exclusion(1, "echo", OverrideScope::Global);
    store.set_override(&row, &audit(2)).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [audit(2)]);
    store.remove_override(row.id, &audit(3)).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [audit(2), audit(3)]);
}

/// Removing an unknown override writes nothing.
pub async fn removing_no_override_writes_nothing(store: &impl UsageStore) {
    let row = exclusion(1, "echo", OverrideScope::Global);
    set(store, &row).await;
    let before = store.revisions().await.unwrap();
    let unknown = exclusion(2, "echo", OverrideScope::Global).id;
    let removed = store.remove_override(unknown, &audit(9)).await;
    assert!(!removed.unwrap());
    assert_eq!(all(store).await, [row]);
    assert_eq!(store.entries(9).await.unwrap(), [audit(1)]);
    assert_eq!(store.revisions().await.unwrap(), before);
}

async fn set(store: &impl UsageStore, row: &ToolOverride) {
    store.set_override(row, &audit(1)).await.unwrap();
}

async fn all(store: &impl UsageStore) -> Vec<ToolOverride> {
    store.overrides(moment(5)).await.unwrap()
}
