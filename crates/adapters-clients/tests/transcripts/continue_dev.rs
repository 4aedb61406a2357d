//! Continue.

use riglm_adapters_clients::transcripts::{TranscriptClient, UnreadableReason};
use serde_json::{Value, json};

use crate::scene::Scene;

fn state(id: &str, name: &str, status: &str, output: &str) -> Value {
    json!({"toolCallId": id, "status": status, "parsedArgs": {},
        "toolCall": {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}},
        "output": [{"content": output, "name": "Tool Result", "description": ""}]})
}

#[test]
fn calls_and_messages_are_read() {
    let scene = Scene::empty().with_servers(&["my docs"]);
    let mut of_editor = state("c5", "my_docs_find_page", "done", "");
    of_editor["tool"] = json!({"uri": "mcp://my docs/find_page", "group": "my docs",
        "originalFunctionName": "find_page"});
    let mut of_client = state("c6", "read_file", "done", "");
    of_client["tool"] = json!({"group": "Built-In"});
    let states = [
        state("c1", "pay", "done", "[]"),
        state("c2", "ship", "errored", "no"),
        state("c3", "not_there", "errored", "Tool not_there not found"),
        state("c4", "Bash", "canceled", "Permission denied by user"),
        of_editor,
        of_client,
        state("c7", "pay", "calling", ""),
    ];
    let document = json!({"sessionId": "n-1", "title": "t", "workspaceDirectory": "/home/dev/shop",
    "history": [
        {"message": {"role": "user", "content": "Find the cart"}, "contextItems": []},
        {"message": {"role": "assistant", "content": ""}, "toolCallStates": states},
        {"message": {"role": "user", "content": [{"type": "text", "text": "And pay"}]}},
        {"message": {"role": "hologram"}},
        {"message": 7},
    ]});
    scene.write(".continue/sessions/n-1.json", document.to_string());
    scene.write(
        ".continue/sessions/sessions.json",
        r#"[{"sessionId":"n-1"}]"#,
    );
    scene.write(".continue/sessions/torn.json", "{\"sess");
    let reading = scene.read();
    assert_eq!(
        reading.calls(),
        [
            "n-1 - pay success -",
            "n-1 - ship error -",
            "n-1 - Bash cancelled -",
            "n-1 my docs find_page success -",
            "n-1 - read_file success -",
            "n-1 - pay unknown -",
        ]
    );
    let counts = reading.counts(TranscriptClient::Continue);
    assert_eq!(
        (counts.n_files, counts.n_lines, counts.n_refused_calls),
        (2, 5, 1)
    );
    assert_eq!((counts.skipped.unknown, counts.skipped.malformed), (1, 1));
    assert_eq!(reading.messages()["n-1"], ["Find the cart", "And pay"]);
    let project = reading.call("find_page").project.as_deref();
    assert_eq!(project, Some("/home/dev/shop"));
    let [torn] = &*reading.summary.unreadable else {
        panic!("{:?}", reading.summary.unreadable);
    };
    assert!(matches!(torn.reason, UnreadableReason::NotTranscript));
}
