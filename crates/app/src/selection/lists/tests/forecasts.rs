//! The prediction for a session, beside the list that the session has.

use super::*;
use crate::selection::{ForecastTool, ListForecast, PlacementReason};

fn for_all(n: usize, action: OverrideAction) -> ToolOverride {
    override_for_all(tool(n).tool.as_str(), action)
}

fn reasons<const M: usize>(forecast: &ListForecast, numbers: [usize; M]) -> [PlacementReason; M] {
    numbers.map(|n| {
        let found = forecast.tools.iter().find(|one| one.tool == tool(n));
        found.unwrap().placing
    })
}

#[tokio::test]
async fn overrides_since_the_newest_list_are_told_from_those_in_it() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let request = request(&local, 1);
    let shown = lists.list(&request, &catalog).await;
    assert!(shown.shows(&tool(3)) && shown.hides(&tool(50)) && shown.hides(&tool(51)));
    lists.settings.overrides.set(vec![
        for_all(50, OverrideAction::Pin),
        for_all(51, OverrideAction::Include),
        for_all(3, OverrideAction::Exclude),
    ]);
    let before = lists.forecast(&request, &catalog, N).await.unwrap();
    assert_eq!(
        reasons(&before, [50, 51, 3, 52]),
        [
            PlacementReason::PinnedNext,
            PlacementReason::IncludedNext,
            PlacementReason::ExcludedNext,
            PlacementReason::NotChosen,
        ]
    );
    lists.list(&request, &catalog).await;
    let after = lists.forecast(&request, &catalog, N).await.unwrap();
    assert_eq!(
        reasons(&after, [50, 51, 3, 52]),
        [
            PlacementReason::Pinned,
            PlacementReason::Included,
            PlacementReason::Excluded,
            PlacementReason::NotChosen,
        ]
    );
}

#[tokio::test]
async fn a_likely_tool_that_the_list_lacks_is_not_called_less_likely() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let request = request(&local, 1);
    (lists.settings.overrides).set(vec![for_all(3, OverrideAction::Exclude)]);
    let shown = lists.list(&request, &catalog).await;
    assert!(shown.hides(&tool(3)));
    lists.settings.overrides.set(Vec::new());
    let forecast = lists.forecast(&request, &catalog, N).await.unwrap();
    assert_eq!(
        reasons(&forecast, [3, 7, 50]),
        [
            PlacementReason::BecameLikely,
            PlacementReason::Chosen,
            PlacementReason::NotChosen,
        ]
    );
}

#[tokio::test]
async fn a_session_of_a_shared_list_has_a_prediction_of_its_own() {
    let local = Principal::local();
    let usual = vec![[3, 7, 11].map(tool).to_vec(); 60];
    let next_tools = Arc::new(trained_next_tools(&usual, NOW, Arc::default()));
    let lists = lists_by(&next_tools, None, FilteringConfig::default());
    let catalog = catalog_of(0..N);
    let (legacy, modern) = (request(&local, 1), modern(&local, 1));
    let shown = lists.list(&modern, &catalog).await;
    next_tools.record_call(over(1), &tool(3), NOW);
    let probabilities = |forecast: ListForecast| -> Vec<(ToolRef, f64)> {
        let tools = forecast.tools.into_iter();
        tools.map(|one| (one.tool, one.probability)).collect()
    };
    let of_session = lists.forecast_of_session(&modern, &catalog, N).await;
    let of_session = of_session.unwrap();
    // The list is the shared one.
    assert_eq!(of_session.epoch, Some(shown.epoch));
    let is_shown = |one: &&ForecastTool| one.is_shown;
    let n_shown = of_session.tools.iter().filter(is_shown).count();
    assert_eq!(n_shown, shown.positions().len());
    let of_session = probabilities(of_session);
    let of_list = probabilities(lists.forecast(&modern, &catalog, N).await.unwrap());
    assert_ne!(of_session, of_list);
    let of_legacy = probabilities(lists.forecast(&legacy, &catalog, N).await.unwrap());
    assert_eq!(of_session, of_legacy);
}
