//! Lists with a size that is drawn at random.

use riglm_domain::selection::ListSize;

use super::*;
use crate::selection::ExplorationConfig;

fn exploring(share: f64, seed: Option<u64>) -> FilteringConfig {
    FilteringConfig {
        min_tools: 2,
        exploration: ExplorationConfig { share, seed },
        ..FilteringConfig::default()
    }
}

fn lists_of(options: FilteringConfig, store: Option<&Arc<MemoryStore>>) -> Lists {
    lists_with(store, &[3, 7, 11], options, &Arc::default())
}

#[tokio::test]
async fn without_exploration_no_size_is_drawn() {
    let local = Principal::local();
    let lists = lists_of(exploring(0.0, Some(1)), None);
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert_eq!((shown.size_choice.clone(), shown.reason), (None, None));
}

#[tokio::test]
async fn the_share_of_random_sizes_is_as_configured_and_known() {
    let local = Principal::local();
    let lists = lists_of(exploring(0.5, Some(3)), None);
    let catalog = catalog_of(0..N);
    let greedy = lists_of(exploring(0.0, None), None);
    let greedy = greedy.list(&request(&local, 1), &catalog).await;
    let mut n_of_size = HashMap::new();
    for n in 0..200_u8 {
        let request = ListRequest {
            session: over(n),
            ..request(&local, n)
        };
        let shown = lists.list(&request, &catalog).await;
        let choice = shown.size_choice.clone().unwrap();
        assert_eq!(choice.check(), Ok(()));
        assert_eq!(choice.greedy, ListSize::Tools(greedy.positions().len()));
        assert_eq!(choice.size, ListSize::Tools(shown.positions().len()));
        assert_eq!(choice.candidates, [5, 10, 20].map(ListSize::Tools));
        let is_other = choice.size != choice.greedy;
        let explored = is_other.then_some(SelectionReason::Exploration);
        assert_eq!(
            (shown.mode, shown.reason),
            (SelectionMode::Prediction, explored)
        );
        *n_of_size.entry(shown.positions().len()).or_insert(0) += 1;
    }
    // Two other sizes with a probability of 1/6 each: 33 of 200, within four standard errors.
    for (size, n) in n_of_size {
        let is_greedy = size == greedy.positions().len();
        let expected = if is_greedy { 105..=162 } else { 12..=54 };
        assert!(expected.contains(&n), "{size}: {n}");
    }
}

#[tokio::test]
async fn a_work_session_has_one_draw_also_after_a_restart() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let catalog = catalog_of(0..N);
    for n in 0..12_u8 {
        let request = ListRequest {
            session: over(n),
            ..request(&local, n)
        };
        let first = lists_of(exploring(1.0, None), Some(&store));
        let before = first.list(&request, &catalog).await;
        let second = lists_of(exploring(1.0, None), Some(&store));
        let after = second.list(&request, &catalog).await;
        assert_eq!(before.size_choice, after.size_choice);
        assert_eq!(numbers(&before), numbers(&after));
        // Other options change nothing about the size, even if another share would have given
        // another one.
        for share in [0.9, 0.001] {
            assert!(second.set_options(exploring(share, None), HashMap::new()));
            let again = second.list(&request, &catalog).await;
            assert!(before.size_choice.is_some());
            assert_eq!(before.size_choice, again.size_choice);
            assert_eq!(numbers(&before), numbers(&again));
        }
    }
}

#[tokio::test]
async fn a_size_ends_only_with_a_change_that_excludes_it() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    let lists = lists_of(exploring(1.0, Some(4)), None);
    let mut n_of_twenty = 0;
    for (n, base) in (0..40_u8).zip([request(&local, 0), modern(&local, 0)].iter().cycle()) {
        let request = ListRequest {
            session: over(n),
            now: NOW + SignedDuration::from_hours(25 * i64::from(n)),
            ..*base
        };
        lists.set_options(exploring(1.0, Some(4)), HashMap::new());
        let before = lists.list(&request, &catalog).await;
        let size = before.size_choice.as_ref().unwrap().size;
        let fewer = FilteringConfig {
            max_tools: 10,
            ..exploring(1.0, Some(4))
        };
        assert!(lists.set_options(fewer, HashMap::new()));
        let after = lists.list(&request, &catalog).await;
        if size == ListSize::Tools(20) {
            n_of_twenty += 1;
            assert_ne!(after.size_choice, before.size_choice);
            assert!(after.positions().len() <= 10);
        } else {
            assert_eq!(after.size_choice, before.size_choice);
            assert_eq!(numbers(&after), numbers(&before));
        }
        // Without exploration, no list claims to have been drawn, even if its tools stay the same.
        let off = FilteringConfig {
            max_tools: 10,
            ..exploring(0.0, Some(4))
        };
        assert!(lists.set_options(off, HashMap::new()));
        let off = lists.list(&request, &catalog).await;
        assert_eq!((off.size_choice.clone(), off.reason), (None, None));
    }
    assert!((5..=25).contains(&n_of_twenty), "{n_of_twenty}");
}

#[tokio::test]
async fn nothing_is_drawn_before_the_first_session_is_over() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    let options = exploring(1.0, Some(2));
    for (n_sessions, is_explored) in [(1, false), (2, true)] {
        let options = options.clone();
        let lists = lists_after(n_sessions, None, &[3, 7, 11], options, &Arc::default());
        let shown = lists.list(&request(&local, 1), &catalog).await;
        assert_eq!(shown.mode, SelectionMode::Prediction);
        assert_eq!(shown.size_choice.is_some(), is_explored, "{n_sessions}");
        let is_cold = shown.reason == Some(SelectionReason::ColdStart);
        assert_eq!(is_cold, !is_explored, "{:?}", shown.reason);
    }
}

#[tokio::test]
async fn sizes_that_a_budget_makes_equal_are_one_candidate() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    // Each definition has some 300 tokens, so seven fit.
    let options = FilteringConfig {
        token_budget: Some(2_300),
        ..exploring(1.0, Some(9))
    };
    let lists = lists_of(options, None);
    for n in 0..20_u8 {
        let request = ListRequest {
            session: over(n),
            ..request(&local, n)
        };
        let shown = lists.list(&request, &catalog).await;
        let choice = shown.size_choice.clone().unwrap();
        assert_eq!(choice.check(), Ok(()));
        assert_eq!(choice.candidates, [5, 10].map(ListSize::Tools));
        assert_eq!(choice.same_as_largest, [ListSize::Tools(20)]);
        assert!((choice.propensity.get() - 0.5).abs() < 1e-12);
        let expected = match choice.size {
            ListSize::Tools(5) => 5,
            _ => 7,
        };
        assert_eq!(shown.positions().len(), expected);
    }
}

#[tokio::test]
async fn a_shared_list_that_grows_with_the_catalog_has_no_drawn_size() {
    let local = Principal::local();
    // A whole list of a catalog that is not small.
    let options = FilteringConfig {
        max_tools: 30,
        ..exploring(1.0, Some(1))
    };
    let mut n_whole = 0;
    for n in 0..40_u8 {
        let options = FilteringConfig {
            exploration: ExplorationConfig {
                seed: Some(u64::from(n)),
                ..options.exploration
            },
            ..options.clone()
        };
        let lists = lists_of(options, None);
        for request in [request(&local, n), modern(&local, n)] {
            let before = lists.list(&request, &catalog_of(0..30)).await;
            if !before.is_whole() {
                continue;
            }
            n_whole += 1;
            assert!(before.size_choice.is_some());
            let after = lists.list(&request, &catalog_of(0..N)).await;
            assert!(after.epoch > before.epoch && !after.is_whole());
            let expected = before.size_choice.clone();
            let expected = expected.filter(|_| request.era == Era::Legacy);
            assert_eq!(after.size_choice, expected);
        }
    }
    assert!(n_whole > 4, "{n_whole}");
}

#[tokio::test]
async fn shared_lists_are_drawn_once_per_epoch_by_the_seed() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    let mut request = modern(&local, 1);
    let first = lists_of(exploring(1.0, Some(5)), None);
    let second = lists_of(exploring(1.0, Some(5)), None);
    let mut draws = HashSet::new();
    for _ in 0..8 {
        let shown = first.list(&request, &catalog).await;
        let other = ListRequest {
            session: over(77),
            ..request
        };
        assert_eq!(
            first.list(&other, &catalog).await.size_choice,
            shown.size_choice
        );
        assert_eq!(
            second.list(&request, &catalog).await.size_choice,
            shown.size_choice
        );
        draws.insert(shown.size_choice.clone().unwrap().draw);
        request.now += SignedDuration::from_hours(25);
    }
    assert_eq!(draws.len(), 8);
}

#[tokio::test]
async fn marks_of_clients_that_load_on_demand_are_not_explored() {
    let local = Principal::local();
    let options = FilteringConfig {
        policy: Some(ListPolicyName::Hints),
        ..exploring(1.0, Some(9))
    };
    let lists = lists_of(options, None);
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    assert_eq!(shown.size_choice, None);
}

#[tokio::test]
async fn explored_lists_keep_pins_used_tools_and_the_budget() {
    let local = Principal::local();
    let catalog = catalog_of(0..N);
    let options = FilteringConfig {
        pins: vec![NamePattern::new("tool_050")],
        max_tools: 12,
        token_budget: Some(9_000),
        ..exploring(1.0, Some(9))
    };
    let lists = lists_of(options, None);
    for n in 0..30_u8 {
        let request = ListRequest {
            session: over(n),
            ..request(&local, n)
        };
        lists.record_call(&request, &tool(60));
        let shown = lists.list(&request, &catalog).await;
        assert!(shown.size_choice.is_some());
        assert!(shown.shows(&tool(50)) && shown.shows(&tool(60)));
        assert!(shown.positions().len() <= 14 && shown.shown_tokens <= 9_000);
    }
}
