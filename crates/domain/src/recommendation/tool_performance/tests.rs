use proptest::prelude::*;

use super::*;
use crate::id::UpstreamName;
use crate::recommendation::Factor;

fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("u").unwrap(),
        tool: name.into(),
    }
}

fn endings(n_ok: u64, n_ended: u64) -> CallOutcomes {
    CallOutcomes { n_ended, n_ok }
}

fn standings<const N: usize>(of: [(&str, ToolPerformance); N]) -> PerformanceTable {
    let of = of.into_iter();
    PerformanceTable::new(of.map(|(name, standing)| (tool(name), standing)).collect())
}

#[test]
fn a_single_success_ranks_between_many_successes_and_failures() {
    let with = |n_ok, n_ended| ToolPerformance {
        endings: endings(n_ok, n_ended),
        ..ToolPerformance::default()
    };
    let standings = standings([
        ("lucky", with(1, 1)),
        ("good", with(95, 100)),
        ("bad", with(20, 100)),
    ]);
    let success = |name| {
        standings
            .factors(&tool(name), 0.0, 0.0)
            .of(Factor::SuccessRate)
    };
    assert!(success("good") > success("lucky"));
    assert!(success("lucky") > success("bad"));
    assert!(success("lucky") > success("unknown"), "it went well once");
    assert!(
        success("unknown") > success("bad"),
        "what is usual is better"
    );
}

#[test]
fn factors_without_history_are_neutral() {
    let factors = PerformanceTable::default().factors(&tool("any"), 0.7, 0.0);
    let near = |value: f64, expected: f64| (value - expected).abs() < 1e-12;
    assert!(near(factors.of(Factor::Relevance), 0.7));
    assert!(near(factors.of(Factor::SuccessRate), 0.5));
    assert!(near(factors.of(Factor::Popularity), 0.0));
    assert!(near(factors.of(Factor::Performance), 0.5));
    assert!(near(factors.of(Factor::UserRating), 0.5));
}

#[test]
fn popularity_grows_with_the_logarithm_of_uses_up_to_a_thousand() {
    let popular = |uses, own| {
        let standing = ToolPerformance {
            uses,
            own,
            ..ToolPerformance::default()
        };
        let standings = standings([("it", standing)]);
        standings
            .factors(&tool("it"), 0.0, 0.0)
            .of(Factor::Popularity)
    };
    let even = endings(1, 2);
    assert!((popular(1_000.0, even) - 1.0).abs() < 1e-12);
    assert!((popular(1e9, even) - 1.0).abs() < 1e-12);
    let tenth = popular(100.0, even);
    assert!((tenth - 101.0_f64.ln() / 1001.0_f64.ln()).abs() < 1e-12);
    // The calls of the requesting principal multiply it by one half to one and a half.
    assert!(popular(100.0, endings(0, 1_000)) < 0.51 * tenth);
    assert!(popular(100.0, endings(50, 50)) > 1.45 * tenth);
    assert!(popular(100.0, CallOutcomes::default()) - tenth < 1e-12);
}

#[test]
fn the_session_share_is_the_popularity_of_unused_tools() {
    let standings = PerformanceTable::default();
    let popularity = |session| {
        standings
            .factors(&tool("x"), 0.0, session)
            .of(Factor::Popularity)
    };
    assert!((popularity(0.4) - 0.4).abs() < 1e-12);
    assert!((popularity(7.0) - 1.0).abs() < 1e-12);
}

#[test]
fn performance_falls_with_latency_up_to_a_second() {
    let with = |ms| ToolPerformance {
        latency: Some((Duration::from_millis(ms), 10_000)),
        ..ToolPerformance::default()
    };
    let standings = standings([("quick", with(15)), ("slow", with(60_000))]);
    let performance = |name| {
        standings
            .factors(&tool(name), 0.0, 0.0)
            .of(Factor::Performance)
    };
    assert!((performance("quick") - 0.985).abs() < 0.001);
    assert!(performance("slow") < 0.001);
    assert!(
        (performance("unknown") - 0.49).abs() < 0.01,
        "what is usual"
    );
}

#[test]
fn stars_and_thumbs_are_ratings_but_selections_are_not() {
    let mut standing = ToolPerformance::default();
    let said = |verdict, rating: Option<u8>| {
        let id = "01890000-0000-7000-8000-000000000001";
        let text = serde_json::json!({
            "id": id, "principal": "local", "tool": tool("x"), "verdict": verdict,
            "rating": rating, "given_at": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value::<Feedback>(text).unwrap()
    };
    standing.rate(&said("selected", None));
    assert_eq!(standing.mean_stars(), None);
    standing.rate(&said("helpful", None));
    standing.rate(&said("helpful", Some(4)));
    standing.rate(&said("unhelpful", None));
    standing.rate(&said("irrelevant", Some(2)));
    assert_eq!(standing.ratings.0, 4);
    assert!((standing.mean_stars().unwrap() - 3.0).abs() < 1e-12);
}

#[test]
fn a_use_counts_half_after_a_half_life() {
    let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
    assert!(near(decayed_uses(&[], 30.0), 0.0));
    // All uses are sixty days old: between 30 and 120 days.
    assert!(near(decayed_uses(&[(30.0, 0), (120.0, 8)], 60.0), 4.0));
    assert!(near(decayed_uses(&[(30.0, 0), (120.0, 8)], 20.0), 1.0));
}

#[test]
fn failing_tools_never_have_better_factors_than_unused_ones() {
    let failing = ToolPerformance {
        uses: 500.0,
        endings: endings(0, 500),
        own: endings(0, 500),
        latency: Some((Duration::from_micros(10), 500)),
        ..ToolPerformance::default()
    };
    let standings = standings([("failing", failing)]);
    let factors = |name| standings.factors(&tool(name), 1.0, 0.0);
    let (failing, unknown) = (factors("failing"), factors("unknown"));
    for &factor in Factor::ALL {
        assert!(
            failing.of(factor) <= unknown.of(factor) + 1e-12,
            "{factor:?}"
        );
    }
}

proptest! {
    #[test]
    fn more_successes_and_stars_never_lower_the_factors(
        n_ok in 0_u64..500, n_more in 0_u64..500, stars in 1_u32..=4, n in 0_u32..50,
    ) {
        let with = |endings, ratings| ToolPerformance { endings, ratings, ..ToolPerformance::default() };
        let other = with(endings(50, 100), (10, 30.0));
        let value = |standing| {
            let standings = standings([("it", standing), ("other", other)]);
            standings.factors(&tool("it"), 0.5, 0.0)
        };
        let n_ended = n_ok + n_more;
        let rated = |stars: u32| (n, f64::from(n * stars));
        let less = value(with(endings(n_ok, n_ended), rated(stars)));
        let more = value(with(endings(n_ended, n_ended), rated(stars + 1)));
        prop_assert!(more.of(Factor::SuccessRate) >= less.of(Factor::SuccessRate) - 1e-12);
        prop_assert!(more.of(Factor::UserRating) >= less.of(Factor::UserRating) - 1e-12);
    }
}
