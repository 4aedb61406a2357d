use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::catalog::tool_override::OverrideAction;
use riglm_domain::id::{SessionId, UpstreamName, WorkSessionId};
use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::ListBounds;
use riglm_domain::selection::shown::SelectionMode;
use riglm_domain::usage::invocation::{Invocation, SessionKey};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::contract::scene::{call, run, session};
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};

use super::*;
use crate::selection::test_overrides::override_for_all;
use crate::selection::{ListIntent, Pool};
use riglm_discovery::learning::NextTools;
use riglm_discovery::learning::testing::trained_next_tools;
use riglm_discovery::search::CatalogTool;

mod app_tools;
mod arms;
mod expecting;
mod exploring;
mod fallback;
mod forecasts;
mod histories;
mod options;
mod servers;
mod topical;
mod widening;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// The number of tools in the catalog.
const N: usize = 80;
/// The number of words of a definition; hiding so long a one saves tokens.
const LONG: usize = 300;

fn tool(n: usize) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("notes").unwrap(),
        tool: format!("tool_{n:03}").as_str().into(),
    }
}

fn catalog_of(tools: impl IntoIterator<Item = usize>) -> Arc<Catalog> {
    let tools = tools.into_iter().map(|n| {
        let tool = tool(n);
        let name = tool.tool.as_str().to_owned();
        CatalogTool {
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
    Arc::new(Catalog::new(tools.collect(), Vec::new()))
}

/// Returns the lists of one process. `usual` are the tools of earlier sessions.
fn lists_with(
    store: Option<&Arc<MemoryStore>>,
    usual: &[usize],
    options: FilteringConfig,
    is_failing: &Arc<AtomicBool>,
) -> Lists {
    lists_after(60, store, usual, options, is_failing)
}

/// Returns the lists of one process after `n_sessions`, the last of which is not over.
fn lists_after(
    n_sessions: usize,
    store: Option<&Arc<MemoryStore>>,
    usual: &[usize],
    options: FilteringConfig,
    is_failing: &Arc<AtomicBool>,
) -> Lists {
    let sessions: Vec<Vec<ToolRef>> = (0..n_sessions)
        .map(|_| usual.iter().map(|n| tool(*n)).collect())
        .collect();
    let next_tools = trained_next_tools(&sessions, NOW, Arc::clone(is_failing));
    lists_by(&Arc::new(next_tools), store, options)
}

/// Returns the lists of one process with this predictor.
fn lists_by(
    next_tools: &Arc<NextTools>,
    store: Option<&Arc<MemoryStore>>,
    options: FilteringConfig,
) -> Lists {
    let stores = store.map(|store| ListStores {
        epochs: store.clone(),
        usage: store.clone(),
        activities: store.clone(),
        changes: store.clone(),
    });
    Lists::new(ListsParts {
        experiments: None,
        search: SearchTerms::default(),
        observer: Arc::new(riglm_ports::observer::NoObserver),
        options,
        profiles: HashMap::from([("narrow".into(), narrow())]),
        predictions: Arc::clone(next_tools).into(),
        stores,
        overrides: Arc::default(),
        counter: Arc::new(WordCounter),
        clock: Arc::new(ManualClock::at(NOW)),
    })
}

/// Returns the different options under the profile of this name.
fn narrow() -> FilteringConfig {
    FilteringConfig {
        pins: vec![NamePattern::new("tool_009")],
        bans: vec![NamePattern::new("tool_003")],
        ..FilteringConfig::default()
    }
}

fn lists(store: Option<&Arc<MemoryStore>>, usual: &[usize]) -> Lists {
    lists_with(store, usual, FilteringConfig::default(), &Arc::default())
}

fn over(n: u8) -> SessionKey {
    SessionKey::Connection(SessionId::new(NOW, [n; 10]))
}

fn request(principal: &Principal, n: u8) -> ListRequest<'_> {
    ListRequest {
        principal,
        client: "client",
        client_hash: None,
        profile: None,
        era: Era::Legacy,
        refetches_lists: false,
        loads_on_demand: false,
        session: over(n),
        connection: None,
        intent: None,
        stated: None,
        now: NOW,
    }
}

fn modern(principal: &Principal, n: u8) -> ListRequest<'_> {
    ListRequest {
        era: Era::Modern,
        ..request(principal, n)
    }
}

fn numbers(shown: &ShownList) -> Vec<usize> {
    let number = |at: &usize| {
        let name = &shown.catalog().tools()[*at].name;
        name["tool_".len()..].parse().unwrap()
    };
    shown.positions().iter().map(number).collect()
}

#[tokio::test]
async fn a_profile_has_lists_of_its_own() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let lists = lists(Some(&store), &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let listed = async |request: &ListRequest<'_>| {
        let shown = lists.list(request, &catalog).await;
        numbers(&shown)
    };
    for era in [Era::Legacy, Era::Modern] {
        let plain = ListRequest {
            era,
            ..request(&local, 1)
        };
        let narrow = ListRequest {
            profile: Some("narrow"),
            session: over(2),
            ..plain
        };
        let unknown = ListRequest {
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
async fn lists_contain_used_tools_and_stay_within_bounds() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let shown = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
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
async fn lists_are_stable_across_upstream_order_restarts_and_processes() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let first = lists(Some(&store), &[3, 7, 11]);
    for request in [request(&local, 1), modern(&local, 1)] {
        let text = first.list(&request, &catalog_of(0..N)).await.page(0, N);
        let shuffled = first.list(&request, &catalog_of((0..N).rev())).await;
        assert_eq!(shuffled.page(0, N), text);
        // Another process has learned something else.
        let other = lists(Some(&store), &[60, 61, 62]);
        let again = other.list(&request, &catalog_of((0..N).rev())).await;
        assert_eq!(again.page(0, N), text);
        assert_eq!(again.epoch, 1);
    }
}

#[tokio::test]
async fn modern_lists_are_independent_of_sessions_and_calls() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let catalog = catalog_of(0..N);
    let text = lists.list(&modern(&local, 1), &catalog).await.page(0, N);
    let intent = ListIntent {
        text: "tool 050".into(),
        fits: vec![(50, 9.0)],
        vector: None,
    };
    for n in 40..60 {
        lists.record_call(&modern(&local, 2), &tool(n));
    }
    for request in [
        modern(&local, 2),
        ListRequest {
            intent: Some(&intent),
            client: "other",
            refetches_lists: true,
            now: NOW + SignedDuration::from_hours(23),
            ..modern(&local, 3)
        },
    ] {
        assert_eq!(lists.list(&request, &catalog).await.page(0, N), text);
        assert!(!lists.has_changed(&request, |_| false).await);
    }
    let later = ListRequest {
        now: NOW + SignedDuration::from_hours(24),
        ..modern(&local, 3)
    };
    assert_eq!(lists.list(&later, &catalog).await.epoch, 2);
}

#[tokio::test]
async fn epochs_survive_constantly_changing_upstream_lists() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    let first = lists.list(&request(&local, 1), &catalog_of(0..N)).await;
    // The first change counts at once: tools may appear because of what was called.
    let second = lists.list(&request(&local, 1), &catalog_of(0..=N)).await;
    assert!(numbers(&second).contains(&N));
    assert!(second.page(0, 99).starts_with(&*first.page(0, 99)));
    for n in 1..20 {
        let again = lists
            .list(&request(&local, 1), &catalog_of((0..=N).chain([N + n])))
            .await;
        assert_eq!(again.page(0, 99), second.page(0, 99));
    }
    let later = ListRequest {
        now: NOW + SignedDuration::from_mins(2),
        ..request(&local, 1)
    };
    let third = lists.list(&later, &catalog_of(0..N + 3)).await;
    assert_eq!(third.epoch, 3);
    assert!(third.page(0, 99).starts_with(&*second.page(0, 99)));
}

#[tokio::test]
async fn complete_lists_are_reduced_after_the_catalog_grows() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    for request in [request(&local, 1), modern(&local, 1)] {
        let few = lists.list(&request, &catalog_of(40..43)).await;
        assert_eq!((few.is_whole(), few.epoch), (true, 1));
        let many = lists.list(&request, &catalog_of(0..N)).await;
        let numbers = numbers(&many);
        assert!(numbers.len() < N / 2, "{numbers:?}");
        for n in [3, 40, 41, 42] {
            assert!(numbers.contains(&n), "{n} in {numbers:?}");
        }
        let again = lists.list(&request, &catalog_of(0..N)).await;
        assert_eq!((again.epoch, again.page(0, N)), (2, many.page(0, N)));
    }
}

#[tokio::test]
async fn new_tools_wait_for_the_next_permitted_epoch() {
    let local = Principal::local();
    let lists = lists(None, &[3, 7, 11]);
    for catalog in [catalog_of(0..N), catalog_of(0..=N), catalog_of(0..N + 2)] {
        lists.list(&request(&local, 1), &catalog).await;
    }
    let catalog = catalog_of(0..N + 2);
    let held = lists.list(&request(&local, 1), &catalog).await;
    assert!(held.hides(&tool(N + 1)));
    let later = ListRequest {
        now: NOW + SignedDuration::from_secs(60),
        ..request(&local, 1)
    };
    assert!(lists.list(&later, &catalog).await.shows(&tool(N + 1)));
}

#[tokio::test]
async fn modern_clients_with_different_policies_do_not_end_each_others_epochs() {
    let local = Principal::local();
    let options = FilteringConfig {
        clients: vec![crate::selection::ClientRule {
            name: NamePattern::new("loader"),
            policy: None,
            prompt_cache: None,
            loads_on_demand: Some(true),
        }],
        ..FilteringConfig::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let catalog = catalog_of(0..N);
    let loader = ListRequest {
        client: "loader",
        ..modern(&local, 2)
    };
    for _ in 0..3 {
        assert_eq!(lists.list(&modern(&local, 1), &catalog).await.epoch, 1);
        assert_eq!(lists.list(&loader, &catalog).await.epoch, 1);
    }
    // Each client has its own list, with its own share of hidden tools.
    let called = lists.record_call(&loader, &tool(50)).unwrap().shown;
    assert!(called.shows(&tool(50)));
    let called = lists
        .record_call(&modern(&local, 1), &tool(50))
        .unwrap()
        .shown;
    assert!(called.hides(&tool(50)));
}
