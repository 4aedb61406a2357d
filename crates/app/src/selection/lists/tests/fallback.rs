//! Lists without a prediction, and the decisions of operators.

use super::*;

#[tokio::test]
async fn a_pool_is_shown_without_a_least_number_of_tools() {
    let local = Principal::local();
    let options = FilteringConfig {
        min_tools: 0,
        pools: vec![Pool {
            name: "base".into(),
            tools: vec![NamePattern::new("tool_00*")],
            profile: None,
            words: Vec::new(),
        }],
        ..FilteringConfig::default()
    };
    let lists = Lists::new(ListsParts {
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
    });
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert_eq!(shown.positions().len(), 10);
}

#[tokio::test]
async fn failed_predictions_fall_back_to_pools_or_all_tools() {
    let local = Principal::local();
    let is_failing = Arc::new(AtomicBool::new(false));
    let pool = Pool {
        name: "base".into(),
        tools: vec![NamePattern::new("tool_00*")],
        profile: None,
        words: Vec::new(),
    };
    let with_pool = FilteringConfig {
        pools: vec![pool],
        ..FilteringConfig::default()
    };
    let catalog = catalog_of(0..N);
    let failing = |options| {
        is_failing.store(false, Ordering::SeqCst);
        let lists = lists_with(None, &[3], options, &is_failing);
        is_failing.store(true, Ordering::SeqCst);
        lists
    };
    let shown = failing(with_pool).list(&request(&local, 1), &catalog).await;
    assert_eq!((shown.mode, shown.is_fallback), (SelectionMode::Pool, true));
    assert_eq!(shown.reason, Some(SelectionReason::PredictorFailed));
    assert_eq!(numbers(&shown), (0..10).collect::<Vec<_>>());
    let shown = failing(FilteringConfig::default())
        .list(&request(&local, 1), &catalog)
        .await;
    assert_eq!((shown.mode, shown.is_fallback), (SelectionMode::All, true));
    assert!(shown.is_whole());
}

#[tokio::test]
async fn pinned_tools_come_first_and_banned_tools_are_hidden() {
    let local = Principal::local();
    let options = FilteringConfig {
        pins: vec![NamePattern::new("tool_050"), NamePattern::new("absent")],
        bans: vec![NamePattern::new("tool_007")],
        ..FilteringConfig::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert_eq!(numbers(&shown)[..2].first(), Some(&50));
    assert!(!numbers(&shown).contains(&7) && numbers(&shown).contains(&3));
    let none = FilteringConfig {
        bans: vec![NamePattern::new("*")],
        ..FilteringConfig::default()
    };
    let lists = lists_with(None, &[3], none, &Arc::default());
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert_eq!(shown.positions(), [0_usize; 0]);
}

#[tokio::test]
async fn an_override_holds_at_once_and_until_it_ends() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let before = lists.list(&request(&local, 1), &catalog).await;
    let one = ToolOverride {
        expires_at: Some(NOW + SignedDuration::from_hours(1)),
        ..override_for_all("tool_070", OverrideAction::Include)
    };
    lists.settings.overrides.set(vec![one]);
    let during = lists.list(&request(&local, 1), &catalog).await;
    let mut expected = numbers(&before);
    expected.push(70);
    assert_eq!(numbers(&during), expected);
    lists.settings.overrides.set(Vec::new());
    let after = lists.list(&request(&local, 1), &catalog).await;
    assert_eq!(numbers(&after), numbers(&before));
    // A cursor of one list is invalid in the other.
    assert_eq!(
        (during.epoch, after.order()),
        (before.epoch, before.order())
    );
    assert_ne!(during.order(), before.order());
}

#[tokio::test]
async fn store_failures_do_not_fail_lists() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    store.start_failing();
    let lists = lists(Some(&store), &[3, 7, 11]);
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert!(shown.shows(&tool(3)) && !shown.is_whole());
    let again = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert_eq!(again.page(0, N), shown.page(0, N));
}
