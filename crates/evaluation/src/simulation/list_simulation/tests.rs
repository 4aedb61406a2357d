use proptest::prelude::*;

use super::*;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn options(max_tools: usize, n_inline: usize) -> SimulatedOptions {
    SimulatedOptions {
        bounds: ListBounds {
            min_tools: max_tools.min(5),
            max_tools,
            token_budget: None,
        },
        n_inline,
        prices: ListPrices::default(),
    }
}

fn session() -> SimulatedSession {
    SimulatedSession {
        party: ClientKey::new(
            &riglm_domain::privacy::principal::Principal::local(),
            "client",
        ),
        asked: None,
        has_context: false,
    }
}

/// Runs a policy on calls of (scores, called tool, whether a session begins).
fn simulate(
    policy: SimulatedPolicy,
    max_tools: usize,
    n_inline: usize,
    calls: &[(&[f64], usize, bool)],
) -> ListMetrics {
    let n_tools = calls[0].0.len();
    let catalog = SimulatedCatalog::of(n_tools, 200);
    let options = options(max_tools, n_inline);
    let mut simulation = ListSimulation::new(policy, &catalog, &options);
    let session = session();
    for (scores, called, begins) in calls {
        let begins = begins.then_some(&session);
        simulation.add(&CatalogForecast::from_scores(scores), *called, begins);
    }
    simulation.metrics()
}

/// Four tools: EARLY has the first ones likely, LATE the last ones.
const EARLY: &[f64] = &[4.0, 3.0, 2.0, 1.0];
const LATE: &[f64] = &[1.0, 2.0, 3.0, 4.0];

#[test]
fn a_static_list_is_the_first_of_its_session() {
    let calls = [
        (EARLY, 0, true),
        (LATE, 3, false),
        (LATE, 3, false),
        (LATE, 3, true),
    ];
    let metrics = simulate(SimulatedPolicy::Static, 2, 0, &calls);
    assert!(near(metrics.coverage, 0.5));
    assert!(near(metrics.first_use_coverage, 2.0 / 3.0));
    assert!(near(metrics.mean_size, 2.0) && near(metrics.reduction, 0.5));
    assert!(near(metrics.searches_per_session, 0.5));
    // Of two sessions the first is the third fifth, the second the last.
    let fifths = metrics.searches_by_fifth.iter();
    assert!(
        fifths
            .zip([0.0, 0.0, 1.0, 0.0, 0.0])
            .all(|(a, b)| near(*a, b))
    );
    assert!(near(metrics.changes_per_session, 0.0));
    // Two lists of 400 tokens written, four prompts of 20,400 read, one search.
    let cost = 2.0 * 500.0 + 4.0 * 2_040.0 + 3_040.0;
    let all = 2.0 * 1_000.0 + 4.0 * 2_080.0;
    assert!(near(metrics.cost_vs_all, cost / all));
}

#[test]
fn an_answer_carries_the_found_tool_and_likely_unknown_ones() {
    let calls = [
        (EARLY, 0, true),
        // Found: 2. The answer also carries 3, the most likely one that is not listed.
        (LATE, 2, false),
        (LATE, 3, false),
        (LATE, 1, false),
    ];
    let metrics = simulate(SimulatedPolicy::StaticInline, 1, 1, &calls);
    assert!(near(metrics.coverage, 0.5));
    assert!(near(metrics.first_use_coverage, 0.5));
    assert!(near(metrics.mean_size, (1.0 + 1.0 + 3.0 + 3.0) / 4.0));
    assert!(near(metrics.searches_per_session, 2.0));
    assert!(near(metrics.changes_per_session, 0.0));
    let call = |n: f64| 0.1 * (20_000.0 + 200.0 * n);
    let prompts = call(1.0) + call(1.0) + call(3.0) + call(3.0);
    // The second search finds the last tool of the catalog, so its answer carries no other.
    let searches = call(1.0) + 600.0 + 1.25 * 400.0 + call(3.0) + 600.0 + 1.25 * 200.0;
    let all = 4.0 * call(4.0) + 1_000.0;
    assert!(near(
        metrics.cost_vs_all,
        (250.0 + prompts + searches) / all
    ));
}

#[test]
fn lists_and_answers_follow_the_forecasts_of_the_whole_session() {
    let forecast = CatalogForecast::from_scores;
    // The next call is of tool 0 each time, but the session uses tools 3, 2 and 1.
    let (next, at_start, after_search) = (
        forecast(EARLY),
        forecast(LATE),
        forecast(&[1.0, 9.0, 2.0, 9.0]),
    );
    let forecasts = CallForecasts {
        next: &next,
        at_start: &at_start,
        after_search: &after_search,
    };
    let catalog = SimulatedCatalog::of(4, 200);
    let mut simulation =
        ListSimulation::new(SimulatedPolicy::StaticInline, &catalog, &options(1, 2));
    let session = session();
    for (n, called) in [3, 2, 1, 0].into_iter().enumerate() {
        simulation.add_call(&forecasts, called, (n == 0).then_some(&session));
    }
    let metrics = simulation.metrics();
    // Tool 3 is listed, 2 is found, and its answer has 1. It has no tool below the mean, so 0 is
    // found by another search.
    assert!(near(metrics.searches_per_session, 2.0), "{metrics:?}");
    assert!(near(metrics.mean_size, (1.0 + 1.0 + 3.0 + 3.0) / 4.0));
}

#[test]
fn a_reranked_list_changes_with_the_forecast() {
    let calls = [
        (EARLY, 0, true),
        (EARLY, 1, false),
        (LATE, 1, false),
        (EARLY, 3, true),
    ];
    let metrics = simulate(SimulatedPolicy::Rerank, 2, 0, &calls);
    // The second call finds its list as it was; 1 is not listed any more, but known.
    assert!(near(metrics.coverage, 0.5));
    assert!(near(metrics.first_use_coverage, 2.0 / 3.0));
    assert!(near(metrics.changes_per_session, 0.5));
    let cost = 2.0 * 500.0 + 4.0 * 2_040.0 + 1.15 * 20_400.0 + 3_040.0;
    assert!(near(metrics.cost_vs_all, cost / (4.0 * 2_080.0 + 2_000.0)));
}

#[test]
fn a_sticky_list_changes_only_if_a_miss_is_likely() {
    let sure: &[f64] = &[0.9, 0.02, 0.02, 0.02, 0.02, 0.02, 0.0, 0.0];
    let doubtful: &[f64] = &[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.4, 0.0];
    let mut calls = vec![(sure, 0, true), (sure, 0, false)];
    let metrics = simulate(SimulatedPolicy::Sticky, 2, 0, &calls);
    // 0.98 of the probability are with the first five tools: 0.35 * 0.08 may be left open.
    assert!(near(metrics.mean_size, 5.0) && near(metrics.changes_per_session, 0.0));
    calls.push((doubtful, 6, false));
    let metrics = simulate(SimulatedPolicy::Sticky, 2, 0, &calls);
    // The third list has all tools with a probability above 0.
    assert!(near(metrics.mean_size, (5.0 + 5.0 + 7.0) / 3.0));
    assert!(near(metrics.changes_per_session, 1.0) && near(metrics.coverage, 1.0));
    // A tool that a search found stays visible without a new list.
    let calls = [(sure, 7, true), (sure, 7, false)];
    let metrics = simulate(SimulatedPolicy::Sticky, 2, 0, &calls);
    assert!(near(metrics.coverage, 0.5) && near(metrics.changes_per_session, 0.0));
    assert!(near(metrics.mean_size, 5.5) && near(metrics.searches_per_session, 1.0));
}

#[test]
fn a_conformal_list_follows_its_threshold() {
    let sure: &[f64] = &[0.97, 0.01, 0.01, 0.01];
    // The first threshold is 1.3 ln 4 = 1.80, which a probability of 0.165 reaches. The miss adds
    // 3 * 0.95 = 2.85, and 0.01 does with 4.60. The hit lowers it to 4.55.
    let calls = [(sure, 3, true), (sure, 3, false), (sure, 0, false)];
    let metrics = simulate(SimulatedPolicy::Conformal(95), 2, 0, &calls);
    assert!(near(metrics.mean_size, (1.0 + 4.0 + 1.0) / 3.0));
    assert!(near(metrics.coverage, 2.0 / 3.0) && near(metrics.first_use_coverage, 0.5));
}

#[test]
fn a_list_is_never_longer_than_the_catalog() {
    for policy in SimulatedPolicy::DEFAULT {
        let metrics = simulate(policy, 10, 9, &[(EARLY, 0, true), (LATE, 9, false)]);
        assert!(metrics.mean_size <= 4.0, "{policy}");
        // A tool outside the catalog is not covered, and causes no error.
        assert!(metrics.coverage <= 0.5, "{policy}");
        assert!(metrics.cost_vs_all.is_finite(), "{policy}");
    }
}

#[test]
fn the_live_policy_learns_the_list_size() {
    // 200 tools; sessions use the first three, in this order.
    let scores: Vec<f64> = (0..200).map(|tool| 1.0 / f64::from(tool + 1)).collect();
    let mut calls: Vec<(&[f64], usize, bool)> = Vec::new();
    for _ in 0..30 {
        calls.extend([
            (&*scores, 0, true),
            (&*scores, 1, false),
            (&*scores, 2, false),
        ]);
    }
    let live = simulate(SimulatedPolicy::Live, 20, 9, &calls);
    assert!(live.mean_size < 8.0, "{live:?}");
    assert!(near(live.coverage, 1.0) && near(live.dearer_sessions, 0.0));
    // The first list has the maximum length.
    let first = simulate(SimulatedPolicy::Live, 20, 9, &calls[..3]);
    assert!(near(first.mean_size, 20.0), "{first:?}");
    // Upper bounds hold.
    let narrow = simulate(SimulatedPolicy::Live, 4, 9, &calls);
    assert!(near(narrow.mean_size, 4.0), "{narrow:?}");
    // A small catalog is listed as a whole.
    let few: Vec<f64> = scores[..14].to_vec();
    let calls: Vec<(&[f64], usize, bool)> = (0..40).map(|n| (&*few, n % 3, n % 4 == 0)).collect();
    let live = simulate(SimulatedPolicy::Live, 20, 9, &calls);
    assert!(
        near(live.mean_size, 14.0) && near(live.weighed_cost, 1.0),
        "{live:?}"
    );
}

#[test]
fn a_search_weighs_more_than_its_tokens() {
    let calls = [(EARLY, 0, true), (LATE, 3, false)];
    let metrics = simulate(SimulatedPolicy::StaticInline, 2, 0, &calls);
    let all = 2.0 * 2_080.0 + 1_000.0;
    let search = 2_040.0 + 600.0 + 1.25 * 200.0;
    let cost = 500.0 + 2.0 * 2_040.0 + search;
    assert!(near(metrics.cost_vs_all, cost / all));
    assert!(near(metrics.weighed_cost, (cost + 2.0 * search) / all));
    assert!(near(metrics.dearest_session, cost / all));
    assert_eq!(fixed_sizes(43, 20), [5, 10, 20, 43]);
    assert_eq!(fixed_sizes(500, 30), [5, 10, 20, 30, 500]);
    assert_eq!(fixed_sizes(4, 20), [4]);
}

#[test]
fn metrics_without_calls_are_zero() {
    let catalog = SimulatedCatalog::of(3, 200);
    let metrics = ListSimulation::new(SimulatedPolicy::Rerank, &catalog, &options(2, 0)).metrics();
    assert!(near(metrics.reduction, 0.0) && near(metrics.cost_vs_all, 0.0));
}

proptest! {
    #[test]
    fn every_policy_has_valid_shares_sizes_and_costs(
        calls in proptest::collection::vec(
            (proptest::collection::vec(-0.1..1.0_f64, 7), 0..8_usize, any::<bool>()), 1..60),
        max_tools in 1..12_usize,
        n_inline in 0..5_usize,
    ) {
        for policy in SimulatedPolicy::DEFAULT {
            let catalog = SimulatedCatalog::of(7, 200);
            let options = options(max_tools, n_inline);
            let mut simulation = ListSimulation::new(policy, &catalog, &options);
            let session = session();
            for (n, (scores, called, begins)) in calls.iter().enumerate() {
                let begins = (*begins || n == 0).then_some(&session);
                simulation.add(&CatalogForecast::from_scores(scores), *called, begins);
            }
            let metrics = simulation.metrics();
            let shares = [metrics.coverage, metrics.first_use_coverage, metrics.reduction];
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{metrics:?}");
            prop_assert!((1.0..=7.0).contains(&metrics.mean_size), "{metrics:?}");
            let per_session = metrics.searches_per_session;
            let by_fifth = metrics.searches_by_fifth;
            prop_assert!(per_session >= 0.0);
            prop_assert!(by_fifth.iter().any(|fifth| *fifth >= per_session - 1e-9));
            prop_assert!(metrics.cost_vs_all.is_finite() && metrics.cost_vs_all > 0.0);
        }
    }

    #[test]
    fn a_conformal_list_reaches_its_coverage(
        seed in any::<u64>(),
        percent in 80..98_u8,
        sharpness in 0.2..3.0_f64,
    ) {
        // Calls are drawn from the forecast by a linear congruential generator.
        let mut state = seed;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(state >> 32).unwrap_or(0)) / f64::from(u32::MAX)
        };
        let policy = SimulatedPolicy::Conformal(percent);
        let catalog = SimulatedCatalog::of(20, 200);
        let mut simulation = ListSimulation::new(policy, &catalog, &options(10, 9));
        let session = session();
        for call in 0..3_000 {
            let scores: Vec<f64> = (0..20).map(|_| draw().powf(sharpness * 3.0)).collect();
            let forecast = CatalogForecast::from_scores(&scores);
            let mut left = draw();
            let called = forecast.probabilities().iter().position(|probability| {
                left -= probability;
                left <= 0.0
            });
            let begins = (call % 12 == 0).then_some(&session);
            simulation.add(&forecast, called.unwrap_or(0), begins);
        }
        let metrics = simulation.metrics();
        let off = metrics.coverage - f64::from(percent) / 100.0;
        prop_assert!(off.abs() < 0.03, "{off} {metrics:?}");
        prop_assert!((1.0..=20.0).contains(&metrics.mean_size));
    }
}
