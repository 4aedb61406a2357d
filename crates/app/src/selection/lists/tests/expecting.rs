//! The expected coverage of lists.

use riglm_domain::selection::ExpectedCoverage;

use super::*;

fn options_of(policy: ListPolicyName) -> FilteringConfig {
    FilteringConfig {
        policy: Some(policy),
        ..FilteringConfig::default()
    }
}

/// Returns the predicted probability of the tools that the client of a request sees now.
async fn probability_of_list(
    lists: &Lists,
    request: &ListRequest<'_>,
    catalog: &Arc<Catalog>,
) -> Option<ExpectedCoverage> {
    let forecast = lists.forecast(request, catalog, N).await.unwrap();
    ExpectedCoverage::try_from(forecast.mass).ok()
}

#[tokio::test]
async fn a_list_expects_as_much_as_the_prediction_gives_its_tools() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    for policy in [
        ListPolicyName::Epoch,
        ListPolicyName::Append,
        ListPolicyName::Conformal,
    ] {
        // Pinned and banned tools are part of the decision.
        let options = FilteringConfig {
            pins: vec![NamePattern::new("tool_050")],
            bans: vec![NamePattern::new("tool_007")],
            ..options_of(policy)
        };
        let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
        let request = request(&local, 1);
        let shown = lists.list(&request, &catalog).await;
        assert!(shown.shows(&tool(50)) && shown.hides(&tool(7)));
        let expected = shown.expected_coverage.unwrap().get();
        let predicted = probability_of_list(&lists, &request, &catalog).await;
        assert!(
            (expected - predicted.unwrap().get()).abs() < 1e-5,
            "{policy:?}: {expected} {predicted:?}"
        );
        assert!(expected > 0.0, "{policy:?}: {expected}");
    }
}

#[tokio::test]
async fn an_epoch_keeps_its_expectation_in_each_process() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let catalog = catalog_of(0..N);
    for request in [request(&local, 1), modern(&local, 2)] {
        let first = lists(Some(&store), &[3, 7, 11]);
        let shown = first.list(&request, &catalog).await;
        assert!(shown.expected_coverage.is_some());
        // Another process has learned something else, and would expect less of this list.
        let other = lists(Some(&store), &[60, 61, 62]);
        let again = other.list(&request, &catalog).await;
        assert_eq!(numbers(&again), numbers(&shown));
        assert_eq!(again.expected_coverage, shown.expected_coverage);
        let predicted = probability_of_list(&other, &request, &catalog).await;
        assert!(predicted < shown.expected_coverage);
    }
}

#[tokio::test]
async fn another_list_of_the_selected_tools_expects_nothing() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let request = request(&local, 1);
    let shown = lists.list(&request, &catalog_of(0..N)).await;
    assert!(shown.expected_coverage.is_some());
    let exclusion = override_for_all("tool_007", OverrideAction::Exclude);
    lists.settings.overrides.set(vec![exclusion]);
    let shorter = lists.list(&request, &catalog_of(0..N)).await;
    assert_eq!((shorter.epoch, shorter.expected_coverage), (1, None));
    lists.settings.overrides.set(Vec::new());
    let same = lists.list(&request, &catalog_of(0..N)).await;
    assert_eq!(same.expected_coverage, shown.expected_coverage);
    // A listed tool is gone.
    let without = lists
        .list(&request, &catalog_of((0..N).filter(|n| *n != 7)))
        .await;
    assert_eq!((without.epoch, without.expected_coverage), (1, None));
    // A new tool is appended.
    let longer = lists.list(&request, &catalog_of(0..=N)).await;
    assert!(longer.shows(&tool(N)));
    assert_eq!(longer.expected_coverage, None);
}

#[tokio::test]
async fn lists_without_a_prediction_or_hidden_tools_expect_nothing() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    for policy in [ListPolicyName::Hints, ListPolicyName::All] {
        let lists = lists_with(None, &[3, 7, 11], options_of(policy), &Arc::default());
        let shown = lists.list(&request(&local, 1), &catalog).await;
        assert_eq!(shown.expected_coverage, None, "{policy:?}");
    }
    let untrained = lists_after(0, None, &[], FilteringConfig::default(), &Arc::default());
    let shown = untrained.list(&request(&local, 1), &catalog).await;
    assert_eq!(shown.expected_coverage, None);
    // A small catalog is shown whole.
    for policy in [ListPolicyName::Epoch, ListPolicyName::Conformal] {
        let whole = lists_with(None, &[3, 7, 11], options_of(policy), &Arc::default());
        let shown = whole.list(&request(&local, 1), &catalog_of(0..3)).await;
        assert!(shown.is_whole(), "{policy:?}");
        assert_eq!(shown.expected_coverage, None, "{policy:?}");
    }
}
