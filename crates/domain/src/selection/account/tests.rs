use proptest::prelude::*;

use super::*;
use crate::id::{ToolName, UpstreamName};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
}

fn tool(n: usize) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("up").unwrap(),
        tool: ToolName::from(format!("tool{n}").as_str()),
    }
}

/// Returns a list of the first `n_shown` of `n_available` tools, with 100 tokens per tool.
fn list(millis: i64, n_shown: usize, n_available: usize) -> SeenList {
    SeenList {
        at: at(millis),
        policy: "epoch".into(),
        tools: Arc::new(ToolSet::new((0..n_shown).map(tool).collect())),
        n_available: n_available as u64,
        tokens: Some(ListTokens {
            shown: 100 * n_shown as u64,
            available: 100 * n_available as u64,
        }),
        mode: None,
        size_choice: None,
        expected_coverage: None,
    }
}

/// Returns a list of 10 of 50 tools with an expected coverage.
fn expecting(millis: i64, expected: f64) -> SeenList {
    SeenList {
        expected_coverage: ExpectedCoverage::try_from(expected).ok(),
        ..list(millis, 10, 50)
    }
}

fn call(millis: i64, n: usize, source: ToolSource) -> RecordedCall {
    RecordedCall {
        at: at(millis),
        tool: tool(n),
        source,
        work_session: None,
    }
}

fn search(millis: i64, answer_tokens: Option<u64>) -> RecordedSearch {
    RecordedSearch {
        at: at(millis),
        n_results: 5,
        answer_tokens,
    }
}

fn account(activity: &ListActivity) -> ListAccount {
    ListAccount::new(activity, &CostModel::default())
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * a.abs().max(1.0)
}

#[test]
fn a_tool_has_a_first_call_in_each_work_session() {
    let work_session = |n: u8| Some(WorkSessionId::new(at(0), [n; 10]));
    let calls = [(1, 1), (2, 1), (3, 2)].map(|(millis, n)| RecordedCall {
        work_session: work_session(n),
        ..call(millis, 30, ToolSource::Found)
    });
    let activity = ListActivity {
        lists: vec![list(0, 10, 50)],
        calls: calls.to_vec(),
        searches: Vec::new(),
    };
    let account = account(&activity);
    assert_eq!((account.tools_used, account.tool_misses), (2, 2));
}

#[test]
fn searches_have_their_weight_in_the_cost_of_a_session() {
    let prices = ListPrices::default();
    let mut activity = ListActivity {
        lists: vec![list(0, 10, 50)],
        calls: vec![
            call(1, 1, ToolSource::Shown),
            call(3, 40, ToolSource::Found),
        ],
        searches: vec![search(2, Some(400))],
    };
    // The list is written once; each of three prompts reads it and the context.
    let prompt = 0.1 * 21_000.0;
    let search = prompt + 600.0 + 1.25 * 400.0;
    let expected = 1.25 * 1_000.0 + 2.0 * prompt + 3.0 * search;
    let cost = weighed_cost(&activity, &prices).unwrap();
    assert!(near(cost, expected), "{cost} {expected}");
    activity.lists[0].tokens = None;
    assert_eq!(weighed_cost(&activity, &prices), None);
    assert_eq!(weighed_cost(&ListActivity::default(), &prices), None);
    let silent = ListActivity {
        lists: vec![list(0, 10, 50)],
        ..ListActivity::default()
    };
    assert!(weighed_cost(&silent, &prices).is_some_and(|cost| cost.abs() < 1e-12));
}

#[test]
fn a_shorter_list_saves_one_write_and_each_read() {
    let activity = ListActivity {
        lists: vec![list(0, 10, 50)],
        calls: vec![
            call(1, 3, ToolSource::Shown),
            call(2, 3, ToolSource::Shown),
            call(3, 4, ToolSource::Shown),
        ],
        searches: Vec::new(),
    };
    let account = account(&activity);
    assert_eq!((account.tools_loaded, account.tools_used), (10, 2));
    assert_eq!((account.shown_tools, account.available_tools), (10, 50));
    assert_eq!(
        (account.shown_tokens, account.available_tokens),
        (1_000, 5_000)
    );
    assert_eq!(account.tokens_saved, 3 * 4_000);
    assert!(near(
        account.cost_avoided,
        1.25 * 4_000.0 + 3.0 * 0.1 * 4_000.0
    ));
    assert_eq!((account.tool_misses, account.tool_escalations), (0, 0));
}

#[test]
fn a_search_costs_a_prompt_and_its_answer() {
    let with = |searches: Vec<RecordedSearch>| {
        let activity = ListActivity {
            lists: vec![list(0, 10, 50)],
            calls: vec![call(9, 20, ToolSource::Found)],
            searches,
        };
        account(&activity)
    };
    let none = with(Vec::new()).cost_avoided;
    // The prompt has 20,000 tokens of context and 1,000 tokens of the list.
    let counted = with(vec![search(1, Some(400))]);
    assert!(near(none - counted.cost_avoided, 2_100.0 + 600.0 + 500.0));
    assert_eq!((counted.searches, counted.tool_misses), (1, 1));
    assert_eq!(counted.tool_escalations, 0);
    // Five definitions of 100 tokens.
    let estimated = with(vec![search(1, None)]).cost_avoided;
    assert!(near(none - estimated, 2_100.0 + 600.0 + 625.0));
}

#[test]
fn a_list_change_costs_rewriting_the_next_prompt() {
    let changed = |lists: Vec<SeenList>| {
        let activity = ListActivity {
            lists,
            calls: vec![call(1, 0, ToolSource::Shown), call(9, 0, ToolSource::Shown)],
            searches: Vec::new(),
        };
        account(&activity)
    };
    let same = changed(vec![list(0, 10, 50), list(5, 10, 50)]);
    let one = changed(vec![list(0, 10, 50), list(5, 11, 50)]);
    assert_eq!((same.list_changes, one.list_changes), (0, 1));
    let price = 1.15 * 21_100.0 + 0.1 * 100.0;
    assert!(near(same.cost_avoided - one.cost_avoided, price));
    // Only lists that were part of a prompt have a cost.
    let twice = changed(vec![list(0, 10, 50), list(4, 30, 50), list(5, 11, 50)]);
    assert_eq!(twice.list_changes, 2);
    assert!(near(twice.cost_avoided, one.cost_avoided));
    // A new server would have changed a list of all tools, too.
    let grown = changed(vec![list(0, 10, 50), list(5, 11, 51)]);
    assert!(grown.cost_avoided > one.cost_avoided + 1.15 * 25_000.0);
}

#[test]
fn only_the_first_use_of_a_tool_is_a_miss() {
    let activity = ListActivity {
        lists: vec![list(0, 2, 50)],
        calls: vec![
            call(1, 7, ToolSource::Hidden),
            call(2, 7, ToolSource::Hidden),
            call(3, 8, ToolSource::Found),
            call(4, 0, ToolSource::Shown),
            // Shown at first, then hidden.
            call(5, 0, ToolSource::Hidden),
        ],
        searches: Vec::new(),
    };
    let account = account(&activity);
    assert_eq!((account.tool_misses, account.tool_escalations), (2, 3));
    assert_eq!(account.tools_used, 3);
}

#[test]
fn without_prompts_or_tokens_nothing_is_saved() {
    let idle = ListActivity {
        lists: vec![list(0, 10, 50), list(1, 20, 50)],
        ..ListActivity::default()
    };
    assert_eq!(account(&idle).cost_avoided.to_bits(), 0);
    assert_eq!(account(&idle).list_changes, 1);
    let mut unknown = ListActivity {
        lists: vec![list(0, 10, 50)],
        calls: vec![call(1, 0, ToolSource::Shown)],
        searches: vec![search(2, Some(9))],
    };
    unknown.lists[0].tokens = None;
    let account = account(&unknown);
    assert_eq!((account.tokens_saved, account.shown_tokens), (0, 0));
    assert_eq!(account.cost_avoided.to_bits(), 0);
    assert_eq!((account.shown_tools, account.searches), (10, 1));
    assert_eq!(
        ListAccount::new(&ListActivity::default(), &CostModel::default()),
        { ListAccount::default() }
    );
}

#[test]
fn a_list_applies_from_its_time_on() {
    let activity = ListActivity {
        // Not in the order of time.
        lists: vec![list(5, 20, 50), list(0, 10, 50)],
        calls: vec![
            call(5, 0, ToolSource::Shown),
            call(4, 0, ToolSource::Shown),
            call(-1, 0, ToolSource::Shown),
        ],
        searches: Vec::new(),
    };
    let account = account(&activity);
    assert_eq!(account.tokens_saved, 4_000 + 3_000);
    assert_eq!(account.shown_tools, 20);
}

fn calibration(activity: &ListActivity) -> Calibration {
    ListAccount::with_calibration(activity, &CostModel::default()).1
}

#[test]
fn calls_count_under_the_list_before_them() {
    let activity = ListActivity {
        // The third list has no expectation, so the calls under it do not count.
        lists: vec![
            expecting(0, 0.72),
            expecting(10, 0.9),
            list(20, 10, 50),
            expecting(30, 0.75),
            expecting(40, 0.1),
        ],
        calls: vec![
            call(-1, 1, ToolSource::Shown),
            call(1, 1, ToolSource::Shown),
            call(2, 20, ToolSource::Found),
            // Another use of the same tool is another call.
            call(3, 20, ToolSource::Hidden),
            call(10, 1, ToolSource::Shown),
            call(21, 1, ToolSource::Hidden),
            call(31, 1, ToolSource::Shown),
            // A name that no list has.
            call(32, 99, ToolSource::Unlisted),
        ],
        searches: vec![search(2, None), search(33, Some(9))],
    };
    let calibration = calibration(&activity);
    let numbers: Vec<_> = (calibration.bins().iter())
        .map(|bin| (bin.lists, bin.calls, bin.covered_calls))
        .collect();
    let mut expected = vec![(0, 0, 0); 10];
    expected[1] = (1, 0, 0);
    expected[7] = (2, 4, 2);
    expected[9] = (1, 1, 1);
    assert_eq!(numbers, expected);
    let seventh = calibration.bins()[7];
    assert!(near(seventh.from, 0.7) && near(seventh.to, 0.8));
    assert!(near(
        seventh.expected_share().unwrap(),
        (3.0 * 0.72 + 0.75) / 4.0
    ));
    assert_eq!(seventh.actual_share(), Some(0.5));
    // A list without calls says nothing yet.
    let first = calibration.bins()[1];
    assert_eq!((first.expected_share(), first.actual_share()), (None, None));
    let total = calibration.total();
    assert_eq!((total.lists, total.calls), (4, 5));
    assert!(near(
        total.expected_share().unwrap(),
        (3.0 * 0.72 + 0.9 + 0.75) / 5.0
    ));
    assert!(near(total.actual_share().unwrap(), 0.6));
}

#[test]
fn each_expected_coverage_is_in_one_bin() {
    for (expected, place) in [
        (0.0, 0),
        (0.099_999, 0),
        (0.1, 1),
        (0.3, 3),
        (0.6, 6),
        (0.7, 7),
        (0.899_999, 8),
        (1.0, 9),
    ] {
        let activity = ListActivity {
            lists: vec![expecting(0, expected)],
            ..ListActivity::default()
        };
        let calibration = calibration(&activity);
        let place_of = |bin: &CalibrationBin| bin.lists > 0;
        assert_eq!(calibration.bins().iter().position(place_of), Some(place));
        assert_eq!(calibration.total().lists, 1);
    }
}

#[test]
fn a_summary_has_means_by_policy() {
    let mut summary = ListSummary::default();
    assert_eq!(summary.all.mean_list_size().to_bits(), 0);
    let account = |shown_tools, cost_avoided| ListAccount {
        shown_tools,
        available_tools: 50,
        searches: 2,
        tool_misses: 1,
        cost_avoided,
        ..ListAccount::default()
    };
    summary.add("epoch", None, &account(10, 5.0));
    summary.add("epoch", None, &account(20, -2.0));
    summary.add("all", None, &account(50, 0.0));
    let epoch = summary.by_policy["epoch"];
    assert!(near(epoch.mean_list_size(), 15.0));
    assert!(near(epoch.share_shown(), 0.3));
    assert!(near(epoch.share_at_a_loss(), 0.5));
    assert!(near(epoch.total.cost_avoided, 3.0));
    assert_eq!(summary.all.sessions, 3);
    assert!(near(summary.all.searches_per_session(), 2.0));
    assert!(near(summary.all.misses_per_session(), 1.0));
    assert!(near(summary.all.share_at_a_loss(), 1.0 / 3.0));
    assert_eq!(summary.by_policy.len(), 2);
}

fn any_source() -> impl Strategy<Value = ToolSource> {
    prop_oneof![
        Just(ToolSource::Shown),
        Just(ToolSource::Found),
        Just(ToolSource::Hidden)
    ]
}

prop_compose! {
    fn any_list()(
        millis in 0..20_i64, n_shown in 0..5_usize, n_available in 0..9_u64,
        tokens in proptest::option::of((any::<u64>(), any::<u64>())),
        expected in proptest::option::of(0.0..=1.0_f64),
    ) -> SeenList {
        SeenList {
            n_available,
            expected_coverage: expected.and_then(|it| ExpectedCoverage::try_from(it).ok()),
            tokens: tokens.map(|(shown, available)| ListTokens { shown, available }),
            ..list(millis, n_shown, 0)
        }
    }
}

prop_compose! {
    /// A list without hidden tools.
    fn whole_list()(
        millis in 0..20_i64, n in 0..5_usize,
        tokens in proptest::option::of(any::<u64>()),
    ) -> SeenList {
        SeenList {
            tokens: tokens.map(|tokens| ListTokens { shown: tokens, available: tokens }),
            ..list(millis, n, n)
        }
    }
}

prop_compose! {
    fn any_call()(millis in 0..20_i64, n in 0..9_usize, source in any_source()) -> RecordedCall {
        call(millis, n, source)
    }
}

prop_compose! {
    fn any_search()(
        millis in 0..20_i64, n_results in any::<u64>(),
        answer_tokens in proptest::option::of(any::<u64>()),
    ) -> RecordedSearch {
        RecordedSearch { at: at(millis), n_results, answer_tokens }
    }
}

prop_compose! {
    fn any_prices()(
        numbers in proptest::array::uniform6(prop_oneof![0.0..1e6_f64, Just(f64::MAX)]),
    ) -> CostModel {
        let [cached_read, cache_write, tokens_per_tool, context_tokens, search, inline_search] =
            numbers;
        CostModel {
            cached_read, cache_write, tokens_per_tool, context_tokens, search, inline_search,
        }
    }
}

fn vec<T>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>>
where
    T: std::fmt::Debug,
{
    proptest::collection::vec(of, 0..8)
}

proptest! {
    #[test]
    fn whole_lists_without_searches_save_nothing(
        lists in vec(whole_list()), calls in vec(any_call()), prices in any_prices(),
    ) {
        let activity = ListActivity { lists, calls, searches: Vec::new() };
        let account = ListAccount::new(&activity, &prices);
        prop_assert_eq!(account.cost_avoided.to_bits(), 0);
        prop_assert_eq!(account.tokens_saved, 0);
    }

    #[test]
    fn an_account_has_finite_and_consistent_numbers(
        lists in vec(any_list()), calls in vec(any_call()), searches in vec(any_search()),
        prices in any_prices(),
    ) {
        let activity = ListActivity { lists, calls, searches };
        prop_assert_eq!(prices.check(), Ok(()));
        let account = ListAccount::new(&activity, &prices);
        prop_assert!(account.cost_avoided.is_finite());
        prop_assert!(account.tool_misses <= account.tools_used);
        prop_assert!(account.tools_used <= activity.calls.len() as u64);
        prop_assert!(account.tool_escalations <= activity.calls.len() as u64);
        prop_assert!(account.shown_tools <= account.tools_loaded);
        prop_assert!(account.list_changes <= activity.lists.len().saturating_sub(1) as u64);
        let mut summary = ListSummary::default();
        summary.add("a", None, &account);
        summary.add("b", None, &account);
        summary.add("a", None, &account);
        prop_assert!(summary.all.total.cost_avoided.is_finite());
        prop_assert!((0.0..=1.0).contains(&summary.all.share_at_a_loss()));
        prop_assert_eq!(summary.all.sessions, 3);
    }

    #[test]
    fn a_calibration_counts_each_call_at_most_once(
        lists in vec(any_list()), calls in vec(any_call()), searches in vec(any_search()),
    ) {
        let activity = ListActivity { lists, calls, searches };
        let one = calibration(&activity);
        let total = one.total();
        let expecting = activity.lists.iter().filter(|list| list.expected_coverage.is_some());
        prop_assert_eq!(total.lists, expecting.count() as u64);
        prop_assert!(total.calls <= activity.calls.len() as u64);
        for bin in one.bins().iter().chain([&total]) {
            prop_assert!(bin.covered_calls <= bin.calls);
            prop_assert_eq!(bin.expected_share().is_some(), bin.calls > 0);
            prop_assert!(bin.expected_share().is_none_or(|it| (bin.from..=bin.to).contains(&it)));
            prop_assert!(bin.actual_share().is_none_or(|it| (0.0..=1.0).contains(&it)));
        }
        // Searches have no effect, and two sessions count twice.
        let silent = ListActivity { searches: Vec::new(), ..activity };
        prop_assert_eq!(calibration(&silent), one);
        let mut both = one;
        both.add(&one);
        prop_assert_eq!(both.total().calls, 2 * total.calls);
        prop_assert_eq!(both.total().covered_calls, 2 * total.covered_calls);
        prop_assert_eq!(both.total().lists, 2 * total.lists);
    }

    #[test]
    fn another_search_never_raises_the_savings(
        lists in vec(any_list()), calls in vec(any_call()), searches in vec(any_search()),
        more in any_search(),
    ) {
        let mut activity = ListActivity { lists, calls, searches };
        activity.calls.push(call(-1, 0, ToolSource::Shown));
        let before = account(&activity);
        // At the time of the last call: at another time, it could write a list that no call has
        // read.
        let last = activity.calls.iter().map(|call| call.at).max().unwrap();
        activity.searches.push(RecordedSearch { at: last, ..more });
        let after = account(&activity);
        prop_assert!(after.cost_avoided <= before.cost_avoided);
        prop_assert_eq!(after.tokens_saved, before.tokens_saved);
    }
}
