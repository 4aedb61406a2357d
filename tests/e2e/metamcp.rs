//! riglm in front of an endpoint of `MetaMCP`, with the configuration of the example. The stub has the
//! addresses, the authentication and the names of `MetaMCP`, in front of a server with tools. And the
//! import of the servers in an export of `MetaMCP`.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use riglm_tests::answers::Answers;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::kit::proxy;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::{binary, plain_http, process};
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

const KEY: &str = "sk_mt_the_key_of_the_endpoint";
/// The tools of a namespace with two servers.
const TOOLS: &str = r#"[
    {"name": "files__read_file", "description": "Reads a file", "inputSchema": {"type": "object"}},
    {"name": "github__search_issues", "description": "Searches issues", "inputSchema": {"type": "object"}}
]"#;

/// A stub of `MetaMCP` with one endpoint, `dev`.
struct MetaMcp {
    url: Url,
    _server: Upstream,
    _folder: TempDir,
}

/// The server behind the endpoint, with the addresses `/mcp`, `/sse` and `/messages`.
struct Behind(Url);

impl MetaMcp {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let listing = folder.path().join("tools.json");
        std::fs::write(&listing, TOOLS).unwrap();
        let arguments = [
            "--name",
            "metamcp",
            "--listing",
            &listing.display().to_string(),
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        let program = env!("CARGO_BIN_EXE_odd-server").into();
        let server = Server::OddWith(program, arguments);
        let server = server.start(Transport::Streamable).await;
        let behind = server.url.clone().unwrap().join("/").unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new()
            .fallback(serve)
            .with_state(Arc::new(Behind(behind)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            url: format!("http://{address}/").parse().unwrap(),
            _server: server,
            _folder: folder,
        }
    }
}

async fn serve(State(behind): State<Arc<Behind>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Some(place) = head.uri.path().strip_prefix("/metamcp/dev/") else {
        let error = json!({"error": "Endpoint not found"});
        return refusal(StatusCode::NOT_FOUND, &error);
    };
    let key = key_of(&head.headers);
    if key.as_deref() != Some(KEY) {
        let error = match key {
            Some(_) => json!({"error": "invalid_api_key"}),
            None => json!({"error": "authentication_required"}),
        };
        return refusal(StatusCode::UNAUTHORIZED, &error);
    }
    let place = match place {
        "message" => "messages",
        place => place,
    };
    let mut target = behind.0.join(place).unwrap();
    target.set_query(head.uri.query());
    let headers: Vec<(String, String)> = head
        .headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "host" | "authorization" | "content-length"))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let body = body.collect().await.unwrap().to_bytes();
    let answer = plain_http::open(head.method, &target, &headers, body).await;
    let (head, body) = answer.unwrap().into_parts();
    // The stream of HTTP+SSE begins with the address for messages.
    let body = body.map_frame(|frame| {
        frame.map_data(|data| {
            let text = String::from_utf8_lossy(&data);
            match text.strip_prefix("event: endpoint\ndata: /messages") {
                Some(rest) => format!("event: endpoint\ndata: /metamcp/dev/message{rest}").into(),
                None => data,
            }
        })
    });
    Response::from_parts(head, Body::new(body))
}

/// Returns the API key of a request: `MetaMCP` prefers its own header.
fn key_of(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    let bearer = || Some(text("authorization")?.strip_prefix("Bearer ")?.to_owned());
    text("x-api-key").or_else(bearer)
}

fn refusal(status: StatusCode, error: &Value) -> Response {
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = status;
    let json = "application/json".parse().unwrap();
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns the example, with the address of the stub.
fn configuration(metamcp: &MetaMcp, address: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/metamcp/riglm.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let of_example = "http://localhost:12008/metamcp/dev/mcp";
    assert!(text.contains(of_example), "{text}");
    let host = &metamcp.url[url::Position::BeforeHost..url::Position::AfterPort];
    text.replace(of_example, &address.replace("HOST", host))
}

async fn assert_works(address: &str) {
    let metamcp = MetaMcp::start().await;
    let proxy = proxy()
        .configuration(&configuration(&metamcp, address))
        .variable("METAMCP_API_KEY", KEY)
        .start()
        .await;
    let client = proxy.client().connect().await;
    let list: Value =
        serde_json::from_str(&client.request(&request("1", "tools/list")).await.text).unwrap();
    let tools = list["result"]["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
    for name in ["files__read_file", "github__search_issues"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let answer = client
        .request(&call("2", "github__search_issues", "{}"))
        .await
        .text;
    assert!(
        answer.contains("metamcp ran github__search_issues"),
        "{answer}"
    );
}

#[tokio::test]
async fn an_endpoint_over_streamable_http_works_with_its_key() {
    assert_works("http://HOST/metamcp/dev/mcp").await;
}

#[tokio::test]
async fn an_endpoint_over_http_and_sse_works_with_its_key() {
    assert_works("sse+http://HOST/metamcp/dev/sse").await;
}

#[tokio::test]
async fn the_key_may_be_in_the_header_of_metamcp() {
    let metamcp = MetaMcp::start().await;
    let text = configuration(&metamcp, "http://HOST/metamcp/dev/mcp").replace(
        "credentials = { type = \"bearer\", token = \"${METAMCP_API_KEY}\" }",
        "headers = { X-API-Key = \"${METAMCP_API_KEY}\" }",
    );
    assert!(text.contains("headers"), "{text}");
    let proxy = proxy()
        .configuration(&text)
        .variable("METAMCP_API_KEY", KEY)
        .start()
        .await;
    let client = proxy.client().connect().await;
    let list = client.request(&request("1", "tools/list")).await.text;
    assert!(list.contains("files__read_file"), "{list}");
}

#[tokio::test]
async fn a_wrong_key_is_an_error_that_does_not_repeat_it() {
    let metamcp = MetaMcp::start().await;
    let wrong = "sk_mt_a_key_that_is_wrong";
    let proxy = proxy()
        .configuration(&configuration(&metamcp, "http://HOST/metamcp/dev/mcp"))
        .variable("METAMCP_API_KEY", wrong)
        .start()
        .await;
    let client = proxy.riglm.client(Answers::default());
    let answer = client.request(&initialize("1", "2025-11-25")).await.text;
    assert!(answer.contains("401"), "{answer}");
    assert!(!answer.contains(wrong), "{answer}");
}

/// Runs `riglm import metamcp` on an export.
async fn import(export: &Value, arguments: &[&str]) -> Output {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mcp-servers-export.json");
    std::fs::write(&file, export.to_string()).unwrap();
    let mut command = process::command(binary::riglm(), &["import", "metamcp"]);
    command.arg(&file).args(arguments);
    let ended = tokio::time::timeout(Duration::from_mins(1), command.output());
    ended.await.unwrap().unwrap()
}

#[tokio::test]
async fn an_export_becomes_a_configuration_without_its_secrets() {
    let export = json!({"mcpServers": {
        "1files": {"command": "true", "args": ["--api-key", "hidden-1"], "env": {"KEY": "hidden-2"}},
        "broken": {"command": ["hidden-3"]},
        "web": {
            "url": "https://web.example/mcp?token=hidden-4",
            "env": {"NOT_USED": "hidden-5"},
            "headers": {"Authorization": "Bearer hidden-6"},
        },
        "refers": {"command": "true", "env": {"TOKEN": "${GITHUB_TOKEN}"}},
    }});
    let output = import(&export, &[]).await;
    let (printed, notes) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    // One server of several that riglm cannot use is no failure.
    assert_eq!(output.status.code(), Some(0), "{notes}");
    assert!(!printed.contains("hidden"), "{printed}");
    assert!(!notes.contains("hidden"), "{notes}");
    let left_out = r#""broken" was left out: the value of "command" is malformed"#;
    assert!(notes.contains(left_out), "{notes}");
    // The sections are a sound configuration once the named variables are set.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("riglm.toml");
    std::fs::write(&file, &printed).unwrap();
    let variables = [
        "SERVER_1FILES_API_KEY",
        "SERVER_1FILES_KEY",
        "WEB_TOKEN",
        "WEB_TOKEN_2",
        "GITHUB_TOKEN",
    ];
    let mut command = process::command(binary::riglm(), &["config", "check", "--config"]);
    command.arg(&file);
    for variable in variables {
        assert!(notes.contains(variable), "{variable}: {notes}");
        command.env(variable, "value");
    }
    let checked = tokio::time::timeout(Duration::from_mins(1), command.output());
    let checked = checked.await.unwrap().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn an_export_without_a_usable_server_is_refused() {
    let output = import(&json!({"mcpServers": {"a": 1}}), &[]).await;
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{notes}");
    assert!(
        notes.contains("has no server that riglm can use"),
        "{notes}"
    );
    assert_eq!(output.stdout, b"");
}
