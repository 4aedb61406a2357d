//! Searching for tools in front of several upstreams.

use std::sync::Arc;
use std::time::Duration;

use riglm_app::limits::Limits;
use riglm_app::proxy::NamespacePolicy;
use riglm_app::selection::ListFilter;
use riglm_domain::usage::invocation::ToolSource;
use riglm_domain::usage::record::Record;
use serde_json::{Value, json};

use crate::scene::HidingPolicy;

use super::scene::{Scene, Setup, lists, names, upstream};

const NAME: &str = "search_available_tools";

fn setup() -> Setup {
    Setup {
        filter: ListFilter::new(Some(Arc::new(HidingPolicy))),
        search: Some(NAME),
        ..Setup::default()
    }
}

async fn search(scene: &Scene, id: u32, query: &str) -> Value {
    let params = json!({"name": NAME, "arguments": {"query": query}});
    scene.ask(id, "tools/call", params).await
}

fn matches(answer: &Value) -> Vec<String> {
    let matches = answer["result"]["structuredContent"]["matches"].as_array();
    let matches = matches.unwrap_or_else(|| unreachable!("no matches: {answer}"));
    let names = matches.iter().map(|found| found["name"].as_str().unwrap());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn the_search_tool_ends_the_last_page() {
    let setup = Setup {
        limits: Limits {
            list_page_entries: 2,
            unite_timeout: Duration::from_millis(300),
            ..Limits::default()
        },
        ..setup()
    };
    let scene = setup.scene(vec![upstream("a", &["x", "y"]), upstream("b", &["z"])]);
    scene.initialize().await;
    let first = scene.ask(1, "tools/list", json!({})).await;
    assert_eq!(names(&first), ["a__x", "a__y"]);
    let cursor = &first["result"]["nextCursor"];
    let second = scene.ask(2, "tools/list", json!({"cursor": cursor})).await;
    assert_eq!(names(&second), ["b__z", NAME]);
    assert_eq!(second["result"].get("nextCursor"), None);
    let definition = &second["result"]["tools"][1];
    assert_eq!(definition["annotations"]["readOnlyHint"], true);
    assert_eq!(definition["outputSchema"]["type"], "object");
}

#[tokio::test]
async fn search_finds_hidden_tools_under_their_callable_names() {
    let scene = setup().scene(vec![
        upstream("a", &["hidden_event", "event"]),
        upstream("b", &["hidden_event"]),
    ]);
    scene.initialize().await;
    // Nothing has been listed so far.
    let answer = search(&scene, 1, "event").await;
    let all = ["a__event", "a__hidden_event", "b__hidden_event"];
    assert_eq!(matches(&answer), all);
    scene.upstreams[1].reply_to("tools/call", r#""result":{"content":[]}"#);
    let params = json!({"name": "b__hidden_event", "arguments": {}});
    scene.ask(2, "tools/call", params).await;
    let called = scene.sent_messages(1).pop().unwrap();
    assert_eq!(called["params"]["name"], "hidden_event");
    let records = scene.store.records().into_iter();
    let calls: Vec<_> = records
        .filter_map(|record| match record {
            Record::CallOpened(call) => Some((call.source, call.context.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [(ToolSource::Found, true)]);
    assert_eq!(
        names(&scene.ask(3, "tools/list", json!({})).await),
        ["a__event", NAME]
    );
}

#[tokio::test]
async fn search_covers_changed_lists() {
    let scene = setup().scene(vec![upstream("a", &["event"]), upstream("b", &[])]);
    scene.initialize().await;
    assert_eq!(
        matches(&search(&scene, 1, "event mail").await),
        ["a__event"]
    );
    lists(&scene.upstreams[1], &["mail"]);
    assert_eq!(
        matches(&search(&scene, 2, "event mail").await),
        ["a__event"]
    );
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    scene.upstreams[1].send_to_client(changed, None).await;
    let found = matches(&search(&scene, 3, "event mail").await);
    assert_eq!(found, ["a__event", "b__mail"]);
}

#[tokio::test]
async fn upstream_tools_precede_own_tools_of_the_same_name() {
    let setup = Setup {
        naming: NamespacePolicy::Collision,
        ..setup()
    };
    let scene = setup.scene(vec![upstream("a", &[NAME]), upstream("b", &["z"])]);
    scene.upstreams[0].reply_to("tools/call", r#""result":{"own":true}"#);
    scene.initialize().await;
    for id in [1, 3] {
        assert_eq!(search(&scene, id, "z").await["result"]["own"], true);
        assert_eq!(scene.tools(id + 1).await, [NAME, "z"]);
    }
}

#[tokio::test]
async fn a_modern_client_gets_a_complete_result() {
    let scene = setup().scene(vec![upstream("a", &["event"]), upstream("b", &[])]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": NAME, "arguments": {"query": "event"}, "_meta": meta});
    let answer = scene.ask(1, "tools/call", params).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(matches(&answer), ["a__event"]);
}

#[tokio::test]
async fn a_cancelled_search_is_not_answered() {
    let setup = Setup {
        limits: Limits::default(),
        ..setup()
    };
    let scene = setup.scene(vec![upstream("a", &[]), upstream("b", &[])]);
    scene.initialize().await;
    scene.upstreams[0].reply_to("tools/list", "");
    let params = json!({"name": NAME, "arguments": {"query": "event"}});
    scene
        .start(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
        .await;
    scene
        .sent_such(0, |sent| sent["method"] == "tools/list")
        .await;
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}});
    scene.send(&cancelled).await;
    while scene.client.finished_requests().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(
        scene
            .delivered_messages()
            .iter()
            .all(|(message, _)| message["id"] != 1)
    );
}
