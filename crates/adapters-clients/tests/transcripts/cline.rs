//! Cline.

use riglm_adapters_clients::transcripts::{CallingAgent, TranscriptClient, UnreadableReason};
use serde_json::{Value, json};

use crate::scene::Scene;

/// 2026-11-01T10:00:00Z.
const TEN: i64 = 1_793_527_200_000;

fn call(second: i64, id: &str, name: &str) -> Value {
    json!({"id": format!("m-{id}"), "role": "assistant", "ts": TEN + second * 1000,
           "content": [{"type": "tool_use", "id": id, "name": name, "input": {}}]})
}

fn result(second: i64, id: &str, content: &str, is_error: bool) -> Value {
    json!({"id": format!("r-{id}"), "role": "user", "ts": TEN + second * 1000, "content": [
        {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}]})
}

fn document(agent: &str, messages: &[Value]) -> String {
    json!({"version": 1, "sessionId": "k-1", "agent": agent, "messages": messages}).to_string()
}

#[test]
fn calls_and_messages_are_read() {
    let scene = Scene::empty().with_servers(&["my.docs", "shop"]);
    let text = r#"<user_input mode="act">Find the cart</user_input>"#;
    let of_user = json!({"id": "m-0", "role": "user", "ts": TEN,
        "content": [{"type": "text", "text": text}]});
    let refusal = r#"{"error":"Tool call shop__x was rejected before execution: unavailable"}"#;
    let lead = [
        of_user,
        call(1, "c1", "my_docs__find_page_0a1b2c3d"),
        result(2, "c1", r#"{"content":[]}"#, false),
        call(3, "c2", "shop__pay"),
        result(4, "c2", r#"{"content":[],"isError":true}"#, false),
        call(5, "c3", "shop__x"),
        result(5, "c3", refusal, true),
        call(6, "c4", "read_files"),
        result(7, "c4", "fine", false),
        json!({"id": "m-9", "role": "hologram", "content": []}),
        json!({"id": 7}),
    ];
    let folder = ".cline/data/sessions/k-1";
    scene.write(
        &format!("{folder}/k-1.messages.json"),
        document("lead", &lead),
    );
    scene.write(&format!("{folder}/k-1.json"), r#"{"cwd":"/home/dev/shop"}"#);
    let mate = [
        json!({"role": "user", "ts": TEN, "content": "Look closer"}),
        call(8, "c1", "shop__list"),
        result(9, "c1", "broken", true),
    ];
    scene.write(
        &format!("{folder}/mate.messages.json"),
        document("mate", &mate),
    );
    scene.write(
        ".cline/data/sessions/torn/torn.messages.json",
        "{\"sessionId\":",
    );
    let reading = scene.read();
    let mut calls = reading.calls();
    calls.sort();
    assert_eq!(
        calls,
        [
            "k-1 - read_files success 1000",
            "k-1 my.docs find_page success 1000",
            "k-1 shop list error 1000",
            "k-1 shop pay error 1000",
        ]
    );
    let counts = reading.counts(TranscriptClient::Cline);
    assert_eq!((counts.n_files, counts.n_lines), (3, 14));
    assert_eq!((counts.n_mcp_calls, counts.n_refused_calls), (3, 1));
    assert_eq!((counts.skipped.unknown, counts.skipped.malformed), (1, 1));
    assert_eq!(reading.messages()["k-1"], ["Find the cart"]);
    assert_eq!(reading.call("list").agent, CallingAgent::Subagent);
    let pay = reading.call("pay");
    assert_eq!(pay.project.as_deref(), Some("/home/dev/shop"));
    assert_eq!(pay.started_at.to_string(), "2026-11-01T10:00:03Z");
    let [torn] = &*reading.summary.unreadable else {
        panic!("{:?}", reading.summary.unreadable);
    };
    assert!(matches!(torn.reason, UnreadableReason::NotTranscript));
}
