//! Several hostile clients of revision 2026-07-28 at once, in front of a hostile server and with
//! predicted lists, and their effect on a client with another key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::post;
use futures_util::future::join_all;
use futures_util::stream;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Upstream;
use riglm_tests::modern::Meta;
use riglm_tests::process::resident_kib;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The deadline of a hostile request, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// The number of concurrent attackers.
const ATTACKERS: usize = 4;
/// The number of entries in the lists of the hostile server.
const ENTRIES: usize = 100_000;
/// A latency that is always acceptable for calls of others.
const QUICK: Duration = Duration::from_secs(2);

fn response(content_type: &str, body: Body) -> Response {
    Response::builder()
        .header("content-type", content_type)
        .body(body)
        .unwrap()
}

/// Returns an event stream with `repeated` `n` times, or endlessly, and then `last`.
fn events(repeated: &'static str, n: usize, last: String) -> Response {
    let all = (0..n).map(move |_| Bytes::from_static(repeated.as_bytes()));
    let all = all.chain([Bytes::from(last)]).map(Ok::<_, std::io::Error>);
    response("text/event-stream", Body::from_stream(stream::iter(all)))
}

/// Returns `n` entries of a list, with the number of each in place of `#`.
fn entries(n: usize, entry: &str) -> String {
    let all: Vec<String> = (0..n)
        .map(|at| entry.replace('#', &at.to_string()))
        .collect();
    format!("[{}]", all.join(","))
}

/// Returns the tools of the hostile server: some harmful ones, and many with long descriptions.
fn tools() -> String {
    let schema = json!({"type": "object"});
    let mut tools: Vec<Value> = ["endless_line", "flood", "garbage"]
        .iter()
        .map(|name| json!({"name": name, "inputSchema": schema}))
        .collect();
    tools.extend((0..200).map(|at| {
        let description = format!("{at} {}", "what this tool does ".repeat(1_000));
        json!({"name": format!("large_{at}"), "description": description, "inputSchema": schema})
    }));
    Value::from(tools).to_string()
}

fn tool_response(tool: &str, answer: &dyn Fn(&str) -> String) -> Response {
    let ran = || answer(r#"{"content":[]}"#);
    match tool {
        "endless_line" => events("data: xxxxxxxxxxxxxxxx", usize::MAX, String::new()),
        "flood" => events(
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n",
            20_000,
            format!("data: {}\n\n", ran()),
        ),
        _ => response("application/json", "{}".repeat(1 << 20).into()),
    }
}

async fn answer(body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap();
    let Some(id) = message.get("id") else {
        return Response::builder().status(202).body(Body::empty()).unwrap();
    };
    let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {
                "tools": {"listChanged": true}, "prompts": {}, "resources": {"listChanged": true},
            },
            "serverInfo": {"name": "hostile", "version": "1"},
        })
        .to_string(),
        "tools/list" => format!(r#"{{"tools":{}}}"#, tools()),
        "prompts/list" => format!(
            r#"{{"prompts":{}}}"#,
            entries(ENTRIES, r#"{"name":"prompt #"}"#)
        ),
        "resources/list" => format!(
            r#"{{"resources":{}}}"#,
            entries(ENTRIES, r##"{"name":"#","uri":"hostile://entry/#"}"##)
        ),
        "resources/templates/list" => {
            let template = format!("hostile://#/{}", "{+a}{b}{+c}x".repeat(50));
            let entry = format!(r##"{{"name":"#","uriTemplate":"{template}"}}"##);
            format!(r#"{{"resourceTemplates":{}}}"#, entries(500, &entry))
        }
        "tools/call" => {
            return tool_response(
                message["params"]["name"].as_str().unwrap_or_default(),
                &answer,
            );
        }
        _ => "{}".to_owned(),
    };
    response("application/json", answer(&result).into())
}

/// Starts the hostile server and returns its address.
async fn hostile_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/mcp", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

async fn start(data: &TempDir) -> Riglm {
    let configuration = format!(
        "[upstreams.good]\ncommand = [\"{}\", \"stdio\", \"--tools\", \"12\", \"--name\", \"good\"]\n\
         [upstreams.hostile]\nurl = \"{}\"\ntool_changes = \"hold\"\n\
         [filtering]\nstrategy = \"prediction\"\n[recommend]\ntools = true\n\
         [limits]\ncall_timeout = \"10s\"\n\
         [auth.keys]\nattacker = \"key-of-attacker-0123\"\nother = \"key-of-other-0123456\"\n",
        env!("CARGO_BIN_EXE_odd-server"),
        hostile_server().await
    );
    let options = Options {
        arguments: ["--strategy", "prediction"].map(str::to_owned).to_vec(),
        ..Options::with_configuration(&configuration)
    };
    Riglm::serve(&Upstream::from_configuration(), data.path(), &options).await
}

fn client(riglm: &Riglm, key: &str, session: &str) -> RawClient {
    let client = RawClient::modern(&riglm.url).with_patience(PATIENCE);
    client.set_header("authorization", &format!("Bearer {key}"));
    client.set_header("x-riglm-session", session);
    client
}

/// Returns the requests of a hostile client, each with a name of the attack.
fn attacks(name: &str) -> Vec<(&'static str, String)> {
    let meta = Meta::default();
    let long = "tool that reads, writes and forgets ".repeat(30_000);
    let id = |what: &str| format!("\"{name} {what}\"");
    let call = |what: &'static str, tool: &str, arguments: Value| {
        (what, meta.call(&id(what), tool, &arguments.to_string()))
    };
    let of = |what: &'static str, method: &str, params: &str| {
        (what, meta.request(&id(what), method, params))
    };
    let uri = format!(r#""uri":"hostile://7/{}""#, "ax".repeat(20_000));
    vec![
        of("prompts", "prompts/list", ""),
        of("resources", "resources/list", ""),
        of("templates", "resources/templates/list", ""),
        of("tools", "tools/list", ""),
        of("a resource", "resources/read", &uri),
        call("a query", "search_available_tools", json!({"query": long})),
        call("a task", "recommend_tools", json!({"query": long})),
        call("a context", "set_context", json!({"query": long})),
        call(
            "a comment",
            "rate_tool",
            json!({"tool": "good__tool-003", "rating": 1, "comment": long}),
        ),
        call("an endless line", "hostile__endless_line", json!({})),
        call("a flood", "hostile__flood", json!({})),
        call("garbage", "hostile__garbage", json!({})),
    ]
}

/// Sends all attacks, and long headers, and prints the time of each.
async fn attack(client: &RawClient, name: &str) {
    for (what, request) in attacks(name) {
        let begun = Instant::now();
        // Any response is acceptable.
        client.request(&request).await;
        eprintln!("{name}: {what} took {:?}", begun.elapsed());
    }
    for (n, length) in [(90, 500), (20, 2_000), (90, 5_000)] {
        let headers: Vec<(String, String)> = (0..n)
            .map(|at| (format!("mcp-param-h{at}"), "v".repeat(length)))
            .collect();
        let headers: Vec<(&str, Option<&str>)> = (headers.iter())
            .map(|(name, value)| (name.as_str(), Some(value.as_str())))
            .collect();
        let text =
            Meta::default().call(&format!("\"{name} {n} {length}\""), "good__tool-003", "{}");
        let delivery = client.send_with(&text, &headers).await;
        assert!([200, 400, 431].contains(&delivery.status), "{delivery:?}");
    }
}

/// Makes calls one after the other until `is_over`, and returns their sorted latencies.
async fn calls(client: &RawClient, name: &str, is_over: &AtomicBool) -> Vec<Duration> {
    const MIN_CALLS: usize = 60;
    let mut times = Vec::new();
    while times.len() < MIN_CALLS || !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let id = format!("\"{name} {}\"", times.len());
        let text = Meta::default().call(&id, "good__tool-003", "{}");
        let answer = client.request(&text).await;
        assert!(answer.text.contains("good ran tool-003"), "{}", answer.text);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times
}

#[tokio::test]
async fn a_crowd_of_hostile_clients_is_answered_and_others_are_served() {
    let data = TempDir::new().unwrap();
    let mut riglm = start(&data).await;
    let other = client(&riglm, "key-of-other-0123456", "other");
    let is_over = AtomicBool::new(true);
    let at_rest = calls(&other, "rest", &is_over).await;
    let before = resident_kib(riglm.process.pid());
    is_over.store(false, Ordering::Relaxed);
    let names: Vec<String> = (0..ATTACKERS).map(|at| format!("attacker {at}")).collect();
    let attacking = async {
        join_all(names.iter().map(async |name| {
            attack(&client(&riglm, "key-of-attacker-0123", name), name).await;
        }))
        .await;
        is_over.store(true, Ordering::Relaxed);
    };
    let ((), under_attack) = tokio::join!(attacking, calls(&other, "attack", &is_over));
    let after = resident_kib(riglm.process.pid());
    let p95 = |times: &[Duration]| times[(times.len() - 1) * 95 / 100];
    let (at_rest, under_attack) = (p95(&at_rest), p95(&under_attack));
    eprintln!("p95 {at_rest:?} at rest, {under_attack:?} under attack; {before} to {after} KiB");
    assert!(
        under_attack <= QUICK.max(10 * at_rest),
        "{at_rest:?} at rest became {under_attack:?}"
    );
    assert!(
        after < before + 1_000_000,
        "{before} KiB became {after} KiB"
    );
    let n_warnings = riglm.process.output().matches(" WARN ").count();
    assert!(n_warnings < 100, "{n_warnings} warnings");
    assert_eq!(riglm.stop().await, Some(0));
}
