//! Lists by the declared context of a client, before anything is learned.

use riglm_domain::intent::StatedIntent;

use super::*;

/// Tools of boats, more than a list may have, and a few others.
fn harbour(n_boats: usize) -> Arc<Catalog> {
    let boats = (0..n_boats).map(|n| format!("get_boat_{n:02}"));
    let others = ["list_crews", "get_crew", "create_crew", "web_search"];
    let names = boats.chain(others.map(str::to_owned));
    let tools = names.map(|name| CatalogTool {
        definition: format!(
            r#"{{"name":"{name}","description":"{}"}}"#,
            "w ".repeat(LONG)
        )
        .into(),
        tool: ToolRef {
            upstream: UpstreamName::parse("harbour").unwrap(),
            tool: name.as_str().into(),
        },
        name,
        is_hidden: false,
    });
    Arc::new(Catalog::new(tools.collect(), Vec::new()))
}

pub(super) fn cold(options: FilteringConfig) -> Lists {
    Lists::new(ListsParts {
        experiments: None,
        search: SearchTerms::default(),
        observer: Arc::new(riglm_ports::observer::NoObserver),
        options,
        profiles: HashMap::new(),
        predictions: LivePredictions::default(),
        stores: None,
        overrides: Arc::default(),
        counter: Arc::new(WordCounter),
        clock: Arc::new(ManualClock::at(NOW)),
    })
}

fn stated_intent(text: &str) -> StatedIntent {
    StatedIntent {
        context: Some(text.into()),
        declared: Some(text.into()),
        declared_at: Some(NOW),
        sought: String::new(),
    }
}

fn names(shown: &ShownList) -> Vec<&str> {
    let tools = shown.catalog().tools();
    let names = shown.positions().iter().map(|at| tools[*at].name.as_str());
    names.collect()
}

#[tokio::test]
async fn context_lists_respect_bounds_and_prefer_best_matches() {
    let local = Principal::local();
    let lists = cold(FilteringConfig::default());
    let catalog = harbour(30);
    let crews = stated_intent("list the crews");
    let intent = ListIntent {
        text: String::new(),
        fits: vec![(29, 9.0), (7, 8.0), (3, 0.5), (2, 0.4), (1, 0.3), (0, 0.2)],
        vector: None,
    };
    let request = ListRequest {
        stated: Some(&crews),
        intent: Some(&intent),
        ..request(&local, 1)
    };
    let shown = lists.list(&request, &catalog).await;
    assert_eq!(shown.mode, SelectionMode::Context);
    assert_eq!(shown.reason, Some(SelectionReason::NothingLearned));
    assert!(shown.search_first && !shown.is_fallback);
    // Two tools match, which is fewer than five: similar tools fill up the list.
    let expected = [
        "get_boat_00",
        "get_boat_01",
        "get_boat_02",
        "get_boat_03",
        "get_boat_07",
        "get_boat_29",
        "get_crew",
        "list_crews",
    ];
    let mut shown = names(&shown);
    shown.sort_unstable();
    assert_eq!(shown, expected);
    let boats = stated_intent("show boats");
    let request = ListRequest {
        stated: Some(&boats),
        session: over(2),
        ..request
    };
    let shown = lists.list(&request, &catalog).await;
    let names = names(&shown);
    assert_eq!(names.len(), ListBounds::default().max_tools);
    assert!(names.iter().all(|name| name.contains("boat")), "{names:?}");
    assert!(names.contains(&"get_boat_29") && names.contains(&"get_boat_07"));
}

#[tokio::test]
async fn new_contexts_start_epochs_unless_the_selection_is_equal() {
    let local = Principal::local();
    let lists = cold(FilteringConfig::default());
    let catalog = harbour(10);
    let first = lists.list(&request(&local, 1), &catalog).await;
    assert!(first.is_whole());
    let listed = async |text: &str| {
        let stated = stated_intent(text);
        let request = ListRequest {
            stated: Some(&stated),
            ..request(&local, 1)
        };
        let is_decided = lists.is_decided(&request, &catalog);
        (is_decided, lists.list(&request, &catalog).await)
    };
    let (is_decided, boats) = listed("list the boats").await;
    assert_eq!((is_decided, boats.epoch), (false, 2));
    assert_eq!(boats.positions().len(), 10);
    let (is_decided, again) = listed("list the boats").await;
    assert!(is_decided && Arc::ptr_eq(&boats, &again));
    let (is_decided, same) = listed("show me every boat").await;
    assert!(!is_decided);
    assert_eq!((same.epoch, same.page(0, 99)), (2, boats.page(0, 99)));
    // A used tool stays.
    let tool = catalog.tools()[11].tool.clone();
    lists.record_call(&request(&local, 1), &tool);
    let (_, web) = listed("search the web").await;
    assert_eq!(web.epoch, 3);
    assert!(web.shows(&tool));
    // A client that stops declaring a context keeps its list.
    let silent = lists.list(&request(&local, 1), &catalog).await;
    assert_eq!(silent.epoch, 3);
}

#[tokio::test]
async fn context_has_no_effect_on_modern_and_pool_lists() {
    let local = Principal::local();
    let boats = stated_intent("list the boats");
    let catalog = harbour(10);
    let lists = cold(FilteringConfig::default());
    let modern = ListRequest {
        stated: Some(&boats),
        ..modern(&local, 1)
    };
    assert!(lists.list(&modern, &catalog).await.is_whole());
    let pool = Pool {
        name: "base".into(),
        tools: vec![NamePattern::new("*crew*")],
        profile: None,
        words: Vec::new(),
    };
    let lists = cold(FilteringConfig {
        pools: vec![pool],
        ..FilteringConfig::default()
    });
    let request = ListRequest {
        stated: Some(&boats),
        ..request(&local, 1)
    };
    let shown = lists.list(&request, &catalog).await;
    assert_eq!(shown.mode, SelectionMode::Pool);
}

#[tokio::test]
async fn a_new_context_reselects_predicted_lists() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let before = lists.list(&request(&local, 1), &catalog).await;
    let stated = stated_intent("something else");
    let fifty = ListIntent {
        text: "tool 050".into(),
        fits: vec![(50, 9.0)],
        vector: None,
    };
    let request = ListRequest {
        stated: Some(&stated),
        intent: Some(&fifty),
        ..request(&local, 1)
    };
    let after = lists.list(&request, &catalog).await;
    assert_eq!(after.mode, SelectionMode::Prediction);
    assert_eq!(before.epoch, 1);
    let asked_again = lists.list(&request, &catalog).await;
    assert!(Arc::ptr_eq(&after, &asked_again));
}

#[tokio::test]
async fn write_gating_follows_the_intent_and_refuses_if_enforced() {
    let local = Principal::local();
    let catalog = harbour(10);
    let lists = |gate_writes, enforce| {
        cold(FilteringConfig {
            gate_writes,
            enforce,
            ..FilteringConfig::default()
        })
    };
    let tool = &catalog.tools()[0];
    let refuses = |lists: &Lists, stated: &StatedIntent| {
        let request = ListRequest {
            stated: Some(stated),
            ..request(&local, 1)
        };
        lists.refuses(&request, &tool.tool, Some(tool))
    };
    let enforced = lists(true, true);
    let sought = |text: &str, sought: &str| StatedIntent {
        sought: sought.into(),
        ..stated_intent(text)
    };
    for (stated, expected) in [
        (stated_intent("list the boats"), true),
        (stated_intent("paint the boats"), false),
        (stated_intent("paint the boats\nread"), true),
        (stated_intent("list the boats\nwrite"), false),
        (stated_intent("boats"), false),
        (sought("boats", "find a boat"), true),
        (sought("boats", "find a boat\nsell it"), false),
        (sought("list the boats", "sell a boat"), true),
        (StatedIntent::default(), false),
    ] {
        assert_eq!(refuses(&enforced, &stated), expected, "{stated:?}");
        assert!(!refuses(&lists(true, false), &stated));
        assert!(!refuses(&lists(false, true), &stated));
    }
}
