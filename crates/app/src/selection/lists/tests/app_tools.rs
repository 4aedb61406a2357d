use super::*;

/// Returns a catalog in which only apps may call the tool with the number 70.
fn catalog_with_app_tool() -> Arc<Catalog> {
    let tools = catalog_of(0..N).tools().to_vec().into_iter();
    let tools = tools.enumerate().map(|(n, tool)| CatalogTool {
        definition: if n == 70 {
            format!(
                r#"{{"name":"{}","description":"{}","_meta":{{"ui":{{"visibility":["app"]}}}}}}"#,
                tool.name,
                "w ".repeat(LONG)
            )
            .into()
        } else {
            tool.definition
        },
        ..tool
    });
    Arc::new(Catalog::new(tools.collect(), Vec::new()))
}

#[tokio::test]
async fn tools_for_apps_are_listed_beside_the_selection() {
    let (local, usual) = (Principal::local(), [1, 2, 3]);
    let catalog = catalog_with_app_tool();
    let with = |options: FilteringConfig| lists_with(None, &usual, options, &Arc::default());
    // The host needs them, although no session ever called them.
    let shown = with(FilteringConfig::default())
        .list(&request(&local, 1), &catalog)
        .await;
    let numbers_shown = numbers(&shown);
    assert!(numbers_shown.contains(&70), "{numbers_shown:?}");
    assert!(numbers_shown.len() < N, "{numbers_shown:?}");
    // They take no place and no tokens of other tools.
    let budget = with(FilteringConfig {
        token_budget: Some(3 * LONG as u64),
        min_tools: 1,
        ..FilteringConfig::default()
    });
    let shown = budget.list(&request(&local, 1), &catalog).await;
    let shown = numbers(&shown);
    assert!(shown.contains(&70) && shown.len() >= 2, "{shown:?}");
    // The operator decides.
    let banned = with(FilteringConfig {
        bans: vec![NamePattern::new("tool_070")],
        ..FilteringConfig::default()
    });
    let shown = banned.list(&request(&local, 1), &catalog).await;
    let shown = numbers(&shown);
    assert!(!shown.contains(&70), "{shown:?}");
}
