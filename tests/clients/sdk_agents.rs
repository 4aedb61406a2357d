//! The example agents on the SDKs of model providers: each runs against a stub of its provider,
//! which replays constructed responses and keeps the requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::routing::post;
use http::StatusCode;
use parking_lot::Mutex;
use riglm_tests::fixture::{clients_dir, npm_package};
use riglm_tests::kit::{Proxy, proxy, server};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{SESSION, node_22, output};

const CONFIGURATION: &str = r#"
[[filtering.pools]]
name = "tasks"
tools = ["get_task", "list_tasks"]
[search.encoder]
model = "none"
[auth.keys]
agent = "the key of the agent"
"#;

/// A provider whose model says what a script has.
struct StubProvider {
    url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

struct Script {
    responses: Vec<Value>,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl StubProvider {
    async fn start(script: &str) -> Self {
        let file = examples().join("../tests/clients/providers").join(script);
        let text = std::fs::read_to_string(file).expect("the script can be read");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let script = Script {
            responses: serde_json::from_str(&text).expect("the script is JSON"),
            requests: Arc::clone(&requests),
        };
        let router = axum::Router::new()
            .route("/v1/messages", post(respond))
            .route("/v1/responses", post(respond))
            .with_state(Arc::new(script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("the port is bound");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            url: format!("http://{address}"),
            requests,
        }
    }

    fn requests(&self) -> Vec<Value> {
        self.requests.lock().clone()
    }
}

/// Returns the next response. A request that the real provider would refuse gets 400.
async fn respond(
    State(script): State<Arc<Script>>,
    Json(request): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let problem = problem_of(&request);
    let mut requests = script.requests.lock();
    let response = script.responses.get(requests.len()).cloned();
    requests.push(request);
    match (problem, response) {
        (None, Some(response)) => (StatusCode::OK, Json(response)),
        (problem, _) => {
            let message = problem.unwrap_or_else(|| "the script is over".into());
            let error = json!({"type": "error", "error":
                {"type": "invalid_request_error", "message": message}});
            (StatusCode::BAD_REQUEST, Json(error))
        }
    }
}

/// Returns the reason why a provider would refuse a request: by the rules for names, for the tools
/// that stay loaded, and for references to tools.
fn problem_of(request: &Value) -> Option<String> {
    let tools = request["tools"].as_array()?;
    let is_deferred = |tool: &&Value| tool["defer_loading"] == true;
    if tools.iter().all(|tool| is_deferred(&tool)) {
        return Some("at least one tool must not be deferred".into());
    }
    let is_accepted = |name: &str| {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (1..=64).contains(&name.len()) && name.chars().all(is_fine)
    };
    let named = tools.iter().filter_map(|tool| tool["name"].as_str());
    if let Some(name) = named.clone().find(|name| !is_accepted(name)) {
        return Some(format!("the name {name:?} is not accepted"));
    }
    let deferred: Vec<&str> = tools
        .iter()
        .filter(is_deferred)
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let references = values_named(&request["messages"], "tool_name");
    let unknown = references
        .iter()
        .find(|name| !deferred.contains(&name.as_str()));
    unknown.map(|name| format!("tool reference {name:?} has no deferred definition"))
}

/// Returns the texts of all members with a name.
fn values_named(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(|it| values_named(it, name)).collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(key, value)| match value.as_str() {
                Some(text) if key == name => vec![text.to_owned()],
                _ => values_named(value, name),
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

async fn start_proxy() -> Proxy {
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/scenarios/catalog.json");
    proxy()
        .server(&server("work").listing(&catalog))
        .server(&server("plain").tools(2))
        .configuration(CONFIGURATION)
        .strategy("prediction")
        .start()
        .await
}

fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(examples().join("sdk-python").join(script))
        .env("PYTHONPATH", clients_dir().join("python"));
    command
}

fn typescript(script: &str) -> Command {
    let mut command = Command::new(node_22());
    // Modules are searched beside a script, so the script lies where the packages are.
    let folder = clients_dir().join("sdk-agents");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    for file in ["riglm.ts", script] {
        let source = examples().join("sdk-typescript").join(file);
        let text = std::fs::read(source).expect("the example can be read");
        let copy = folder.join(file);
        // Two tests run at the same time, and no script may be half written.
        let draft = folder.join(format!("{script}-{file}"));
        std::fs::write(&draft, text).expect("the example can be written");
        std::fs::rename(&draft, copy).expect("the example can be moved");
    }
    command
        .arg(npm_package("tsx").join("dist/cli.mjs"))
        .arg(folder.join(script));
    command
}

/// Runs an agent to its end and returns the requests of its SDK.
async fn run(mut command: Command, script: &str) -> Vec<Value> {
    let proxy = start_proxy().await;
    let stub = StubProvider::start(script).await;
    let url = proxy.riglm.at("/").to_string();
    command
        .arg("find out what riglm is")
        .env("RIGLM_URL", url)
        .env("RIGLM_KEY", "the key of the agent")
        .env("ANTHROPIC_API_KEY", "a key")
        .env("ANTHROPIC_BASE_URL", &stub.url)
        .env("OPENAI_API_KEY", "a key")
        .env("OPENAI_BASE_URL", format!("{}/v1", stub.url));
    assert_eq!(output(command, SESSION).await.trim(), "It is all done.");
    let requests = stub.requests();
    assert_eq!(requests.len(), 3);
    // The tools are the same for the whole conversation, so the prompt cache holds.
    assert!(
        requests
            .iter()
            .all(|it| it["tools"] == requests[0]["tools"])
    );
    requests
}

/// Returns whether a tool of a request is deferred; `None` without the tool.
fn is_deferred(request: &Value, name: &str) -> Option<bool> {
    let tools = request["tools"].as_array()?;
    let tool = tools.iter().find(|tool| tool["name"] == name)?;
    Some(tool["defer_loading"] == true)
}

async fn assert_anthropic(command: Command) {
    let requests = run(command, "anthropic.json").await;
    let first = &requests[0];
    assert_eq!(is_deferred(first, "search_available_tools"), Some(false));
    assert_eq!(is_deferred(first, "work__get_task"), Some(false));
    assert_eq!(is_deferred(first, "work__web_search"), Some(true));
    let found = &requests[1]["messages"][2]["content"][0];
    assert_eq!(found["tool_use_id"], "toolu_01");
    let web = json!({"type": "tool_reference", "tool_name": "work__web_search"});
    assert_eq!(found["content"][0], web);
    let results = requests[2]["messages"][4]["content"].as_array();
    let results = results.expect("the results of the calls are an array");
    let ids: Vec<&Value> = results.iter().map(|it| &it["tool_use_id"]).collect();
    assert_eq!(ids, ["toolu_02", "toolu_03"]);
    let text = json!([{"type": "text", "text": "work ran web_search"}]);
    assert_eq!(results[0]["content"], text);
    assert_eq!(results[1]["is_error"], true);
}

async fn assert_openai(command: Command) {
    let requests = run(command, "openai.json").await;
    let first = &requests[0];
    assert_eq!(first["tools"][0]["type"], "tool_search");
    assert_eq!(is_deferred(first, "work__get_task"), Some(false));
    assert_eq!(is_deferred(first, "work__web_search"), Some(true));
    let found = &requests[1]["input"][2];
    assert_eq!(found["type"], "tool_search_output");
    assert_eq!(found["call_id"], "call_01");
    assert_eq!(found["tools"][0]["name"], "work__web_search");
    let input = requests[2]["input"]
        .as_array()
        .expect("the input is an array");
    let outputs: Vec<(&Value, &Value)> = input
        .iter()
        .filter(|item| item["type"] == "function_call_output")
        .map(|item| (&item["call_id"], &item["output"]))
        .collect();
    let texts = [
        json!("work ran web_search"),
        json!("Error: work ran get_task"),
    ];
    let ids = [json!("call_02"), json!("call_03")];
    let expected = [(&ids[0], &texts[0]), (&ids[1], &texts[1])];
    assert_eq!(outputs, expected);
}

#[tokio::test]
#[ignore = "needs npm and pip"]
async fn the_python_agent_of_anthropic_searches_and_calls() {
    assert_anthropic(python("anthropic_agent.py")).await;
}

#[tokio::test]
#[ignore = "needs npm and pip"]
async fn the_python_agent_of_openai_searches_and_calls() {
    assert_openai(python("openai_agent.py")).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_typescript_agent_of_anthropic_searches_and_calls() {
    assert_anthropic(typescript("anthropic-agent.ts")).await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_typescript_agent_of_openai_searches_and_calls() {
    assert_openai(typescript("openai-agent.ts")).await;
}
