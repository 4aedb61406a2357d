//! Hostile servers and clients, and their effect on other clients.

mod crowd;
mod texts;

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http;
use riglm_tests::process::{free_port, resident_kib};
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;

/// Returns a schema of two kilobytes that expands to some 130 million schemas.
fn exponential_schema() -> String {
    let mut definitions: Vec<String> = (0..27)
        .map(|at| {
            let next = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, at + 1);
            format!(r#""d{at}": {{"anyOf": [{next}, {next}]}}"#)
        })
        .collect();
    definitions.push(r#""d27": {"type": "string"}"#.into());
    let definitions = definitions.join(", ");
    format!(
        r##"{{"type": "object", "properties": {{"x": {{"$ref": "#/$defs/d0"}}}}, "required": ["y"], "$defs": {{{definitions}}}}}"##
    )
}

async fn connected(riglm: &Riglm) -> RawClient {
    let client = riglm.client(Answers::full());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.request(&request("\"list\"", "tools/list")).await;
    client
}

async fn start(data_dir: &Path, listing: &str, control: u16) -> Riglm {
    let file = data_dir.join("listing.json");
    std::fs::write(&file, listing).unwrap();
    let program = env!("CARGO_BIN_EXE_odd-server").into();
    let arguments = ["--listing", &file.display().to_string(), "--name", "odd"];
    let upstream = Server::OddWith(program, arguments.map(str::to_owned).to_vec());
    let upstream = upstream.start(Transport::Stdio).await;
    let options = Options {
        arguments: [
            "--strategy",
            "denylist",
            "--control",
            &format!("127.0.0.1:{control}"),
        ]
        .map(str::to_owned)
        .to_vec(),
        configuration: Some("[filtering]\ndeny = [\"hidden*\"]\n".to_owned()),
        ..Options::default()
    };
    Riglm::serve(&upstream, data_dir, &options).await
}

/// Returns the longest latency of `n` calls.
async fn slowest_of(client: &RawClient, name: &str, n: usize) -> Duration {
    let mut slowest = Duration::ZERO;
    for at in 0..n {
        let begun = Instant::now();
        let answer = client
            .request(&call(&format!("\"{name} {at}\""), "plain", "{}"))
            .await;
        assert!(answer.text.contains("odd ran plain"), "{}", answer.text);
        slowest = slowest.max(begun.elapsed());
    }
    slowest
}

#[tokio::test]
async fn an_exponential_schema_does_not_delay_other_clients() {
    const CALLS: usize = 40;
    let data = TempDir::new().unwrap();
    let schema = exponential_schema();
    assert!(schema.len() < 2_500, "{}", schema.len());
    let listing = format!(
        r#"[{{"name": "plain", "inputSchema": {{"type": "object"}}}}, {{"name": "hidden", "inputSchema": {schema}}}, {{"name": "bomb", "inputSchema": {schema}}}]"#
    );
    let control = free_port();
    let mut riglm = start(data.path(), &listing, control).await;
    let [attacker, other] = [connected(&riglm).await, connected(&riglm).await];
    let at_rest = slowest_of(&other, "rest", CALLS).await;
    let before = resident_kib(riglm.process.pid());
    let attacks = async {
        for at in 0..8 {
            let arguments = r#"{"name":"bomb","arguments":{"x":1,"fail":true}}"#;
            let by_name = call(&format!("\"a {at}\""), "call_tool", arguments);
            // A direct call, whose error would be explained with the schema of the hidden tool.
            let direct = call(&format!("\"b {at}\""), "hidden", r#"{"x":1,"fail":true}"#);
            attacker.request(&by_name).await;
            attacker.request(&direct).await;
        }
    };
    let ((), under_attack) = tokio::join!(attacks, slowest_of(&other, "attack", CALLS));
    let after = resident_kib(riglm.process.pid());
    eprintln!(
        "slowest of {CALLS} calls: {at_rest:?} at rest, {under_attack:?} under attack; {before} to {after} KiB"
    );
    assert!(after < before + 100_000, "{before} kB became {after} KiB");
    let health = format!("http://127.0.0.1:{control}/health")
        .parse()
        .unwrap();
    let health = plain_http::exchange(Method::GET, &health, &[], String::new()).await;
    assert_eq!(health.unwrap().status, 200);
    // One warning for both tools and all calls, because the schema is the same.
    let warned = riglm
        .process
        .output()
        .matches("input schema is too complex")
        .count();
    assert_eq!(warned, 1, "{}", riglm.process.output());
    assert_eq!(riglm.stop().await, Some(0));
}
