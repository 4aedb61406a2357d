//! Changes of list options.

use super::*;

/// Options with shorter lists.
fn fewer() -> FilteringConfig {
    FilteringConfig {
        min_tools: 1,
        max_tools: 2,
        token_budget: None,
        ..FilteringConfig::default()
    }
}

fn no_profiles() -> HashMap<String, FilteringConfig> {
    HashMap::new()
}

#[tokio::test]
async fn only_changed_options_affect_the_next_list() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let lists = lists(Some(&store), &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    for request in [request(&local, 1), modern(&local, 2)] {
        let before = lists.list(&request, &catalog).await;
        let revision = lists.revision();
        assert!(!lists.set_options(FilteringConfig::default(), no_profiles()));
        assert_eq!(lists.revision(), revision);
        assert!(lists.is_decided(&request, &catalog));

        assert!(lists.set_options(fewer(), no_profiles()));
        assert!(lists.revision() > revision);
        assert!(!lists.is_decided(&request, &catalog));
        let after = lists.list(&request, &catalog).await;
        assert_eq!(after.epoch, before.epoch + 1);
        assert!(numbers(&before).len() > 2 && numbers(&after).len() <= 2);
        let again = lists.list(&request, &catalog).await;
        assert_eq!(again.epoch, after.epoch);

        let pinned = FilteringConfig {
            pins: vec![NamePattern::new("tool_050")],
            ..fewer()
        };
        assert!(lists.set_options(pinned, no_profiles()));
        let shown = lists.list(&request, &catalog).await;
        assert_eq!(numbers(&shown)[0], 50);
        let by_name = FilteringConfig {
            policy: Some(ListPolicyName::Allowlist),
            allow: vec![NamePattern::new("tool_06*")],
            ..fewer()
        };
        assert!(lists.set_options(by_name, no_profiles()));
        let shown = lists.list(&request, &catalog).await;
        assert_eq!(numbers(&shown), (60..70).collect::<Vec<_>>());
        assert!(lists.set_options(FilteringConfig::default(), no_profiles()));
    }
}

#[tokio::test]
async fn options_of_a_profile_leave_the_epochs_of_others_alone() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let narrow_ask = ListRequest {
        profile: Some("narrow"),
        session: over(2),
        ..request(&local, 2)
    };
    let plain = lists.list(&request(&local, 1), &catalog).await;
    let of_profile = lists.list(&narrow_ask, &catalog).await;
    let changed = HashMap::from([("narrow".to_owned(), fewer())]);
    assert!(lists.set_options(FilteringConfig::default(), changed));
    assert_eq!(
        lists.list(&request(&local, 1), &catalog).await.epoch,
        plain.epoch
    );
    let other = lists.list(&narrow_ask, &catalog).await;
    assert_eq!(other.epoch, of_profile.epoch + 1);
    assert!(numbers(&of_profile).len() > 2 && numbers(&other).len() <= 2);
}

#[tokio::test]
async fn used_tools_stay_listed_after_option_changes() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    lists.list(&request(&local, 1), &catalog).await;
    for n in [40, 41, 42] {
        lists.record_call(&request(&local, 1), &tool(n));
    }
    lists.set_options(fewer(), no_profiles());
    let shown = lists.list(&request(&local, 1), &catalog).await;
    let shown = numbers(&shown);
    assert!([40, 41, 42].iter().all(|n| shown.contains(n)), "{shown:?}");
}

#[tokio::test]
async fn equal_option_changes_in_two_processes_start_one_epoch() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let (one, other) = (
        lists(Some(&store), &[3, 7, 11]),
        lists(Some(&store), &[3, 7, 11]),
    );
    let catalog = catalog_of(0..N);
    let request = modern(&local, 1);
    assert_eq!(one.list(&request, &catalog).await.epoch, 1);
    assert_eq!(other.list(&request, &catalog).await.epoch, 1);
    one.set_options(fewer(), no_profiles());
    assert_eq!(one.list(&request, &catalog).await.epoch, 2);
    // The watch does the same when the store has a newer epoch.
    other.scopes.read_again();
    other.set_options(fewer(), no_profiles());
    let shown = other.list(&request, &catalog).await;
    assert_eq!((shown.epoch, numbers(&shown).len() <= 2), (2, true));
}

#[tokio::test]
async fn reselection_without_changes_starts_no_epoch() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let before = lists.list(&request(&local, 1), &catalog).await;
    lists.reselect_all();
    assert!(!lists.is_decided(&request(&local, 1), &catalog));
    // The choice is the same, so that no epoch begins.
    let after = lists.list(&request(&local, 1), &catalog).await;
    assert_eq!(after.epoch, before.epoch);
    assert!(lists.is_decided(&request(&local, 1), &catalog));
}
