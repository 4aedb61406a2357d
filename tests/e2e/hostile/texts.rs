//! Texts whose processing costs much more than their length suggests, and their effect on other
//! clients.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, initialize, request, request_with};
use riglm_tests::process::{free_port, resident_kib};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{connected, start};

/// The deadline of a hostile request, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// A latency that is always acceptable. In a debug build, a message of megabytes takes 20 times as
/// long.
const QUICK: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 20 });

/// Returns random letters without a pattern.
fn letters(n: usize) -> String {
    let mut state = 12_345_u32;
    let letters = (0..n).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    });
    letters.collect()
}

/// Returns the definition of a tool in the format that the unusual server searches for.
fn tool(name: &str, schema: &str) -> String {
    format!(r#"{{"name": "{name}", "inputSchema": {schema}}}"#)
}

/// Returns the tools of a hostile server, and one normal tool.
fn listing() -> String {
    let names: Vec<String> = (0..4_000).map(|at| format!("name {at}")).collect();
    let marked: Map<String, Value> = (0..3_000)
        .map(|at| {
            let property = json!({"type": "string", "x-mcp-header": format!("h{at}")});
            (format!("m{at}"), property)
        })
        .collect();
    let described = |description: &str| {
        let name = description.chars().next().map_or(0, u32::from);
        format!(
            r#"{{"name": "described {name}", "description": {}, "inputSchema": {{}}}}"#,
            Value::from(description)
        )
    };
    let mut tools = vec![
        tool("plain", r#"{"type": "object"}"#),
        // Too long for the answer of a failed call.
        tool("hidden", &json!({"required": names}).to_string()),
        tool("marked", &json!({"properties": marked}).to_string()),
        described(&letters(500_000)),
        described(&"e\u{301}\u{327}".repeat(100_000)),
        described(&"\u{6f22}".repeat(100_000)),
    ];
    let long = "long_name_".repeat(19);
    tools.extend((0..3_000).map(|at| tool(&format!("{long}{at}"), "{}")));
    format!("[{}]", tools.join(", "))
}

/// A request of a hostile client, with a name of the attack.
type HostileRequest = (&'static str, String);

fn json_string(text: &str) -> String {
    Value::from(text).to_string()
}

fn next_id(ids: &AtomicUsize) -> String {
    format!("\"hostile {}\"", ids.fetch_add(1, Ordering::Relaxed))
}

fn by_name(ids: &AtomicUsize, name: &str, arguments: &Value) -> String {
    let arguments = json!({"name": name, "arguments": arguments});
    call(&next_id(ids), "call_tool", &arguments.to_string())
}

/// Returns requests with members that are expensive to find, to read or to remove.
fn expensive_edits(ids: &AtomicUsize) -> Vec<HostileRequest> {
    let of = |params: &str| request_with(&next_id(ids), "tools/call", params);
    let with_meta = |meta: &str| {
        of(&format!(
            r#"{{"name":"plain","arguments":{{}},"_meta":{{{meta}}}}}"#
        ))
    };
    let repeated = r#""arguments":0,"#.repeat(20_000);
    let arguments = json!({"name": "plain", "arguments": {"x": letters(50_000)}});
    let repeated = format!(r#"{{"name":"call_tool",{repeated}"arguments":{arguments}}}"#);
    let hints = r#""io.github.riglm/session":0,"#.repeat(100_000);
    let trace = json_string(&"a=b,".repeat(200_000));
    let trace = format!(r#""traceparent":{trace},"tracestate":{trace},"baggage":{trace}"#);
    let keys: Map<String, Value> = (0..200_000)
        .map(|at| (format!("k{at}"), at.into()))
        .collect();
    let number = format!("{}e{}", "9".repeat(100_000), "9".repeat(1_000));
    let numbers = format!(r#"{{"keys":{},"n":{number}}}"#, Value::from(keys));
    let hidden = call(&next_id(ids), "hidden", r#"{"fail":true}"#);
    let long = json!({"x": letters(1 << 20)}).to_string();
    vec![
        ("a hint of a hidden tool", hidden),
        ("headers", call(&next_id(ids), "marked", &long)),
        ("a member many times", of(&repeated)),
        ("a hint many times", with_meta(&format!(r#"{hints}"x":1"#))),
        ("trace context", with_meta(&trace)),
        ("keys and numbers", call(&next_id(ids), "plain", &numbers)),
    ]
}

/// Returns requests with texts that are expensive to search for, to compare or to split.
fn expensive_searches(ids: &AtomicUsize) -> Vec<HostileRequest> {
    let query =
        |tool: &str, text: &str| call(&next_id(ids), tool, &json!({ "query": text }).to_string());
    let search = |text: &str| query("search_available_tools", text);
    let of = |method: &str, params: Value| request_with(&next_id(ids), method, &params.to_string());
    let long = letters(1 << 20);
    let name = "long_name_".repeat(100_000);
    let reference = json!({"type": "ref/prompt", "name": long});
    let completed = json!({"ref": reference, "argument": {"name": "a", "value": long}});
    vec![
        ("a long query", search(&long)),
        ("accents", search(&"e\u{301}\u{327}".repeat(200_000))),
        ("a query of words", search(&"name_1 ".repeat(280))),
        ("a long context", query("set_context", &long)),
        ("a long name", call(&next_id(ids), &name, "{}")),
        (
            "a long name by name",
            by_name(ids, &name[..200], &json!({})),
        ),
        ("a cursor", of("tools/list", json!({ "cursor": long }))),
        ("completion", of("completion/complete", completed)),
        ("a resource", of("resources/read", json!({ "uri": long }))),
    ]
}

/// Makes calls one after the other until `is_over`, and returns the 99th percentile of their
/// latencies.
async fn p99(client: &RawClient, name: &str, is_over: &AtomicBool) -> Duration {
    const MIN_CALLS: usize = 60;
    let mut times = Vec::new();
    while times.len() < MIN_CALLS || !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let id = format!("\"{name} {}\"", times.len());
        let answer = client.request(&call(&id, "plain", "{}")).await;
        assert!(answer.text.contains("odd ran plain"), "{}", answer.text);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[(times.len() - 1) * 99 / 100]
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn hostile_texts_are_cut_without_slowing_other_clients() {
    const ROUNDS: usize = 5;
    const N_HOSTILE: usize = 1;
    let data = TempDir::new().unwrap();
    let mut riglm = start(data.path(), &listing(), free_port()).await;
    let hostile: Vec<RawClient> = join_all((0..N_HOSTILE).map(|_| connected(&riglm))).await;
    let hostile: Vec<RawClient> = (hostile.into_iter())
        .map(|client| client.with_patience(PATIENCE))
        .collect();
    let other = connected(&riglm).await;
    let before = resident_kib(riglm.process.pid());
    let ids = AtomicUsize::default();
    let (mut at_rest, mut under_attack) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let is_over = AtomicBool::new(true);
        at_rest.push(p99(&other, &format!("rest {round}"), &is_over).await);
        is_over.store(false, Ordering::Relaxed);
        let attack = async {
            join_all(hostile.iter().map(async |client| {
                let all = [expensive_edits(&ids), expensive_searches(&ids)];
                for (what, request) in all.into_iter().flatten() {
                    let begun = Instant::now();
                    client.request(&request).await;
                    eprintln!("round {round}: {what} took {:?}", begun.elapsed());
                }
            }))
            .await;
            is_over.store(true, Ordering::Relaxed);
        };
        let name = format!("attack {round}");
        let ((), p99) = tokio::join!(attack, p99(&other, &name, &is_over));
        under_attack.push(p99);
    }
    let after = resident_kib(riglm.process.pid());
    eprintln!("p99 at rest {at_rest:?}, under attack {under_attack:?}; {before} to {after} KiB");
    let (at_rest, under_attack) = (median(at_rest), median(under_attack));
    assert!(
        under_attack <= QUICK.max(2 * at_rest),
        "{at_rest:?} at rest became {under_attack:?}"
    );
    assert!(after < before + 300_000, "{before} KiB became {after} KiB");
    assert_eq!(riglm.stop().await, Some(0));
}

#[tokio::test]
async fn half_a_million_hidden_tools_do_not_block_others() {
    let data = TempDir::new().unwrap();
    let many = r#"{"name":"hidden"},"#.repeat(500_000);
    let listing = format!("[{many}{}]", tool("plain", "{}"));
    let mut riglm = start(data.path(), &listing, free_port()).await;
    let hostile = riglm.client(Answers::full()).with_patience(PATIENCE);
    let other = riglm.client(Answers::full());
    for client in [&hostile, &other] {
        client.initialize(&initialize("0", "2025-11-25")).await;
    }
    let is_over = AtomicBool::default();
    let listing = async {
        let listed = hostile.request(&request("\"list\"", "tools/list")).await;
        is_over.store(true, Ordering::Relaxed);
        listed
    };
    let (listed, p99) = tokio::join!(listing, p99(&other, "other", &is_over));
    eprintln!("p99 of others meanwhile: {p99:?}");
    assert!(
        listed.text.contains(r#""name": "plain""#),
        "{}",
        listed.text.len()
    );
    assert!(!listed.text.contains(r#""name":"hidden""#));
    assert_eq!(riglm.stop().await, Some(0));
}
