//! Learned lists in front of one upstream. Nothing is learned here, so the default pool is shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_app::clock::SystemClock;
use riglm_app::limits::Limits;
use riglm_app::selection::{
    FilteringConfig, ListFilter, ListStores, Lists, ListsParts, OperatorOverrides, OverrideStores,
    Pool, SearchTerms,
};
use riglm_discovery::learning::LivePredictions;
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::{AuditId, OverrideId};
use riglm_domain::mcp::message::Message;
use riglm_domain::prediction::NamePattern;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::ListPolicyName;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason};
use riglm_domain::usage::invocation::{Invocation, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::OverrideRepository as _;
use riglm_ports::clock::Clock as _;
use riglm_ports::fake::{MemoryStore, WordCounter};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::scene::{Scene, Setup};

const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}"#;
const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#;
const TOOLS: [&str; 8] = [
    "z_usual", "rare_1", "a_usual", "rare_2", "rare_3", "rare_4", "rare_5", "rare_6",
];

fn options() -> FilteringConfig {
    FilteringConfig {
        pools: vec![Pool {
            name: "usual".into(),
            tools: vec![NamePattern::new("*_usual")],
            profile: None,
            words: Vec::new(),
        }],
        ..FilteringConfig::default()
    }
}

fn filter(options: FilteringConfig) -> ListFilter {
    ListFilter::from_lists(Arc::new(Lists::new(ListsParts {
        experiments: None,
        search: SearchTerms::default(),
        observer: Arc::new(riglm_ports::observer::NoObserver),
        options,
        profiles: HashMap::new(),
        predictions: LivePredictions::default(),
        stores: None,
        overrides: Arc::default(),
        counter: Arc::new(WordCounter),
        clock: Arc::new(SystemClock),
    })))
}

fn scene_of(options: FilteringConfig, limits: Limits) -> Scene {
    let scene = Setup {
        filter: Some(filter(options)),
        limits,
        search: Some("search_available_tools"),
        has_others: true,
        ..Setup::default()
    }
    .scene();
    scene.upstream.reply_to("initialize", WELCOME);
    set_catalog(&scene, &TOOLS);
    scene
}

async fn scene() -> Scene {
    let scene = scene_of(options(), Limits::default());
    ask(&scene, HELLO).await;
    scene
}

fn set_catalog(scene: &Scene, tools: &[&str]) {
    let tools: Vec<Value> = tools
        .iter()
        .map(|name| json!({ "name": name, "n": 1.0 }))
        .collect();
    let result = json!({ "tools": tools, "_meta": {"x": 1} });
    scene
        .upstream
        .reply_to("tools/list", &format!(r#""result":{result}"#));
}

async fn ask(scene: &Scene, text: &str) -> Value {
    let message = Message::from_text(text.to_owned()).unwrap();
    if let Some(exchange) = scene.session.receive(message).await.unwrap() {
        tokio::time::timeout(Duration::from_secs(10), exchange.run)
            .await
            .unwrap();
    }
    serde_json::from_str(&scene.last()).unwrap()
}

fn list(cursor: Option<&str>) -> String {
    let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}).to_string()
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

fn n_lists_asked(scene: &Scene) -> usize {
    let sent = scene.upstream.sent_messages();
    sent.iter()
        .filter(|(_, text)| text.contains("tools/list"))
        .count()
}

fn calls(scene: &Scene) -> Vec<Invocation> {
    let records = scene.store.records().into_iter();
    let calls = records.filter_map(|record| match record {
        Record::CallOpened(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

#[tokio::test]
async fn a_list_is_chosen_kept_and_recorded_once() {
    let scene = scene().await;
    let answer = ask(&scene, &list(None)).await;
    let expected = [
        "search_available_tools",
        "a_usual",
        "z_usual",
        "call_tool",
        "set_context",
    ];
    assert_eq!(names(&answer), expected);
    assert_eq!(answer["result"]["_meta"]["x"], 1);
    assert!(scene.last().contains(r#"{"name":"a_usual","n":1.0}"#));
    let first = scene.last();
    // Within seconds the server is not asked again, and the same list is not recorded again.
    ask(&scene, &list(None)).await;
    assert_eq!(scene.last(), first);
    assert_eq!(n_lists_asked(&scene), 1);
    let records = scene.store.records();
    let shown: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::ListShown(list) => Some(list),
            _ => None,
        })
        .collect();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].n_available, shown[0].tools.tools().len()), (8, 2));
    let selection = shown[0].selection.as_ref().unwrap();
    assert_eq!(selection.mode, SelectionMode::Pool);
    assert_eq!(selection.reason, Some(SelectionReason::NothingLearned));
    assert!(selection.is_fallback);
    assert_eq!(selection.pool.tools().len(), 2);
    assert!(selection.shown_tokens < selection.available_tokens);
}

#[tokio::test]
async fn hidden_tools_are_callable_and_recorded_as_hidden() {
    let scene = scene().await;
    ask(&scene, &list(None)).await;
    scene
        .upstream
        .reply_to("tools/call", r#""result":{"content":[]}"#);
    for name in ["rare_3", "a_usual", "nobody_has_it"] {
        let call =
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name}});
        ask(&scene, &call.to_string()).await;
    }
    let sources: Vec<_> = calls(&scene).iter().map(|call| call.source).collect();
    let expected = [ToolSource::Hidden, ToolSource::Shown, ToolSource::Unlisted];
    assert_eq!(sources, expected);
}

#[tokio::test]
async fn handshakes_announce_list_changes() {
    let scene = scene_of(options(), Limits::default());
    let answer = ask(&scene, HELLO).await;
    let capabilities = &answer["result"]["capabilities"];
    assert_eq!(capabilities["tools"]["listChanged"], true);
    assert_eq!(capabilities["logging"], json!({}));
}

#[tokio::test]
async fn list_changes_cause_a_new_list_request() {
    let scene = scene().await;
    ask(&scene, &list(None)).await;
    set_catalog(
        &scene,
        &[
            "a_usual", "b_usual", "rare_1", "rare_2", "rare_3", "rare_4", "rare_5",
        ],
    );
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    scene.upstream.send_to_client(changed, None).await;
    let answer = ask(&scene, &list(None)).await;
    assert_eq!(n_lists_asked(&scene), 2);
    let listed = names(&answer);
    assert!(
        listed.contains(&"a_usual") && listed.contains(&"b_usual"),
        "{listed:?}"
    );
    assert!(
        !listed.contains(&"z_usual") && !listed.contains(&"rare_1"),
        "{listed:?}"
    );
}

#[tokio::test]
async fn own_tools_are_listed_if_all_others_are_banned() {
    let options = FilteringConfig {
        bans: vec![NamePattern::new("*")],
        ..FilteringConfig::default()
    };
    let scene = scene_of(options, Limits::default());
    ask(&scene, HELLO).await;
    let answer = ask(&scene, &list(None)).await;
    let expected = ["search_available_tools", "call_tool", "set_context"];
    assert_eq!(names(&answer), expected);
}

#[tokio::test]
async fn long_lists_are_paged_with_validated_cursors() {
    let limits = Limits {
        list_page_entries: 3,
        ..Limits::default()
    };
    let scene = scene_of(FilteringConfig::default(), limits);
    ask(&scene, HELLO).await;
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let answer = ask(&scene, &list(cursor.as_deref())).await;
        all.extend(names(&answer).into_iter().map(str::to_owned));
        cursor = answer["result"]["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
        assert!(all.len() < 99);
    }
    let mut expected: Vec<&str> = TOOLS.to_vec();
    expected.sort_unstable();
    // So few tools are never hidden, and no search is needed.
    assert_eq!(all, expected);
    for wrong in [
        "",
        "x",
        "1-000000000000.3",
        "🙂.1",
        "1.99999999999999999999",
    ] {
        let answer = ask(&scene, &list(Some(wrong))).await;
        assert_eq!(answer["error"]["code"], -32602, "{wrong}: {answer}");
    }
    let number = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}"#;
    assert_eq!(ask(&scene, number).await["error"]["code"], -32602);
}

#[tokio::test]
async fn errors_instead_of_lists_pass_unchanged() {
    let scene = scene().await;
    scene.upstream.reply_to(
        "tools/list",
        r#""error":{"code":-32001,"message":"log in first","data":[1.0]}"#,
    );
    let message = Message::from_text(list(None)).unwrap();
    if let Some(exchange) = scene.session.receive(message).await.unwrap() {
        exchange.run.await;
    }
    let expected =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"log in first","data":[1.0]}}"#;
    assert_eq!(scene.last(), expected);
}

#[tokio::test]
async fn name_filters_apply_to_forwarded_lists() {
    let rare = || vec![NamePattern::new("rare_*")];
    for options in [
        FilteringConfig {
            bans: rare(),
            ..FilteringConfig::default()
        },
        FilteringConfig {
            policy: Some(ListPolicyName::Denylist),
            deny: rare(),
            ..FilteringConfig::default()
        },
        FilteringConfig {
            policy: Some(ListPolicyName::Allowlist),
            allow: vec![NamePattern::new("*_usual")],
            ..FilteringConfig::default()
        },
    ] {
        let scene = scene_of(options, Limits::default());
        ask(&scene, HELLO).await;
        scene.upstream.reply_once_to(
            "tools/list",
            r#""error":{"code":-32603,"message":"not now"}"#,
        );
        let answer = ask(&scene, &list(None)).await;
        assert_eq!(n_lists_asked(&scene), 2);
        let listed = names(&answer);
        assert!(listed.contains(&"z_usual"), "{listed:?}");
        assert!(
            !listed.iter().any(|name| name.starts_with("rare")),
            "{listed:?}"
        );
    }
}

#[tokio::test]
async fn list_requests_before_initialization_are_answered() {
    let scene = scene_of(options(), Limits::default());
    let answer = ask(&scene, &list(None)).await;
    assert!(answer["error"]["message"].is_string() || names(&answer).contains(&"a_usual"));
}

#[tokio::test]
async fn failed_list_requests_get_the_last_known_list() {
    let scene = scene().await;
    let before = ask(&scene, &list(None)).await;
    scene.upstream.reply_to(
        "tools/list",
        r#""error":{"code":-32603,"message":"not now"}"#,
    );
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    scene.upstream.send_to_client(changed, None).await;
    let after = ask(&scene, &list(None)).await;
    assert_eq!(n_lists_asked(&scene), 2);
    assert_eq!(after["result"]["tools"], before["result"]["tools"]);
}

#[tokio::test]
async fn upstream_tools_replace_own_tools_of_the_same_name() {
    let scene = scene_of(options(), Limits::default());
    set_catalog(
        &scene,
        &[
            "call_tool",
            "a_usual",
            "rare_1",
            "rare_2",
            "rare_3",
            "rare_4",
            "rare_5",
        ],
    );
    ask(&scene, HELLO).await;
    let answer = ask(&scene, &list(None)).await;
    let expected = ["search_available_tools", "a_usual", "set_context"];
    assert_eq!(names(&answer), expected);
}

#[tokio::test]
async fn several_requests_at_once_ask_the_server_once() {
    let scene = scene().await;
    let exchanges = (0..9).map(|id| {
        let text = list(None).replace("\"id\":1", &format!("\"id\":{id}"));
        let session = Arc::clone(&scene.session);
        async move {
            let message = Message::from_text(text).unwrap();
            session.receive(message).await.unwrap().unwrap().run.await;
        }
    });
    futures_util::future::join_all(exchanges).await;
    assert_eq!(n_lists_asked(&scene), 1);
}

/// Stores a decision of an operator and waits until the proxy has read it.
async fn exclude(store: &MemoryStore, lists: &Lists, tool: &str) {
    let (at, before) = (SystemClock.now(), lists.revision());
    let decided = ToolOverride {
        id: OverrideId::new(at, [1; 10]),
        tool: tool.into(),
        action: OverrideAction::Exclude,
        scope: OverrideScope::Global,
        expires_at: None,
        reason: None,
        created_by: Principal::local(),
        created_at: at,
    };
    let audit = AuditEntry {
        id: AuditId::new(at, [1; 10]),
        at,
        actor: Principal::local(),
        action: "override.create".into(),
        target: tool.into(),
        detail: None,
    };
    store.set_override(&decided, &audit).await.unwrap();
    while lists.revision() == before {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the notifications about changes of the tool list.
fn change_notifications(scene: &Scene) -> Vec<String> {
    let all = scene
        .client
        .delivered_messages()
        .into_iter()
        .map(|(text, _)| text);
    all.filter(|text| text.contains("tools/list_changed"))
        .collect()
}

/// Returns a proxy that reads overrides from a store, and the store.
fn proxy_with_overrides() -> (Scene, Arc<Lists>, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::default());
    let stores = OverrideStores {
        overrides: store.clone(),
        changes: store.clone(),
    };
    let overrides = OperatorOverrides::of_store(stores, Arc::new(SystemClock));
    let overrides = Arc::new(overrides);
    let lists = Arc::new(Lists::new(ListsParts {
        experiments: None,
        search: SearchTerms::default(),
        observer: Arc::new(riglm_ports::observer::NoObserver),
        options: FilteringConfig::default(),
        profiles: HashMap::new(),
        predictions: LivePredictions::default(),
        stores: Some(ListStores {
            epochs: store.clone(),
            usage: store.clone(),
            activities: store.clone(),
            changes: store.clone(),
        }),
        overrides: Arc::clone(&overrides),
        counter: Arc::new(WordCounter),
        clock: Arc::new(SystemClock),
    }));
    tokio::spawn(overrides.keep_watch(CancellationToken::new()));
    let scene = Setup {
        filter: Some(ListFilter::from_lists(Arc::clone(&lists))),
        search: Some("search_available_tools"),
        ..Setup::default()
    }
    .scene();
    scene.upstream.reply_to("initialize", WELCOME);
    set_catalog(&scene, &TOOLS);
    (scene, lists, store)
}

#[tokio::test(start_paused = true)]
async fn clients_are_notified_once_of_overrides() {
    let (scene, lists, store) = proxy_with_overrides();
    ask(&scene, HELLO).await;
    scene
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let answer = ask(&scene, &list(None)).await;
    assert!(names(&answer).contains(&"rare_1"));
    exclude(&store, &lists, "rare_1").await;
    for _ in 0..3 {
        scene.proxy.sweep(Instant::now());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(change_notifications(&scene).len(), 1);
    let answer = ask(&scene, &list(None)).await;
    assert!(!names(&answer).contains(&"rare_1"));
    scene.proxy.sweep(Instant::now());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(change_notifications(&scene).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn modern_clients_are_notified_on_acknowledged_streams() {
    let (scene, lists, store) = proxy_with_overrides();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    for id in [1, 2] {
        scene
            .send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{meta}}}}}"#))
            .await;
    }
    let agrees = [(1, "true"), (2, "false")];
    for (id, tools) in agrees {
        let said = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{{"toolsListChanged":{tools}}}}}}}"#
        );
        scene.upstream.send_to_client(&said, None).await;
    }
    let listing =
        format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{{{meta}}}}}"#);
    let answer = ask(&scene, &listing).await;
    assert!(names(&answer).contains(&"rare_1"), "{answer}");
    exclude(&store, &lists, "rare_1").await;
    scene.proxy.sweep(Instant::now());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let expected = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#;
    assert_eq!(change_notifications(&scene), [expected]);
    let answer = ask(&scene, &listing).await;
    assert!(!names(&answer).contains(&"rare_1"));
}
