//! Snapshots of the answers that riglm gives itself, as clients of each revision receive them.

use insta::{assert_json_snapshot, with_settings};
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::json_string;
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::kit::{proxy, server};
use riglm_tests::messages::{REVISIONS, call, initialize, request, request_with};
use riglm_tests::modern::{Meta, REVISION};
use riglm_tests::normalise::Masks;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::client_variant::{ClientSession, ClientVariant, NAME};

/// The tools of the server `docs`.
const TOOLS: &str = r#"[
    {"name": "read_page", "description": "Reads a page", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true}},
    {"name": "search_pages", "description": "Searches pages", "inputSchema": {"type": "object",
        "properties": {"query": {"type": "string"}}, "required": ["query"]},
        "annotations": {"readOnlyHint": true}},
    {"name": "write_page", "description": "Writes a page", "inputSchema": {"type": "object"}}
]"#;

/// All own tools, a hidden tool, and two safeguards that refuse calls.
const CONFIGURATION: &str = r#"
[filtering]
bans = ["search_pages"]
gate_writes = true
enforce = true

[search.encoder]
model = "none"

[recommend]
tools = true

[safeguards.long_results]
max_bytes = 1000

[[safeguards.limits.rules]]
tools = ["read_page"]
calls = 1
per = "1h"
"#;

/// A client of a proxy in front of two servers.
struct Scene {
    session: ClientSession,
    _listing: TempDir,
}

impl Scene {
    async fn start(revision: &'static str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let listing = folder.path().join("tools.json");
        std::fs::write(&listing, TOOLS).expect("the list can be written");
        let docs = server("docs").listing(&listing).argument("--era", "dual");
        let plain = server("plain").tools(1).argument("--era", "dual");
        let configuration = [CONFIGURATION, &docs.section(), &plain.section()].concat();
        let variant = ClientVariant {
            downstream: Transport::Streamable,
            revision,
            is_aggregated: true,
        };
        let upstream = Upstream::from_configuration();
        let session = variant
            .start_before(&upstream, &configuration, "prediction")
            .await;
        Self {
            session,
            _listing: folder,
        }
    }

    async fn ask(&self, id: &str, method: &str, params: &str) -> Value {
        masked(&self.session.ask(id, method, params).await.text)
    }

    async fn call(&self, id: &str, tool: &str, arguments: &str) -> Value {
        let params = format!(r#""name":{},"arguments":{arguments}"#, json_string(tool));
        self.ask(id, "tools/call", &params).await
    }
}

/// Returns a message without the values that differ between runs and releases. Numbers that no `f64`
/// has are rounded.
fn masked(message: &str) -> Value {
    let masks = Masks::of_a_run()
        .and(r#""version":"\d+\.\d+\.\d+""#, r#""version":"<version>""#)
        .and(r"Try again in \d+ s", "Try again in <n> s");
    let message = masks.apply(message);
    serde_json::from_str(&message).unwrap_or_else(|error| panic!("{error} in {message}"))
}

fn all_revisions() -> impl Iterator<Item = &'static str> {
    REVISIONS.into_iter().chain([REVISION])
}

/// Compares an answer with the snapshot of the running test for this revision.
macro_rules! assert_answer {
    ($revision:expr, $answer:expr) => {
        let answer = $answer;
        with_settings!({snapshot_suffix => $revision}, {
            assert_json_snapshot!(answer);
        });
    };
}

#[tokio::test]
async fn two_servers_are_presented_as_one() {
    for revision in all_revisions() {
        let scene = Scene::start(revision).await;
        let answer = if revision == REVISION {
            scene.ask("1", "server/discover", "").await
        } else {
            masked(&scene.session.line.client.answer("\"hello\"").await.text)
        };
        assert_answer!(revision, answer);
    }
}

#[tokio::test]
async fn lists_have_the_tools_of_both_servers_and_own_tools() {
    for revision in all_revisions() {
        let scene = Scene::start(revision).await;
        assert_answer!(revision, scene.ask("1", "tools/list", "").await);
    }
}

#[tokio::test]
async fn own_tools_give_documented_results() {
    for revision in all_revisions() {
        let scene = Scene::start(revision).await;
        scene.ask("0", "tools/list", "").await;
        let mut results = Map::new();
        for (id, tool, arguments) in [
            ("1", NAME, r#"{"query":"search pages","limit":2}"#),
            ("3", NAME, r#"{"query":"","limit":0}"#),
            ("4", "set_context", r#"{"query":"search pages"}"#),
            ("5", "recommend_tools", r#"{"query":"read a page"}"#),
            ("6", "recommend_tools", "{}"),
            ("7", "rate_tool", r#"{"tool":"docs__read_page","rating":9}"#),
            ("8", "read_more", r#"{"handle":"0"}"#),
            ("9", "call_tool", "{}"),
        ] {
            let called = format!("{id}: {tool} {arguments}");
            results.insert(called, scene.call(id, tool, arguments).await);
        }
        assert_answer!(revision, results);
    }
}

#[tokio::test]
async fn refused_calls_are_answered_with_the_reason() {
    for revision in all_revisions() {
        let scene = Scene::start(revision).await;
        scene.ask("0", "tools/list", "").await;
        let mut results = Map::new();
        for (id, tool, arguments) in [
            ("1", "docs__read_pages", "{}"),
            // Before any call: later the answer depends on how soon calls are stored.
            ("2", "set_context", r#"{"query":"look","intent":"read"}"#),
            ("3", "docs__read_page", "{}"),
            ("4", "docs__read_page", r#"{"lines":400}"#),
            ("5", "docs__write_page", "{}"),
        ] {
            let called = format!("{id}: {tool} {arguments}");
            results.insert(called, scene.call(id, tool, arguments).await);
        }
        let unknown = scene.ask("6", "odd/unknown", "").await;
        results.insert("6: odd/unknown".into(), unknown);
        assert_answer!(revision, results);
    }
}

#[tokio::test]
async fn subscriptions_are_acknowledged() {
    let scene = Scene::start(REVISION).await;
    let client = &scene.session.line.client;
    let filter = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["plain://plain/1"]}"#;
    client.send(&Meta::default().listen("1", filter)).await;
    let method = "notifications/subscriptions/acknowledged";
    let acknowledged = client.method_after(0, method, 1).await;
    assert_json_snapshot!(masked(&acknowledged[0].text));
}

/// The limits of a proxy that admits one session, and a server that cannot be reached.
const LIMITS: &str = r#"
[limits]
call_timeout = "3s"
sessions = 1

[upstreams.gone]
url = "http://127.0.0.1:9/mcp"
"#;

/// Sends a request with the id 7, and returns the HTTP status and the message.
async fn reply(client: &RawClient, text: &str) -> Value {
    reply_with(client, text, None).await
}

/// Like [`reply`], with other headers than those of the body.
async fn reply_with(
    client: &RawClient,
    text: &str,
    headers: Option<&[(&str, Option<&str>)]>,
) -> Value {
    let start = client.n_received();
    let delivery = match headers {
        Some(headers) => client.send_with(text, headers).await,
        None => client.send(text).await,
    };
    let message = if delivery.body.is_empty() {
        client.answer_after(start, "7").await.text
    } else {
        delivery.body
    };
    json!({"status": delivery.status, "message": masked(&message)})
}

#[tokio::test]
async fn errors_have_documented_codes() {
    let proxy = proxy().server(&server("odd")).configuration(LIMITS);
    let proxy = proxy.start().await;
    let client = proxy.client().connect().await;
    let mut errors = Map::new();
    for (what, text) in [
        ("a text that is no JSON", "{".to_owned()),
        ("no method", r#"{"jsonrpc":"2.0","id":7}"#.to_owned()),
        (
            "a method that one of the servers cannot be asked for",
            request("7", "odd/unknown"),
        ),
        (
            "an unknown cursor",
            request_with("7", "tools/list", r#"{"cursor":"made up"}"#),
        ),
        ("an unknown tool", call("7", "made_up", "{}")),
        ("an unreachable server", call("7", "gone__any", "{}")),
        ("a call that is not answered", call("7", "odd__hang", "{}")),
        (
            "an answer with deep nesting",
            call("7", "odd__nested", r#"{"levels":101}"#),
        ),
    ] {
        errors.insert(what.to_owned(), reply(&client, &text).await);
    }
    let hello = initialize("7", "2025-11-25");
    let second = proxy.riglm.client(Answers::default());
    errors.insert("too many sessions".into(), reply(&second, &hello).await);
    for (what, name, value) in [
        ("an unknown session", "mcp-session-id", "made-up"),
        ("a foreign origin", "origin", "http://evil.example"),
    ] {
        let client = proxy.riglm.client(Answers::default());
        client.set_header(name, value);
        let text = request("7", "tools/list");
        errors.insert(what.to_owned(), reply(&client, &text).await);
    }
    assert_json_snapshot!(errors);
}

#[tokio::test]
async fn errors_have_documented_codes_without_handshake() {
    let proxy = proxy().server(&server("odd")).configuration(LIMITS);
    let proxy = proxy.start().await;
    let client = RawClient::modern(&proxy.riglm.url);
    let meta = Meta::default();
    let list = meta.request("7", "tools/list", "");
    let read = meta.call("7", "odd__echo", r#"{"text":"t"}"#);
    let unknown_version = Meta {
        version: "2099-01-01".into(),
        ..Meta::default()
    };
    let mut errors = Map::new();
    for (what, text) in [
        (
            "a method that one of the servers cannot be asked for",
            meta.request("7", "odd/unknown", ""),
        ),
        (
            "an unknown cursor",
            meta.request("7", "tools/list", r#""cursor":"made up""#),
        ),
        ("an unknown tool", meta.call("7", "made_up", "{}")),
        ("an unreachable server", meta.call("7", "gone__any", "{}")),
        (
            "a call that is not answered",
            meta.call("7", "odd__hang", "{}"),
        ),
        (
            "an answer with deep nesting",
            meta.call("7", "odd__nested", r#"{"levels":101}"#),
        ),
        (
            "an unknown revision",
            unknown_version.request("7", "tools/list", ""),
        ),
    ] {
        errors.insert(what.to_owned(), reply(&client, &text).await);
    }
    for (what, text, headers) in [
        ("no method in the headers", &list, [("mcp-method", None)]),
        (
            "another tool in the headers",
            &read,
            [("mcp-name", Some("odd"))],
        ),
        (
            "another revision in the headers",
            &list,
            [("mcp-protocol-version", Some("2025-11-25"))],
        ),
    ] {
        let reply = reply_with(&client, text, Some(&headers)).await;
        errors.insert(what.to_owned(), reply);
    }
    assert_json_snapshot!(errors);
}
