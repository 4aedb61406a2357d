//! Search for tools in front of one upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_app::limits::Limits;
use riglm_app::proxy::ClientSession;
use riglm_app::tracking::{RecorderOptions, RecordingPolicy};
use riglm_domain::intent::context::ContextSource;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{Invocation, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_ports::fake::RecordingClient;
use serde_json::{Value, json};

use crate::scene::{HidingPolicy, Scene, Setup};

const NAME: &str = "search_available_tools";
const WELCOME: &str = r#""result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#;

fn setup() -> Setup {
    Setup {
        policy: Some(Arc::new(HidingPolicy)),
        search: Some(NAME),
        ..Setup::default()
    }
}

/// Returns a scene with an upstream that has these tools, and an initialized session.
async fn scene(setup: Setup, tools: &[&str]) -> Scene {
    let scene = setup.scene();
    scene.upstream.reply_to("initialize", WELCOME);
    lists(&scene, tools);
    send(&scene.session, HELLO).await;
    scene
}

fn lists(scene: &Scene, tools: &[&str]) {
    let tools: Vec<Value> = tools.iter().map(|name| json!({ "name": name })).collect();
    let result = json!({ "tools": tools });
    scene
        .upstream
        .reply_to("tools/list", &format!(r#""result":{result}"#));
}

/// Sends a message to a session and awaits its future.
async fn send(session: &Arc<ClientSession>, text: &str) {
    let message = Message::from_text(text.to_owned()).unwrap();
    if let Some(exchange) = session.receive(message).await.unwrap() {
        tokio::time::timeout(Duration::from_secs(10), exchange.run)
            .await
            .unwrap();
    }
}

fn search(id: u32, query: &str) -> String {
    let params = json!({"name": NAME, "arguments": {"query": query}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// Makes a request and returns its answer.
async fn ask(scene: &Scene, text: &str) -> Value {
    send(&scene.session, text).await;
    serde_json::from_str(&scene.last()).unwrap()
}

fn text_of(answer: &Value) -> String {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn n_lists_asked(scene: &Scene) -> usize {
    let sent = scene.upstream.sent_messages();
    let lists = sent.iter().filter(|(_, text)| text.contains("tools/list"));
    lists.count()
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
async fn searches_in_batches_are_answered_and_the_rest_forwarded() {
    let scene = scene(setup(), &["hidden_event"]).await;
    scene.upstream.reply_to("ping", r#""result":{}"#);
    let ping = r#"{"jsonrpc":"2.0","id":"p", "method":"ping"}"#;
    let batch = format!("[{},{ping}]", search(1, "event"));
    send(&scene.session, &batch).await;
    let sent = scene.upstream.sent_messages();
    assert!(sent.iter().any(|(_, text)| *text == format!("[{ping}]")));
    assert!(!sent.iter().any(|(_, text)| text.contains(NAME)));
    let answer: Value = serde_json::from_str(&scene.last()).unwrap();
    assert_eq!(answer["id"], 1);
    assert!(text_of(&answer).contains("hidden_event"));
}

#[tokio::test]
async fn searches_are_recorded_and_linked_to_later_calls() {
    let options = RecorderOptions {
        include_arguments: true,
        ..RecorderOptions::default()
    };
    let setup = Setup { options, ..setup() };
    let scene = scene(setup, &["hidden_event", "event"]).await;
    send(&scene.session, &search(1, "event token=abc")).await;
    for tool in ["hidden_event", "event"] {
        let call = search(2, "").replace(NAME, tool);
        scene.send(&call).await;
        let answer = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
        scene.upstream.send_to_client(answer, None).await;
    }
    let records = scene.store.records();
    let searches: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Searched(search) => Some(search),
            _ => None,
        })
        .collect();
    let contexts: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::ContextGiven(context) => Some(context),
            _ => None,
        })
        .collect();
    assert_eq!((searches.len(), contexts.len()), (1, 1));
    assert_eq!(searches[0].query.as_deref(), Some("event token=[redacted]"));
    assert_eq!(searches[0].results.len(), 2);
    assert_eq!(contexts[0].source, ContextSource::Search);
    assert_eq!(contexts[0].text_hash, searches[0].query_hash);
    let calls = calls(&scene);
    let sources: Vec<_> = calls.iter().map(|call| call.source).collect();
    assert_eq!(sources, [ToolSource::Found, ToolSource::Shown]);
    let context = Some(contexts[0].id);
    assert!(calls.iter().all(|call| call.context == context));
}

#[tokio::test]
async fn search_words_are_recorded_only_if_configured() {
    let scene_with = scene(setup(), &["event"]).await;
    send(&scene_with.session, &search(1, "event")).await;
    for record in scene_with.store.records() {
        match record {
            Record::Searched(search) => assert_eq!(search.query, None),
            Record::ContextGiven(context) => assert_eq!(context.text, None),
            _ => {}
        }
    }
    let options = RecorderOptions {
        policy: RecordingPolicy::Off,
        ..RecorderOptions::default()
    };
    let setup = Setup { options, ..setup() };
    let scene = scene(setup, &["event"]).await;
    let answer = ask(&scene, &search(1, "event")).await;
    assert!(text_of(&answer).contains("event"));
    let is_of_search =
        |record: &Record| matches!(record, Record::Searched(_) | Record::ContextGiven(_));
    assert!(!scene.store.records().iter().any(is_of_search));
}

#[tokio::test]
async fn lists_are_requested_again_only_after_a_change() {
    let scene = scene(setup(), &["event"]).await;
    for id in 1..=2 {
        let answer = ask(&scene, &search(id, "event")).await;
        assert!(text_of(&answer).contains("event"));
    }
    assert_eq!(n_lists_asked(&scene), 1);
    lists(&scene, &["mail"]);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    scene.upstream.send_to_client(changed, None).await;
    let answer = ask(&scene, &search(3, "mail event")).await;
    let text = text_of(&answer);
    assert!(text.contains("mail") && !text.contains("event"), "{text}");
    assert_eq!(n_lists_asked(&scene), 2);
}

#[tokio::test]
async fn pages_listed_by_the_client_are_not_requested_again() {
    let scene = scene(setup(), &[]).await;
    let page = |names: [&str; 1], next: &str| {
        let result = format!(r#""result":{{"tools":[{{"name":"{}"}}]{next}}}"#, names[0]);
        scene.upstream.reply_to("tools/list", &result);
    };
    page(["hidden_one"], r#","nextCursor":"\u00e9""#);
    let first = ask(
        &scene,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#,
    );
    assert_eq!(first.await["result"]["tools"], json!([]));
    page(["two"], "");
    let last = ask(
        &scene,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"é"}}"#,
    );
    let last = last.await;
    let tools = last["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 2, "{last}");
    assert_eq!(tools[1]["name"], NAME);
    let answer = ask(&scene, &search(3, "one two")).await;
    let text = text_of(&answer);
    assert!(
        text.contains("hidden_one") && text.contains("two"),
        "{text}"
    );
    assert!(!text.contains(NAME), "{text}");
    assert_eq!(n_lists_asked(&scene), 2);
}

#[tokio::test]
async fn a_search_does_not_find_tools_of_another_principal() {
    let scene = scene(setup(), &["alices_diary"]).await;
    let answer = ask(&scene, &search(1, "alices bobs diary")).await;
    assert!(text_of(&answer).contains("alices_diary"));
    lists(&scene, &["bobs_diary"]);
    let client = Arc::new(RecordingClient::default());
    let bob = Principal::from_name("bob");
    let session = scene.proxy.accept(Transport::Stdio, &bob, client.clone());
    let session = session.unwrap();
    send(&session, HELLO).await;
    send(&session, &search(1, "alices bobs diary")).await;
    let (text, _) = client.delivered_messages().pop().unwrap();
    assert!(
        text.contains("bobs_diary") && !text.contains("alices_diary"),
        "{text}"
    );
    let answer = ask(&scene, &search(2, "alices bobs diary")).await;
    assert!(!text_of(&answer).contains("bobs_diary"));
}

#[tokio::test]
async fn cancelled_searches_are_unanswered_and_cancel_their_list_request() {
    let scene = scene(setup(), &[]).await;
    // Gives no answer until the test sends one.
    scene.upstream.reply_to("tools/list", "");
    let message = Message::from_text(search(1, "event")).unwrap();
    let exchange = scene.session.receive(message).await.unwrap().unwrap();
    let running = tokio::spawn(exchange.run);
    while n_lists_asked(&scene) == 0 {
        tokio::task::yield_now().await;
    }
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    scene.send(cancel).await;
    running.await.unwrap();
    let taken_back = |(_, text): &(usize, String)| text.contains("notifications/cancelled");
    while !scene.upstream.sent_messages().iter().any(taken_back) {
        tokio::task::yield_now().await;
    }
    let sent = scene.upstream.sent_messages();
    let sent = sent.iter().filter(|sent| taken_back(sent));
    let ids: Vec<Value> = sent
        .map(|(_, text)| {
            serde_json::from_str::<Value>(text).unwrap()["params"]["requestId"].clone()
        })
        .collect();
    assert_eq!(ids, [json!("riglm:search:1")]);
    let n_delivered = scene.client.delivered_messages().len();
    let late = r#"{"jsonrpc":"2.0","id":"riglm:search:1","result":{"tools":[]}}"#;
    scene.upstream.send_to_client(late, None).await;
    assert_eq!(scene.client.delivered_messages().len(), n_delivered);
    // The slot and the id are free again.
    lists(&scene, &["event"]);
    let answer = ask(&scene, &search(1, "event")).await;
    assert!(text_of(&answer).contains("event"));
}

#[tokio::test]
async fn searches_count_as_requests_in_flight_with_a_deadline() {
    let limits = Limits {
        in_flight_per_session: 1,
        ..Limits::default()
    };
    let setup = Setup { limits, ..setup() };
    let scene = scene(setup, &[]).await;
    scene.upstream.reply_to("tools/list", "");
    let message = Message::from_text(search(1, "event")).unwrap();
    let exchange = scene.session.receive(message).await.unwrap().unwrap();
    let running = tokio::spawn(exchange.run);
    while n_lists_asked(&scene) == 0 {
        tokio::task::yield_now().await;
    }
    scene.send(&search(2, "event")).await;
    assert!(
        scene.last().contains("too many requests"),
        "{}",
        scene.last()
    );
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    running.await.unwrap();
    while !scene.last().contains(r#""id":1"#) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_batch_with_an_id_twice_is_refused_as_a_whole() {
    let scene = scene(setup(), &["event"]).await;
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let n_sent = scene.upstream.sent_messages().len();
    scene
        .send(&format!("[{},{ping}]", search(7, "event")))
        .await;
    assert!(
        scene.last().contains("already in flight"),
        "{}",
        scene.last()
    );
    assert_eq!(scene.upstream.sent_messages().len(), n_sent);
}

#[tokio::test]
async fn searches_time_out_while_waiting_for_lists() {
    let limits = Limits {
        call_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let setup = Setup { limits, ..setup() };
    let scene = scene(setup, &[]).await;
    scene.upstream.reply_to("tools/list", "");
    let message = Message::from_text(search(1, "event")).unwrap();
    let exchange = scene.session.receive(message).await.unwrap().unwrap();
    exchange.run.await;
    let answer = scene.last();
    assert!(answer.contains("request timed out"), "{answer}");
    scene.session.drain(Duration::from_secs(5)).await;
    let id_is_free = scene
        .session
        .receive(Message::from_text(search(1, "event")).unwrap());
    assert!(id_is_free.await.is_ok_and(|exchange| exchange.is_some()));
}

#[tokio::test]
async fn shutdown_waits_for_running_searches_and_refuses_new_ones() {
    let scene = scene(setup(), &[]).await;
    scene.upstream.reply_to("tools/list", "");
    let message = Message::from_text(search(1, "event")).unwrap();
    let exchange = scene.session.receive(message).await.unwrap().unwrap();
    tokio::spawn(exchange.run);
    while n_lists_asked(&scene) == 0 {
        tokio::task::yield_now().await;
    }
    let meanwhile = async {
        tokio::task::yield_now().await;
        scene.send(&search(2, "event")).await;
        let refused = scene.last();
        assert!(refused.contains("shutting down"), "{refused}");
        let answer =
            r#"{"jsonrpc":"2.0","id":"riglm:search:1","result":{"tools":[{"name":"event"}]}}"#;
        scene.upstream.send_to_client(answer, None).await;
    };
    tokio::join!(scene.proxy.shutdown(), meanwhile);
    let answer: Value = serde_json::from_str(&scene.last()).unwrap();
    assert_eq!(answer["id"], 1);
    assert!(text_of(&answer).contains("event"), "{answer}");
}

#[tokio::test]
async fn upstreams_without_tools_get_no_own_tools() {
    let scene = setup().scene();
    send(&scene.session, HELLO).await;
    lists(&scene, &[]);
    scene
        .upstream
        .reply_to("tools/call", r#""result":{"own":true}"#);
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(ask(&scene, list).await["result"]["tools"], json!([]));
    let answer = ask(&scene, &search(2, "event")).await;
    assert_eq!(answer["result"]["own"], true);
}

#[tokio::test]
async fn a_tool_of_the_upstream_keeps_its_name_listed_or_not() {
    let scene = scene(setup(), &[NAME]).await;
    scene
        .upstream
        .reply_to("tools/call", r#""result":{"own":true}"#);
    let answer = ask(&scene, &search(1, "event")).await;
    assert_eq!(answer["result"]["own"], true);
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    let listed = ask(&scene, list).await;
    assert_eq!(listed["result"]["tools"], json!([{ "name": NAME }]));
    let answer = ask(&scene, &search(3, "event")).await;
    assert_eq!(answer["result"]["own"], true);
    assert_eq!(calls(&scene).len(), 2);
}

#[tokio::test]
async fn search_answers_report_failing_upstreams() {
    let scene = scene(setup(), &[]).await;
    let refusal = r#""error":{"code":-32000,"message":"not now"}"#;
    scene.upstream.reply_to("tools/list", refusal);
    let answer = ask(&scene, &search(1, "event")).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(text_of(&answer).contains("-32000"), "{answer}");
}
