//! Cold lists of several servers: their order, and the servers that the search tool names.

use riglm_domain::catalog::naming::{earlier_name, prefixed_name};

use super::topical::cold;
use super::*;

fn server_tools(server: &str, names: impl IntoIterator<Item = String>) -> Vec<CatalogTool> {
    let upstream = UpstreamName::parse(server).unwrap();
    let tools = names.into_iter().map(|own| CatalogTool {
        name: prefixed_name(&upstream, &own),
        definition: format!(r#"{{"description":"{}"}}"#, "w ".repeat(LONG)).into(),
        tool: ToolRef {
            upstream: upstream.clone(),
            tool: own.as_str().into(),
        },
        is_hidden: false,
    });
    tools.collect()
}

/// Returns a catalog of servers with these numbers of tools.
fn servers(sizes: &[(&str, usize)]) -> Catalog {
    let tools = sizes
        .iter()
        .flat_map(|(server, n)| server_tools(server, (0..*n).map(|n| format!("get_{n:02}"))));
    Catalog::new(tools.collect(), Vec::new())
}

fn named(shown: &ShownList) -> Vec<(&str, usize)> {
    let servers = shown.servers().iter();
    servers.map(|(name, n)| (name.as_str(), *n)).collect()
}

#[tokio::test]
async fn the_named_servers_change_only_with_the_list() {
    let local = Principal::local();
    let lists = cold(FilteringConfig::default());
    let shown = async |catalog: Catalog, seconds: i64| {
        let request = ListRequest {
            now: NOW + SignedDuration::from_secs(seconds),
            ..request(&local, 1)
        };
        lists.list(&request, &Arc::new(catalog)).await
    };
    let first = shown(servers(&[("a", 20), ("b", 30), ("c", 20)]), 0).await;
    assert!(!first.is_whole());
    assert_eq!(named(&first), [("b", 30), ("a", 20), ("c", 20)]);
    // A hidden tool goes, then a server is down.
    let fewer = servers(&[("a", 20), ("b", 29), ("c", 20)]);
    assert!(shown(fewer, 1).await.looks_like(&first));
    let down = servers(&[("a", 20), ("b", 30)]).mark_lacking_upstreams();
    let down = shown(down, 2).await;
    assert_eq!(named(&down), named(&first));
    // A server that has gone for good is not named any longer.
    let gone = shown(servers(&[("a", 20), ("b", 30)]), 3).await;
    assert_eq!(named(&gone), [("b", 30), ("a", 20)]);
    // The tools of the first new server are listed at once, those of the second a minute later.
    let second = shown(servers(&[("a", 20), ("b", 30), ("c", 20), ("d", 25)]), 4).await;
    assert_eq!(named(&second)[1], ("d", 25));
    let more = || servers(&[("a", 20), ("b", 30), ("c", 20), ("d", 25), ("e", 9)]);
    assert!(shown(more(), 5).await.looks_like(&second));
    let third = shown(more(), 70).await;
    assert_eq!(named(&third)[4], ("e", 9));
    assert!(!third.looks_like(&second));
}

#[tokio::test]
async fn no_server_is_named_without_hidden_tools_or_others() {
    let local = Principal::local();
    let lists = cold(FilteringConfig::default());
    let few = Arc::new(servers(&[("a", 2), ("b", 2)]));
    let one = Arc::new(servers(&[("a", 60)]));
    for (n, catalog) in [(1, few), (2, one)] {
        let shown = lists.list(&request(&local, n), &catalog).await;
        assert!(named(&shown).is_empty());
    }
    // Neither is a server whose tools are all excluded.
    let both = Arc::new(servers(&[("a", 40), ("b", 1), ("c", 1)]));
    let excluded = override_for_all("b__get_00", OverrideAction::Exclude);
    lists.settings.overrides.set(vec![excluded]);
    let shown = lists.list(&request(&local, 3), &both).await;
    assert_eq!(named(&shown), [("a", 40), ("c", 1)]);
}

#[tokio::test]
async fn a_large_definition_is_not_in_a_cold_list() {
    let local = Principal::local();
    let lists = cold(FilteringConfig::default());
    let mut tools = server_tools("a", (0..60).map(|n| format!("get_{n:02}")));
    tools.extend(server_tools("b", ["search".into(), "get_b".into()]));
    tools[60].definition = format!("{{}}{}", " ".repeat(9_000)).into();
    let catalog = Arc::new(Catalog::new(tools, Vec::new()));
    let shown = lists.list(&request(&local, 1), &catalog).await;
    assert_eq!(shown.mode, SelectionMode::General);
    let large = &catalog.tools()[60].tool;
    assert!(shown.hides(large) && shown.shows(&catalog.tools()[61].tool));
}

#[tokio::test]
async fn an_override_by_an_earlier_name_holds() {
    let local = Principal::local();
    let lists = cold(FilteringConfig::default());
    for long in [
        "x".repeat(55),
        "y".repeat(80),
        format!("odd/{}", "z".repeat(50)),
    ] {
        let mut tools = server_tools("a", (0..60).map(|n| format!("get_{n:02}")));
        tools.extend(server_tools("b", [long.clone()]));
        let catalog = Arc::new(Catalog::new(tools, Vec::new()));
        let earlier = earlier_name(&UpstreamName::parse("b").unwrap(), &long);
        assert_ne!(catalog.tools()[60].name, earlier);
        for (action, expected) in [
            (OverrideAction::Exclude, false),
            (OverrideAction::Pin, true),
        ] {
            (lists.settings.overrides).set(vec![override_for_all(&earlier, action)]);
            let shown = lists.list(&request(&local, 1), &catalog).await;
            assert_eq!(
                shown.shows(&catalog.tools()[60].tool),
                expected,
                "{earlier}"
            );
        }
    }
}
