use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use riglm_domain::id::{OverrideId, SessionId, UpstreamName, WorkSessionId};
use riglm_domain::invocation::{CallSession, Invocation};
use riglm_domain::list_shown::SelectionMode;
use riglm_domain::listing::ListBounds;
use riglm_domain::prediction::NamePattern;
use riglm_domain::record::Record;
use riglm_domain::tool::ToolRef;
use riglm_domain::tool_override::{OverrideAction, OverrideScope};
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::contract::scene::{call, run, session};
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};

use super::*;
use crate::filtering::{ListIntent, Pool};
use crate::learning::testing::taught;
use crate::search::OfferedTool;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// How many tools are offered.
const N: usize = 80;
/// Words of a definition, so that hiding it pays.
const LONG: usize = 300;

fn tool(n: usize) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("notes").unwrap(),
        tool: format!("tool_{n:03}").as_str().into(),
    }
}

fn offered(tools: impl IntoIterator<Item = usize>) -> Arc<Offer> {
    let tools = tools.into_iter().map(|n| {
        let tool = tool(n);
        let name = tool.tool.as_str().to_owned();
        OfferedTool {
            definition: format!(
                r#"{{"name":"{name}","description":"{}"}}"#,
                "w ".repeat(LONG)
            )
            .into(),
            name,
            tool,
            is_hidden: false,
        }
    });
    Arc::new(Offer::new(tools.collect(), Vec::new()))
}

/// Lists of a process; `usual` are the tools that sessions used before.
fn lists_with(
    store: Option<&Arc<MemoryStore>>,
    usual: &[usize],
    options: ListOptions,
    is_failing: &Arc<AtomicBool>,
) -> Lists {
    let sessions: Vec<Vec<ToolRef>> = (0..60)
        .map(|_| usual.iter().map(|n| tool(*n)).collect())
        .collect();
    let next_tools = taught(&sessions, NOW, Arc::clone(is_failing));
    let stores = store.map(|store| ListStores {
        epochs: store.clone(),
        overrides: store.clone(),
        usage: store.clone(),
        activities: store.clone(),
        changes: store.clone(),
    });
    Lists::new(ListsParts {
        observer: Arc::new(riglm_ports::observer::Unobserved),
        options,
        profiles: HashMap::from([("narrow".into(), narrow())]),
        next_tools: Some(Arc::new(next_tools)),
        stores,
        counter: Arc::new(WordCounter),
        clock: Arc::new(ManualClock::at(NOW)),
    })
}

/// What is different under the profile of this name.
fn narrow() -> ListOptions {
    ListOptions {
        pins: vec![NamePattern::new("tool_009")],
        bans: vec![NamePattern::new("tool_003")],
        ..ListOptions::default()
    }
}

fn lists(store: Option<&Arc<MemoryStore>>, usual: &[usize]) -> Lists {
    lists_with(store, usual, ListOptions::default(), &Arc::default())
}

fn over(n: u8) -> CallSession {
    CallSession::Connection(SessionId::new(NOW, [n; 10]))
}

fn ask(principal: &Principal, n: u8) -> ListAsk<'_> {
    ListAsk {
        principal,
        client: "client",
        client_hash: None,
        profile: None,
        is_modern: false,
        relists: false,
        session: over(n),
        intent: None,
        now: NOW,
    }
}

fn modern(principal: &Principal, n: u8) -> ListAsk<'_> {
    ListAsk {
        is_modern: true,
        ..ask(principal, n)
    }
}

fn numbers(shown: &ShownList) -> Vec<usize> {
    let number = |at: &usize| {
        let name = &shown.offer().tools()[*at].name;
        name["tool_".len()..].parse().unwrap()
    };
    shown.positions().iter().map(number).collect()
}

#[tokio::test]
async fn a_profile_has_lists_of_its_own() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let lists = lists(Some(&store), &[3, 7, 11]);
    let offer = offered(0..N);
    let listed = async |ask: &ListAsk<'_>| {
        let shown = lists.list(ask, &offer).await;
        numbers(&shown)
    };
    for is_modern in [false, true] {
        let plain = ListAsk {
            is_modern,
            ..ask(&local, 1)
        };
        let narrow = ListAsk {
            profile: Some("narrow"),
            session: over(2),
            ..plain
        };
        let unknown = ListAsk {
            profile: Some("unknown"),
            session: over(3),
            ..plain
        };
        let shown = listed(&plain).await;
        assert!(shown.contains(&3) && !shown.contains(&9), "{shown:?}");
        let shown_so = listed(&narrow).await;
        assert!(
            !shown_so.contains(&3) && shown_so.contains(&9),
            "{shown_so:?}"
        );
        assert_eq!(listed(&unknown).await, shown);
        assert_eq!(listed(&plain).await, shown);
    }
}

#[tokio::test]
async fn a_list_has_what_sessions_use_and_not_much_more() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let shown = lists.list(&ask(&local, 1), &offered(0..N)).await;
    let numbers = numbers(&shown);
    assert!(
        [3, 7, 11].iter().all(|n| numbers.contains(n)),
        "{numbers:?}"
    );
    let bounds = ListBounds::default();
    assert!((bounds.min_tools..=bounds.max_tools).contains(&numbers.len()));
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!(
        (shown.mode, shown.is_fallback),
        (SelectionMode::Prediction, false)
    );
    assert!(shown.shown_tokens * 2 < shown.available_tokens);
    assert!(shown.hides(&tool(50)) && shown.shows(&tool(7)) && !shown.hides(&tool(999)));
}

#[tokio::test]
async fn the_order_of_the_upstream_a_restart_and_another_process_change_nothing() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let first = lists(Some(&store), &[3, 7, 11]);
    for asking in [ask(&local, 1), modern(&local, 1)] {
        let text = first.list(&asking, &offered(0..N)).await.page(0, N);
        let shuffled = first.list(&asking, &offered((0..N).rev())).await;
        assert_eq!(shuffled.page(0, N), text);
        // Another process has learned something else.
        let other = lists(Some(&store), &[60, 61, 62]);
        let again = other.list(&asking, &offered((0..N).rev())).await;
        assert_eq!(again.page(0, N), text);
        assert_eq!(again.epoch, 1);
    }
}

#[tokio::test]
async fn the_list_of_a_modern_client_depends_on_no_session_and_no_call() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let offer = offered(0..N);
    let text = lists.list(&modern(&local, 1), &offer).await.page(0, N);
    let intent = ListIntent {
        text: "tool 050".into(),
        fits: vec![(50, 9.0)],
        vector: None,
    };
    for n in 40..60 {
        lists.called(&modern(&local, 2), &tool(n));
    }
    for asking in [
        modern(&local, 2),
        ListAsk {
            intent: Some(&intent),
            client: "other",
            relists: true,
            now: NOW + SignedDuration::from_hours(23),
            ..modern(&local, 3)
        },
    ] {
        assert_eq!(lists.list(&asking, &offer).await.page(0, N), text);
        assert!(!lists.has_changed(&asking, |_| false));
    }
    let later = ListAsk {
        now: NOW + SignedDuration::from_hours(24),
        ..modern(&local, 3)
    };
    assert_eq!(lists.list(&later, &offer).await.epoch, 2);
}

#[tokio::test]
async fn an_upstream_that_lists_something_else_each_time_keeps_its_epoch() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let first = lists.list(&ask(&local, 1), &offered(0..N)).await;
    // The first change counts at once: tools may appear because of what was called.
    let second = lists.list(&ask(&local, 1), &offered(0..=N)).await;
    assert!(numbers(&second).contains(&N));
    assert!(second.page(0, 99).starts_with(&*first.page(0, 99)));
    for n in 1..20 {
        let again = lists
            .list(&ask(&local, 1), &offered((0..=N).chain([N + n])))
            .await;
        assert_eq!(again.page(0, 99), second.page(0, 99));
    }
    let later = ListAsk {
        now: NOW + SignedDuration::from_mins(2),
        ..ask(&local, 1)
    };
    let third = lists.list(&later, &offered(0..N + 3)).await;
    assert_eq!(third.epoch, 3);
    assert!(third.page(0, 99).starts_with(&*second.page(0, 99)));
}

#[tokio::test]
async fn what_was_whole_because_it_was_small_is_chosen_when_there_are_more_tools() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    for asking in [ask(&local, 1), modern(&local, 1)] {
        let few = lists.list(&asking, &offered(40..43)).await;
        assert_eq!((few.is_whole(), few.epoch), (true, 1));
        let many = lists.list(&asking, &offered(0..N)).await;
        let numbers = numbers(&many);
        assert!(numbers.len() < N / 2, "{numbers:?}");
        for n in [3, 40, 41, 42] {
            assert!(numbers.contains(&n), "{n} in {numbers:?}");
        }
        let again = lists.list(&asking, &offered(0..N)).await;
        assert_eq!((again.epoch, again.page(0, N)), (2, many.page(0, N)));
    }
}

#[tokio::test]
async fn new_tools_that_came_too_soon_are_looked_at_when_it_is_time() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    for offer in [offered(0..N), offered(0..=N), offered(0..N + 2)] {
        lists.list(&ask(&local, 1), &offer).await;
    }
    let offer = offered(0..N + 2);
    let held = lists.list(&ask(&local, 1), &offer).await;
    assert!(held.hides(&tool(N + 1)));
    let later = ListAsk {
        now: NOW + SignedDuration::from_secs(60),
        ..ask(&local, 1)
    };
    assert!(lists.list(&later, &offer).await.shows(&tool(N + 1)));
}

#[tokio::test]
async fn modern_clients_with_different_policies_do_not_end_each_others_epochs() {
    let local = Principal::local();
    let options = ListOptions {
        clients: vec![crate::filtering::ClientRule {
            name: NamePattern::new("loader"),
            policy: None,
            prompt_cache: None,
            loads_on_demand: Some(true),
        }],
        ..ListOptions::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let offer = offered(0..N);
    let loader = ListAsk {
        client: "loader",
        ..modern(&local, 2)
    };
    for _ in 0..3 {
        assert_eq!(lists.list(&modern(&local, 1), &offer).await.epoch, 1);
        assert_eq!(lists.list(&loader, &offer).await.epoch, 1);
    }
    // What each is shown is not what the other is.
    let called = lists.called(&loader, &tool(50)).unwrap().shown;
    assert!(called.shows(&tool(50)));
    let called = lists.called(&modern(&local, 1), &tool(50)).unwrap().shown;
    assert!(called.hides(&tool(50)));
}

#[tokio::test]
async fn a_pool_is_shown_without_a_least_number_of_tools() {
    let local = Principal::local();
    let options = ListOptions {
        bounds: ListBounds {
            min_tools: 0,
            ..ListBounds::default()
        },
        pools: vec![Pool {
            name: "base".into(),
            tools: vec![NamePattern::new("tool_00*")],
            profile: None,
            words: Vec::new(),
        }],
        ..ListOptions::default()
    };
    let lists = Lists::new(ListsParts {
        observer: Arc::new(riglm_ports::observer::Unobserved),
        options,
        profiles: HashMap::new(),
        next_tools: None,
        stores: None,
        counter: Arc::new(WordCounter),
        clock: Arc::new(ManualClock::at(NOW)),
    });
    let shown = lists.list(&ask(&local, 1), &offered(0..N)).await;
    assert_eq!(shown.positions().len(), 10);
}

#[tokio::test]
async fn a_prediction_that_fails_gives_way_to_counts_then_to_the_pool_then_to_everything() {
    let local = Principal::local();
    let is_failing = Arc::new(AtomicBool::new(false));
    let pool = Pool {
        name: "base".into(),
        tools: vec![NamePattern::new("tool_00*")],
        profile: None,
        words: Vec::new(),
    };
    let with_pool = ListOptions {
        pools: vec![pool],
        ..ListOptions::default()
    };
    let offer = offered(0..N);
    let failing = |options| {
        is_failing.store(false, Ordering::SeqCst);
        let lists = lists_with(None, &[3], options, &is_failing);
        is_failing.store(true, Ordering::SeqCst);
        lists
    };
    let shown = failing(with_pool).list(&ask(&local, 1), &offer).await;
    assert_eq!((shown.mode, shown.is_fallback), (SelectionMode::Pool, true));
    assert_eq!(shown.reason, Some(SelectionReason::PredictorFailed));
    assert_eq!(numbers(&shown), (0..10).collect::<Vec<_>>());
    let shown = failing(ListOptions::default())
        .list(&ask(&local, 1), &offer)
        .await;
    assert_eq!((shown.mode, shown.is_fallback), (SelectionMode::All, true));
    assert!(shown.is_whole());
}

#[tokio::test]
async fn what_is_pinned_stands_first_and_what_is_banned_nowhere() {
    let local = Principal::local();
    let options = ListOptions {
        pins: vec![NamePattern::new("tool_050"), NamePattern::new("absent")],
        bans: vec![NamePattern::new("tool_007")],
        ..ListOptions::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let shown = lists.list(&ask(&local, 1), &offered(0..N)).await;
    assert_eq!(numbers(&shown)[..2].first(), Some(&50));
    assert!(!numbers(&shown).contains(&7) && numbers(&shown).contains(&3));
    let none = ListOptions {
        bans: vec![NamePattern::new("*")],
        ..ListOptions::default()
    };
    let lists = lists_with(None, &[3], none, &Arc::default());
    let shown = lists.list(&ask(&local, 1), &offered(0..N)).await;
    assert_eq!(shown.positions(), [0_usize; 0]);
}

#[tokio::test]
async fn an_override_holds_at_once_and_until_it_ends() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let offer = offered(0..N);
    let before = lists.list(&ask(&local, 1), &offer).await;
    let one = ToolOverride {
        id: OverrideId::new(NOW, [1; 10]),
        tool: "tool_070".into(),
        action: OverrideAction::Include,
        scope: OverrideScope::Global,
        expires_at: Some(NOW + SignedDuration::from_hours(1)),
        reason: None,
        created_by: local.clone(),
        created_at: NOW,
    };
    lists.overrides.store(Arc::new(vec![one]));
    lists.revision.fetch_add(1, Ordering::SeqCst);
    let during = lists.list(&ask(&local, 1), &offer).await;
    let mut expected = numbers(&before);
    expected.push(70);
    assert_eq!(numbers(&during), expected);
    lists.overrides.store(Arc::default());
    lists.revision.fetch_add(1, Ordering::SeqCst);
    let after = lists.list(&ask(&local, 1), &offer).await;
    assert_eq!(numbers(&after), numbers(&before));
    // A cursor of the one list leads nowhere in the other.
    assert_eq!(
        (during.epoch, after.order()),
        (before.epoch, before.order())
    );
    assert_ne!(during.order(), before.order());
}

#[tokio::test]
async fn a_store_that_fails_fails_no_list() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    store.start_failing();
    let lists = lists(Some(&store), &[3, 7, 11]);
    let shown = lists.list(&ask(&local, 1), &offered(0..N)).await;
    assert!(shown.shows(&tool(3)) && !shown.is_whole());
    let again = lists.list(&ask(&local, 1), &offered(0..N)).await;
    assert_eq!(again.page(0, N), shown.page(0, N));
}

#[tokio::test]
async fn a_list_without_a_prompt_cache_takes_in_what_was_needed() {
    let local = Principal::local();
    let options = ListOptions {
        policy: Some(ListPolicyName::Conformal),
        ..ListOptions::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let offer = offered(0..N);
    let asking = ask(&local, 1);
    let shown = lists.list(&asking, &offer).await;
    let hidden = (0..N).find(|n| !shown.shows(&tool(*n))).unwrap();
    lists.called(&asking, &tool(hidden));
    assert!(lists.has_changed(&asking, |_| false));
    let shown = lists.list(&asking, &offer).await;
    assert!(shown.shows(&tool(hidden)));
    assert!(shown.positions().len() <= ListBounds::default().max_tools);
}

#[tokio::test]
async fn a_tool_that_was_searched_for_counts_as_missed_although_it_is_listed_by_then() {
    let local = Principal::local();
    let options = ListOptions {
        policy: Some(ListPolicyName::Conformal),
        ..ListOptions::default()
    };
    let offer = offered(0..N);
    let asking = ask(&local, 1);
    let threshold = async |was_searched: bool| {
        let lists = lists_with(None, &[3, 7, 11], options.clone(), &Arc::default());
        let shown = lists.list(&asking, &offer).await;
        let found = [tool(50), tool(3)];
        assert!(shown.hides(&found[0]) && shown.shows(&found[1]));
        if was_searched {
            lists.searched(&asking, &found);
        }
        // What the search found is listed, for example because it is likely now.
        lists
            .scopes
            .get(asking.scope(ListPolicyName::Conformal))
            .state()
            .note_use(&found[0], NOW);
        let shown = lists.list(&asking, &offer).await;
        assert!(shown.shows(&found[0]));
        lists.called(&asking, &found[0]);
        let after_one = lists.threshold(&asking, N, |_| {}).unwrap().threshold();
        lists.called(&asking, &found[0]);
        let after_two = lists.threshold(&asking, N, |_| {}).unwrap().threshold();
        assert!(after_two < after_one, "another call of it is no miss");
        after_one
    };
    assert!(threshold(true).await > threshold(false).await);
}

#[tokio::test]
async fn what_a_work_session_used_stays_over_a_restart() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let work = WorkSessionId::new(NOW, [4; 10]);
    let before = session(run(1), 1);
    let call = Invocation {
        work_session: Some(work),
        upstream: tool(50).upstream,
        tool: tool(50).tool,
        ..call(before.id, 2)
    };
    let records = [Record::SessionOpened(before), Record::CallOpened(call)];
    store.apply(&records).await.unwrap();
    let options = ListOptions {
        policy: Some(ListPolicyName::Conformal),
        ..ListOptions::default()
    };
    let lists = lists_with(Some(&store), &[3, 7, 11], options, &Arc::default());
    let offer = offered(0..N);
    let elsewhere = lists.list(&ask(&local, 1), &offer).await;
    assert!(!elsewhere.shows(&tool(50)));
    let goes_on = ListAsk {
        session: CallSession::Work(work),
        ..ask(&local, 2)
    };
    for used in 51..55 {
        assert!(lists.list(&goes_on, &offer).await.shows(&tool(50)));
        lists.called(&goes_on, &tool(used));
    }
}

#[tokio::test]
async fn marks_for_loading_at_once_leave_the_list_whole() {
    let local = Principal::local();
    let options = ListOptions {
        policy: Some(ListPolicyName::Hints),
        ..ListOptions::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let offer = offered(0..N);
    let shown = lists.list(&ask(&local, 1), &offer).await;
    assert!(shown.is_whole());
    let text = format!("[{}]", shown.page(0, N));
    let tools: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(tools.len(), N);
    assert_eq!(tools[3]["_meta"]["anthropic/alwaysLoad"], true);
    let marked = tools
        .iter()
        .filter(|tool| tool.get("_meta").is_some())
        .count();
    assert!((3..=20).contains(&marked), "{marked}");
    assert_eq!(text.matches(&*offer.tools()[40].definition).count(), 1);
    // Of a catalog that is not worth hiding all are to be loaded.
    let few = lists.list(&ask(&local, 2), &offered(0..8)).await;
    let text = few.page(0, N);
    assert_eq!(text.matches("alwaysLoad").count(), 8, "{text}");
}

#[derive(Clone, Debug)]
enum Step {
    Call(usize),
    Catalog(Vec<usize>),
    Wait(i64),
    List,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..N).prop_map(Step::Call),
        2 => proptest::sample::subsequence((0..N + 10).collect::<Vec<_>>(), 40..N + 10)
            .prop_shuffle()
            .prop_map(Step::Catalog),
        1 => (1..4_000_i64).prop_map(Step::Wait),
        4 => Just(Step::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_a_work_session_was_shown_and_used_stays(
        steps in proptest::collection::vec(step(), 1..30),
        policy in proptest::sample::select(vec![
            ListPolicyName::Epoch, ListPolicyName::Append, ListPolicyName::Conformal,
        ]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = ListOptions { policy: Some(policy), ..ListOptions::default() };
            let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
            let local = Principal::local();
            let mut asking = ask(&local, 1);
            let mut offer = offered(0..N);
            let mut catalog: HashSet<usize> = (0..N).collect();
            let mut stays: HashSet<usize> = HashSet::new();
            for step in steps.into_iter().chain([Step::List]) {
                match step {
                    Step::Call(n) => {
                        let called = lists.called(&asking, &tool(n));
                        if called.is_some_and(|called| called.shown.shows(&tool(n))) {
                            stays.insert(n);
                        }
                        lists.has_changed(&asking, |_| false);
                    }
                    Step::Catalog(tools) => {
                        offer = offered(tools.iter().copied());
                        catalog = tools.into_iter().collect();
                    }
                    Step::Wait(seconds) => {
                        asking.now += SignedDuration::from_secs(seconds);
                    }
                    Step::List => {
                        let shown = lists.list(&asking, &offer).await;
                        for n in stays.iter().filter(|n| catalog.contains(n)) {
                            prop_assert!(shown.shows(&tool(*n)), "{n} of {:?}", numbers(&shown));
                        }
                        let most = ListBounds::default().max_tools.max(stays.len());
                        let is_bounded = policy == ListPolicyName::Conformal;
                        prop_assert!(!is_bounded || shown.positions().len() <= most);
                    }
                }
            }
            Ok(())
        })?;
    }
}

/// Options that leave fewer tools in a list.
fn fewer() -> ListOptions {
    ListOptions {
        bounds: ListBounds {
            min_tools: 1,
            max_tools: 2,
            token_budget: None,
        },
        ..ListOptions::default()
    }
}

fn no_profiles() -> HashMap<String, ListOptions> {
    HashMap::new()
}

#[tokio::test]
async fn other_options_hold_for_the_next_list_and_the_same_options_for_none() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let lists = lists(Some(&store), &[3, 7, 11]);
    let offer = offered(0..N);
    for asking in [ask(&local, 1), modern(&local, 2)] {
        let before = lists.list(&asking, &offer).await;
        let revision = lists.revision();
        assert!(!lists.set_options(ListOptions::default(), no_profiles()));
        assert_eq!(lists.revision(), revision);
        assert!(lists.is_decided(&asking, &offer));

        assert!(lists.set_options(fewer(), no_profiles()));
        assert!(lists.revision() > revision);
        assert!(!lists.is_decided(&asking, &offer));
        let after = lists.list(&asking, &offer).await;
        assert_eq!(after.epoch, before.epoch + 1);
        assert!(numbers(&before).len() > 2 && numbers(&after).len() <= 2);
        let again = lists.list(&asking, &offer).await;
        assert_eq!(again.epoch, after.epoch);

        let pinned = ListOptions {
            pins: vec![NamePattern::new("tool_050")],
            ..fewer()
        };
        assert!(lists.set_options(pinned, no_profiles()));
        let shown = lists.list(&asking, &offer).await;
        assert_eq!(numbers(&shown)[0], 50);
        let by_name = ListOptions {
            policy: Some(ListPolicyName::Allowlist),
            allow: vec![NamePattern::new("tool_06*")],
            ..fewer()
        };
        assert!(lists.set_options(by_name, no_profiles()));
        let shown = lists.list(&asking, &offer).await;
        assert_eq!(numbers(&shown), (60..70).collect::<Vec<_>>());
        assert!(lists.set_options(ListOptions::default(), no_profiles()));
    }
}

#[tokio::test]
async fn options_of_a_profile_leave_the_epochs_of_others_alone() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let offer = offered(0..N);
    let narrow_ask = ListAsk {
        profile: Some("narrow"),
        session: over(2),
        ..ask(&local, 2)
    };
    let plain = lists.list(&ask(&local, 1), &offer).await;
    let of_profile = lists.list(&narrow_ask, &offer).await;
    let changed = HashMap::from([("narrow".to_owned(), fewer())]);
    assert!(lists.set_options(ListOptions::default(), changed));
    assert_eq!(lists.list(&ask(&local, 1), &offer).await.epoch, plain.epoch);
    let other = lists.list(&narrow_ask, &offer).await;
    assert_eq!(other.epoch, of_profile.epoch + 1);
    assert!(numbers(&of_profile).len() > 2 && numbers(&other).len() <= 2);
}

#[tokio::test]
async fn what_was_used_stays_when_options_change() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let offer = offered(0..N);
    lists.list(&ask(&local, 1), &offer).await;
    for n in [40, 41, 42] {
        lists.called(&ask(&local, 1), &tool(n));
    }
    lists.set_options(fewer(), no_profiles());
    let shown = lists.list(&ask(&local, 1), &offer).await;
    let shown = numbers(&shown);
    assert!([40, 41, 42].iter().all(|n| shown.contains(n)), "{shown:?}");
}

#[tokio::test]
async fn processes_that_are_told_the_same_agree_without_a_further_epoch() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let (one, other) = (
        lists(Some(&store), &[3, 7, 11]),
        lists(Some(&store), &[3, 7, 11]),
    );
    let offer = offered(0..N);
    let asking = modern(&local, 1);
    assert_eq!(one.list(&asking, &offer).await.epoch, 1);
    assert_eq!(other.list(&asking, &offer).await.epoch, 1);
    one.set_options(fewer(), no_profiles());
    assert_eq!(one.list(&asking, &offer).await.epoch, 2);
    // What the watch does when the store has a newer epoch.
    other.scopes.read_again();
    other.set_options(fewer(), no_profiles());
    let shown = other.list(&asking, &offer).await;
    assert_eq!((shown.epoch, numbers(&shown).len() <= 2), (2, true));
}

#[tokio::test]
async fn lists_are_chosen_anew_when_predictions_are_judged_anew() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let offer = offered(0..N);
    let before = lists.list(&ask(&local, 1), &offer).await;
    lists.choose_anew();
    assert!(!lists.is_decided(&ask(&local, 1), &offer));
    // The choice is the same, so that no epoch begins.
    let after = lists.list(&ask(&local, 1), &offer).await;
    assert_eq!(after.epoch, before.epoch);
    assert!(lists.is_decided(&ask(&local, 1), &offer));
}
