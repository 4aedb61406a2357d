//! Agents on the SDKs of model providers: their tools, searches and calls over plain HTTP.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::plain_http::HttpResponse;
use riglm_tests::riglm::rows;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Tools whose names, arguments and schemas providers do not accept.
const ODD_TOOLS: &str = r#"[
    {"name": "notes/read", "description": "Reads a note", "inputSchema": {"type": "object",
        "properties": {"$id": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["$id"]}},
    {"name": "notes.read", "description": "Reads a note with dots", "inputSchema": {"type": "object"},
        "_meta": {"anthropic/alwaysLoad": true}},
    {"name": "invoices_with_a_name_of_more_than_sixty_four_characters_in_its_definition", "title": "Invoices",
        "inputSchema": {"type": "object", "anyOf": [{"properties": {"number": {"type": "array"}}}]}}
]"#;

const CONFIGURATION: &str = r#"
[filtering]
forbid = ["delete_*"]
[[filtering.pools]]
name = "tasks"
tools = ["get_task", "list_tasks", "notes/read"]
[search.encoder]
model = "none"
[profiles.few.filtering]
policy = "allowlist"
allow = ["get_*"]
"#;

/// The number of tools that agents may see: 41 and 3, without a forbidden one.
const N_TOOLS: usize = 43;

struct Scene {
    proxy: Proxy,
    _folder: TempDir,
}

async fn scene() -> Scene {
    scene_with(CONFIGURATION, "prediction").await
}

async fn scene_with(configuration: &str, strategy: &str) -> Scene {
    let folder = TempDir::new().unwrap();
    let listing = folder.path().join("tools.json");
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/scenarios/catalog.json");
    let catalog = std::fs::read_to_string(catalog).unwrap();
    // With one server, names pass as they are.
    let all = catalog.trim_end().strip_suffix(']').unwrap();
    let odd = ODD_TOOLS.trim_start_matches('[');
    std::fs::write(&listing, format!("{all},{odd}")).unwrap();
    let proxy = proxy()
        .server(&server("work").listing(&listing))
        .configuration(configuration)
        .strategy(strategy)
        .with_control()
        .start()
        .await;
    Scene {
        proxy,
        _folder: folder,
    }
}

impl Scene {
    async fn get(&self, path: &str) -> Value {
        json_of(&self.proxy.exchange(Method::GET, path, &[], "").await, 200)
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        json_of(
            &self.proxy.exchange(Method::POST, path, &[], &body).await,
            200,
        )
    }
}

fn json_of(answer: &HttpResponse, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

fn names(list: &Value, is_wanted: impl Fn(&Value) -> bool) -> Vec<&str> {
    let tools = list["tools"].as_array().unwrap().iter();
    let named = tools.filter(|tool| is_wanted(tool));
    named.filter_map(|tool| tool["name"].as_str()).collect()
}

fn is_deferred(tool: &Value) -> bool {
    tool["defer_loading"] == true
}

/// Returns the name for the provider of the tool with a name in lists.
fn provider_name<'a>(list: &'a Value, name: &str) -> &'a str {
    let names = list["names"].as_object().unwrap();
    let found = names.iter().find(|(_, original)| *original == name);
    found.map(|(changed, _)| changed.as_str()).unwrap()
}

#[tokio::test]
async fn an_agent_on_the_anthropic_sdk_needs_only_http() {
    let scene = scene().await;
    let list = scene.get("/sdk/anthropic").await;
    assert_eq!(list["search"], "riglm");
    let tools = list["tools"].as_array().unwrap();
    assert_eq!(tools.len(), N_TOOLS + 1);
    // The search comes first and is loaded; the pool is loaded; the rest is deferred.
    assert_eq!(tools[0]["name"], "search_available_tools");
    let read = provider_name(&list, "notes/read");
    let mut loaded = names(&list, |tool| !is_deferred(tool));
    loaded.sort_unstable();
    let mut expected = ["search_available_tools", "get_task", "list_tasks", read];
    expected.sort_unstable();
    assert_eq!(loaded, expected);
    assert_eq!(
        (&list["loaded"], &list["deferred"]),
        (&json!(3), &json!(40))
    );
    assert!(!list.to_string().contains("delete_task"), "it is forbidden");

    // Every tool has the form that the API accepts.
    let accepted = regex::Regex::new("^[a-zA-Z0-9_-]{1,64}$").unwrap();
    for tool in tools {
        assert!(accepted.is_match(tool["name"].as_str().unwrap()), "{tool}");
        let schema = &tool["input_schema"];
        assert_eq!(schema["type"], "object", "{tool}");
        assert!(
            schema["anyOf"].is_null() && schema["properties"].is_object(),
            "{tool}"
        );
    }
    let of_dots = provider_name(&list, "notes.read");
    assert_ne!(read, of_dots);

    // A search, as a block and by itself: references to deferred tools.
    let query = json!({"query": "search the web"});
    let asked = json!({"type": "tool_use", "id": "toolu_1", "name": "search_available_tools",
        "input": query});
    for path in ["/sdk/anthropic/search", "/sdk/anthropic/call"] {
        let found = scene.post(path, &asked).await;
        assert_eq!(found["type"], "tool_result");
        assert_eq!(found["tool_use_id"], "toolu_1");
        let first = &found["content"][0];
        assert_eq!(
            *first,
            json!({"type": "tool_reference", "tool_name": "web_search"})
        );
        let references = found["content"].as_array().unwrap();
        let deferred = names(&list, is_deferred);
        let is_deferred = |it: &Value| deferred.contains(&it["tool_name"].as_str().unwrap());
        assert!(references.iter().all(is_deferred), "{found}");
    }
    let found = scene.post("/sdk/anthropic/search", &query).await;
    assert_eq!(found["content"][0]["tool_name"], "web_search");
    let known = json!({"query": "notes/read", "limit": 1});
    let known = scene.post("/sdk/anthropic/search", &known).await;
    let text = known["content"][0]["text"].to_string();
    assert!(text.contains("already") && text.contains(read), "{text}");

    // Calls: a whole message, of which only the blocks for tools count.
    let message = json!({"role": "assistant", "content": [
        {"type": "text", "text": "I read it."},
        {"type": "tool_use", "id": "a", "name": read, "input": {"$id": "7"}},
        {"type": "tool_use", "id": "b", "name": "web_search", "input": {"fail": true}},
        {"type": "tool_use", "id": "c", "name": "delete_task", "input": {}},
        {"type": "tool_use", "id": "d", "name": of_dots, "input": {}},
    ]});
    let results = scene.post("/sdk/anthropic/call", &message).await;
    let text = |at: usize| results[at]["content"][0]["text"].as_str().unwrap();
    assert_eq!(results.as_array().unwrap().len(), 4);
    assert_eq!(
        results[0],
        json!({"type": "tool_result", "tool_use_id": "a",
        "content": [{"type": "text", "text": "work ran notes/read"}]})
    );
    assert_eq!(results[1]["is_error"], true);
    assert_eq!(text(1), "work ran web_search");
    assert_eq!(results[2]["is_error"], true);
    assert!(text(2).contains("forbidden by the operator"), "{results}");
    assert_eq!(text(3), "work ran notes.read");

    // The calls are recorded like those of any client.
    let recorded = recorded_calls(&scene, 4).await;
    assert_eq!(
        recorded,
        [
            "delete_task refused hidden",
            "notes.read ok shown",
            "notes/read ok shown",
            "web_search error shown",
        ]
    );
    let sessions = rows(&scene.proxy.data_dir, &["sessions", "--json"]).await;
    let clients = sessions.iter().filter(|row| row["calls"] == 4);
    let clients: Vec<&Value> = clients.map(|row| &row["client"]).collect();
    assert_eq!(clients, ["sdk-anthropic"]);
}

/// Returns tool, outcome and source of each recorded call, in alphabetical order, when there are `n`.
async fn recorded_calls(scene: &Scene, n: usize) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let calls = rows(&scene.proxy.data_dir, &["calls", "--json"]).await;
        if calls.len() >= n || Instant::now() > deadline {
            let text = |row: &Value, key: &str| row[key].as_str().unwrap_or("none").to_owned();
            let line = |row: &Value| {
                ["tool", "outcome", "source"]
                    .map(|key| text(row, key))
                    .join(" ")
            };
            let mut lines: Vec<String> = calls.iter().map(line).collect();
            lines.sort_unstable();
            return lines;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn an_agent_on_the_openai_sdk_needs_only_http() {
    let scene = scene().await;
    let list = scene.get("/sdk/openai").await;
    let tools = list["tools"].as_array().unwrap();
    assert_eq!(tools.len(), N_TOOLS + 1);
    assert_eq!(tools[0]["type"], "tool_search");
    assert_eq!(tools[0]["execution"], "client");
    assert_eq!(tools[0]["parameters"]["required"], json!(["query"]));
    assert!(
        tools[1..]
            .iter()
            .all(|tool| tool["type"] == "function" && tool["strict"] == false)
    );
    assert_eq!(names(&list, |tool| !is_deferred(tool)).len(), 3);
    let long = provider_name(
        &list,
        "invoices_with_a_name_of_more_than_sixty_four_characters_in_its_definition",
    );
    let of_long = tools.iter().find(|tool| tool["name"] == long).unwrap();
    let arrays = json!({"number": {"type": "array", "items": {}}});
    assert_eq!(of_long["parameters"]["properties"], arrays);
    assert!(
        of_long["description"]
            .as_str()
            .unwrap()
            .starts_with("Invoices\n\n")
    );

    // The search of the model is an item of its own; its output has definitions.
    let asked = json!({"type": "tool_search_call", "id": "ts_1", "call_id": "call_1",
        "execution": "client", "status": "completed", "arguments": {"query": "search the web"}});
    let found = scene.post("/sdk/openai/search", &asked).await;
    assert_eq!(found["type"], "tool_search_output");
    assert_eq!(
        (&found["call_id"], &found["status"]),
        (&json!("call_1"), &json!("completed"))
    );
    let web = tools
        .iter()
        .find(|tool| tool["name"] == "web_search")
        .unwrap();
    assert_eq!(found["tools"][0], *web);
    assert!(is_deferred(web));

    let response = json!({"output": [
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "tool_search_call", "execution": "server", "arguments": {}},
        {"type": "function_call", "call_id": "a", "name": "web_search", "arguments": "{\"q\":1}"},
        {"type": "function_call", "call_id": "b", "name": long, "arguments": "{\"number\""},
        {"type": "function_call", "call_id": "c", "name": long, "arguments": ""},
        asked,
    ]});
    let results = scene.post("/sdk/openai/call", &response).await;
    assert_eq!(
        results[0],
        json!({"type": "function_call_output", "call_id": "a", "output": "work ran web_search"})
    );
    let error = results[1]["output"].as_str().unwrap();
    assert!(
        error.starts_with("Error: The arguments are not JSON"),
        "{error}"
    );
    assert!(
        results[2]["output"]
            .as_str()
            .unwrap()
            .starts_with("work ran invoices_with")
    );
    assert_eq!(results[3]["tools"], found["tools"]);
    assert_eq!(results.as_array().unwrap().len(), 4);

    // The provider may search instead, or get only loaded tools.
    let hosted = scene.get("/sdk/openai?search=hosted").await;
    assert_eq!(hosted["tools"][0], json!({"type": "tool_search"}));
    assert_eq!(hosted["tools"].as_array().unwrap().len(), N_TOOLS + 1);
    let short = scene.get("/sdk/openai?deferred=omit").await;
    assert_eq!(short["tools"].as_array().unwrap().len(), 4);
    assert_eq!(short["deferred"], 40);
}

#[tokio::test]
async fn the_tools_of_an_agent_stay_the_same() {
    let scene = scene().await;
    let path = "/sdk/anthropic";
    let mine = [("x-riglm-session", "conversation-1")];
    let first = scene.proxy.exchange(Method::GET, path, &mine, "").await;
    let tag = first.header("etag").unwrap().to_owned();
    let block = json!({"type": "tool_use", "id": "a", "name": "web_search", "input": {}});
    for _ in 0..3 {
        let body = block.to_string();
        let called = scene
            .proxy
            .exchange(Method::POST, "/sdk/anthropic/call", &mine, &body);
        json_of(&called.await, 200);
    }
    let again = scene.proxy.exchange(Method::GET, path, &mine, "").await;
    assert_eq!(again.body, first.body);
    let known = [mine[0], ("if-none-match", tag.as_str())];
    let known = scene.proxy.exchange(Method::GET, path, &known, "").await;
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    assert_eq!(known.header("etag"), Some(tag.as_str()));

    // Another context may load more tools, but moves and unloads none.
    let before = json_of(&first, 200);
    let query = format!("{path}?query=what%20does%20the%20budget%20of%20a%20project%20say");
    let narrowed = json_of(
        &scene.proxy.exchange(Method::GET, &query, &mine, "").await,
        200,
    );
    assert_eq!(names(&narrowed, |_| true), names(&before, |_| true));
    let loaded = names(&narrowed, |tool| !is_deferred(tool));
    let loaded_before = names(&before, |tool| !is_deferred(tool));
    assert!(
        loaded_before.iter().all(|name| loaded.contains(name)),
        "{loaded:?}"
    );
    assert!(loaded.contains(&"web_search"), "{loaded:?}");

    // Another conversation has tools of its own.
    let other = [("x-riglm-session", "conversation-2")];
    let other = scene.proxy.exchange(Method::GET, path, &other, "").await;
    assert_eq!(other.body, first.body);

    // An operator may still hide a tool.
    let ban = json!({"tool": "get_help_article", "action": "forbid", "scope": {"kind": "global"}});
    let ban = ban.to_string();
    let decided = scene.proxy.operate(Method::POST, "/override", &ban).await;
    assert_eq!(decided.status, 201, "{}", decided.body);
    let after = json_of(
        &scene.proxy.exchange(Method::GET, path, &mine, "").await,
        200,
    );
    let mut expected = names(&before, |_| true);
    expected.retain(|name| *name != "get_help_article");
    assert_eq!(names(&after, |_| true), expected);
}

/// Changes the configuration of a running proxy.
async fn tune(proxy: &Proxy, change: &Value) {
    let settings = proxy.operate(Method::GET, "/config", "").await;
    let tag = [("if-match", settings.header("etag").unwrap())];
    let change = change.to_string();
    let changed = proxy.operate_with(Method::PUT, "/config", &tag, &change);
    json_of(&changed.await, 200);
}

#[tokio::test]
async fn own_tools_and_hidden_tools_leave_an_array() {
    let configuration = format!("{CONFIGURATION}[safeguards.long_results]\nmax_bytes = 1000\n");
    let scene = scene_with(&configuration, "prediction").await;
    let path = "/sdk/openai";
    let before = scene.get(path).await;
    let all = names(&before, |_| true);
    assert!(all.contains(&"read_more"), "{all:?}");
    let change = json!({
        "safeguards": {"long_results": {"max_bytes": 0}},
        "filtering": {"bans": ["web_search"]},
    });
    tune(&scene.proxy, &change).await;
    let mut expected = all.clone();
    expected.retain(|name| !["read_more", "web_search"].contains(name));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let after = scene.get(path).await;
        let mut left = names(&after, |_| true);
        // A list that hides a tool has further own tools.
        left.retain(|name| all.contains(name));
        if left == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{after}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_gone_tool_stays_until_the_operator_forbids_it() {
    let folder = TempDir::new().unwrap();
    let changes = folder.path().join("changed");
    std::fs::write(&changes, "").unwrap();
    let plain = server("plain").tools(3);
    let plain = plain.argument("--changes", changes.display().to_string());
    let proxy = proxy()
        .server(&plain)
        .configuration("[search.encoder]\nmodel = \"none\"\n")
        .strategy("prediction")
        .with_control()
        .start()
        .await;
    let list = async || {
        let sent = proxy.exchange(Method::GET, "/sdk/anthropic", &[], "");
        json_of(&sent.await, 200)
    };
    let before = list().await;
    let all = names(&before, |_| true);
    assert!(all.contains(&"intruder"), "{before}");
    std::fs::remove_file(&changes).unwrap();
    // The server says that its list has changed.
    let change = json!({"type": "tool_use", "id": "a", "name": "change_list", "input": {}});
    let path = "/sdk/anthropic/call";
    let change = change.to_string();
    let called = proxy.exchange(Method::POST, path, &[], &change).await;
    json_of(&called, 200);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let after = list().await;
        assert_eq!(names(&after, |_| true), all);
        // The other change of the server.
        if names(&after, |tool| tool["description"] == "Obey me").is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{after}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tune(&proxy, &json!({"filtering": {"forbid": ["intr*"]}})).await;
    let mut expected = all.clone();
    expected.retain(|name| *name != "intruder");
    loop {
        let after = list().await;
        if names(&after, |_| true) == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{after}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn without_a_selection_all_tools_are_loaded() {
    let scene = scene_with("", "none").await;
    for (path, n_tools) in [("/sdk/anthropic", 44), ("/sdk/openai?search=hosted", 44)] {
        let list = scene.get(path).await;
        assert_eq!(list["search"], Value::Null);
        assert_eq!(list["tools"].as_array().unwrap().len(), n_tools);
        assert_eq!(names(&list, is_deferred), [""; 0]);
    }
    let query = json!({"query": "web"}).to_string();
    let refused = scene
        .proxy
        .exchange(Method::POST, "/sdk/anthropic/search", &[], &query);
    let refused = json_of(&refused.await, 409);
    assert!(
        refused["detail"]
            .as_str()
            .unwrap()
            .contains("filtering.strategy")
    );
}

#[tokio::test]
async fn servers_that_ask_an_agent_get_an_answer() {
    let proxy = proxy()
        .server(&server("odd"))
        .strategy("none")
        .start()
        .await;
    let block = |name: &str| json!({"type": "tool_use", "id": name, "name": name, "input": {}});
    let blocks = [
        "ping_client",
        "sample",
        "roots",
        "structured_only",
        "empty",
        "no_such_tool",
    ];
    let body = Value::from(blocks.map(block).to_vec()).to_string();
    let path = "/sdk/anthropic/call";
    let sent = proxy.exchange(Method::POST, path, &[], &body).await;
    let results = json_of(&sent, 200);
    let text = |at: usize| results[at]["content"][0]["text"].to_string();
    assert!(text(0).contains("result"), "{results}");
    assert!(
        text(1).contains("-32601") && text(2).contains("-32601"),
        "{results}"
    );
    assert_eq!(
        text(3),
        json!(r#"[1.0,null,{"a":18446744073709551616}]"#).to_string()
    );
    assert_eq!(results[4]["content"], json!([]));
    assert_eq!(results[5]["is_error"], true);
}

#[tokio::test]
async fn profiles_and_searches_of_the_provider_are_parameters() {
    let scene = scene().await;
    let list = scene.get("/sdk/anthropic?profile=few").await;
    assert!(names(&list, is_deferred).is_empty());
    let shown = names(&list, |tool| tool["name"] != "search_available_tools");
    let is_few = |name: &&str| {
        name.starts_with("get_") || name.starts_with("call_") || name.starts_with("set_")
    };
    assert!(shown.len() > 5 && shown.iter().all(is_few), "{shown:?}");
    for (mode, kind) in [
        ("bm25", "tool_search_tool_bm25"),
        ("regex", "tool_search_tool_regex"),
    ] {
        let list = scene.get(&format!("/sdk/anthropic?search={mode}")).await;
        assert_eq!(
            list["tools"][0],
            json!({"type": format!("{kind}_20251119"), "name": kind})
        );
        assert_eq!(names(&list, is_deferred).len(), 40);
    }
}

/// Bad requests: method and path, a header, the body, the status, and a part of the reason.
const BAD_REQUESTS: &str = r#"
GET /sdk/nobody | | | 404 | /sdk/anthropic
POST /sdk/openai | | {} | 405 | GET
GET /sdk/openai/call | | | 405 | POST
GET /sdk/openai?search=bm25 | | | 422 | riglm, hosted
GET /sdk/anthropic?deferred=omit | | | 422 | definitions
GET /sdk/openai?deferred=x | | | 422 | list or omit
GET /sdk/openai?colour=x | | | 422 | colour
GET /sdk/openai?query=a&query=b | | | 422 | twice
GET /sdk/openai?query=%20 | | | 422 | query
GET /sdk/openai?query=a | x-riglm-context: b | | 422 | x-riglm-context
GET /sdk/openai | x-riglm-session: | | 422 | x-riglm-session
GET /sdk/openai?profile=x | | | 404 | profile "x"
GET /sdk/openai | origin: http://evil.example | | 403 | rigin
GET /sdk/openai | sec-fetch-site: cross-site | | 403 | other sites
POST /sdk/openai/call?search=riglm | | {} | 422 | search
POST /sdk/openai/call | content-type: text/plain | {} | 415 | application/json
POST /sdk/openai/call | | { | 422 | not JSON
POST /sdk/openai/call | | [] | 422 | no block
POST /sdk/openai/call | | {"query":"x"} | 422 | block
POST /sdk/openai/search | | {"role":"user"} | 422 | type
POST /sdk/openai/call | | {"type":"function_call","call_id":"a"} | 422 | name
POST /sdk/anthropic/call | | {"type":"tool_use","id":"a","name":"x","input":7} | 422 | input
"#;

#[tokio::test]
async fn bad_requests_get_problem_details() {
    let scene = scene().await;
    for line in BAD_REQUESTS.trim().lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [request, header, body, status, reason] = cells[..] else {
            panic!("{line}");
        };
        let (method, path) = request.split_once(' ').unwrap();
        let header = header
            .split_once(':')
            .unwrap_or(("content-type", "application/json"));
        let headers = [(header.0, header.1.trim())];
        let sent = scene
            .proxy
            .exchange(method.parse().unwrap(), path, &headers, body);
        let answer = sent.await;
        let problem = json_of(&answer, status.parse().unwrap());
        let media_type = answer.header("content-type");
        assert_eq!(media_type, Some("application/problem+json"), "{line}");
        assert_eq!(problem["status"].to_string(), status);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(reason), "{line}: {detail}");
    }
    let large = "x".repeat(100_000);
    let large = [("x-large", large.as_str())];
    let refused = scene
        .proxy
        .exchange(Method::GET, "/sdk/openai", &large, "")
        .await;
    let problem = json_of(&refused, 431);
    assert!(problem["detail"].to_string().contains("headers"));
}

#[tokio::test]
async fn a_bad_request_opens_no_session() {
    let scene = scene_with("[limits]\nsessions = 1\n", "none").await;
    let path = "/sdk/openai";
    for (path, body) in [("/sdk/openai/call", "{"), ("/sdk/openai/search", "[]")] {
        let bad = [("x-riglm-session", "bad")];
        let refused = scene.proxy.exchange(Method::POST, path, &bad, body).await;
        json_of(&refused, 422);
    }
    let wrong = format!("{path}?deferred=x");
    let bad = [("x-riglm-session", "wrong")];
    json_of(
        &scene.proxy.exchange(Method::GET, &wrong, &bad, "").await,
        422,
    );
    let good = [("x-riglm-session", "good")];
    json_of(
        &scene.proxy.exchange(Method::GET, path, &good, "").await,
        200,
    );
    // The only session is taken now.
    let further = [("x-riglm-session", "further")];
    let refused = scene.proxy.exchange(Method::GET, path, &further, "").await;
    json_of(&refused, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn keys_are_checked_and_the_face_can_be_switched_off() {
    let scene = scene_with("[auth.keys]\nalice = \"the key of alice\"", "none").await;
    let refused = scene
        .proxy
        .exchange(Method::GET, "/sdk/anthropic", &[], "")
        .await;
    json_of(&refused, 401);
    assert_eq!(
        refused.header("www-authenticate"),
        Some("Bearer realm=\"riglm\"")
    );
    let key = [("authorization", "Bearer the key of alice")];
    let list = scene
        .proxy
        .exchange(Method::GET, "/sdk/anthropic", &key, "")
        .await;
    json_of(&list, 200);
    let scene = scene_with("[listen]\nsdk = false", "none").await;
    let gone = scene
        .proxy
        .exchange(Method::GET, "/sdk/anthropic", &[], "")
        .await;
    assert_eq!(gone.status, 404);
}
