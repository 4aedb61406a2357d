//! Safeguards that answer in place of a tool, or add a notice to the end of a result.

use std::time::Duration;

use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};
use riglm_tests::process;
use riglm_tests::riglm::rows;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Three tools: one is declared read-only and idempotent, one only read-only, and one has no
/// annotations.
const LISTING: &str = r#"[
    {"name": "read_page", "description": "Reads a page", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "idempotentHint": true}},
    {"name": "look_around", "description": "Looks around", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true}},
    {"name": "write_page", "description": "Writes a page", "inputSchema": {"type": "object"}}
]"#;

struct RunningProxy {
    proxy: Proxy,
    client: RawClient,
    _listing: TempDir,
}

/// Starts the proxy in front of these servers, which all have the same tools.
async fn start_proxy(servers: &[&str], more: &str, strategy: &str) -> RunningProxy {
    let folder = TempDir::new().unwrap();
    let listing = folder.path().join("listing.json");
    std::fs::write(&listing, LISTING).unwrap();
    let mut proxy = proxy().configuration(more).strategy(strategy);
    for name in servers {
        proxy = proxy.server(&server(name).listing(&listing));
    }
    let proxy = proxy.start().await;
    let client = proxy.client().connect().await;
    client.request(&request("1", "tools/list")).await;
    RunningProxy {
        proxy,
        client,
        _listing: folder,
    }
}

impl RunningProxy {
    /// Calls a tool and returns its result.
    async fn call(&self, id: &str, tool: &str, arguments: &Value) -> Value {
        let asked = call(id, tool, &arguments.to_string());
        let answer = self.client.request(&asked).await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        answer["result"].clone()
    }

    /// Returns the outcomes of the stored calls when there are `n` of them.
    async fn outcomes(&self, n: usize) -> Vec<String> {
        for _ in 0..100 {
            let calls = rows(&self.proxy.data_dir, &["calls", "--json"]).await;
            let ended = calls.iter().filter_map(|call| call["outcome"].as_str());
            let ended: Vec<String> = ended.map(str::to_owned).collect();
            if ended.len() == n {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{n} calls are not stored");
    }
}

fn texts(result: &Value) -> Vec<&str> {
    let content = result["content"].as_array().unwrap();
    content
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect()
}

#[tokio::test]
async fn repeated_calls_are_answered_from_the_cache() {
    let cache = "[safeguards.result_cache]\nenabled = true\n";
    for (servers, prefix) in [(&["docs"][..], ""), (&["docs", "wiki"], "docs__")] {
        let line = start_proxy(servers, cache, "prediction").await;
        let read = format!("{prefix}read_page");
        let write = format!("{prefix}write_page");
        let look = format!("{prefix}look_around");
        let page = json!({"page": 1});
        let first = line.call("2", &read, &page).await;
        assert_eq!(texts(&first), ["docs ran read_page"]);
        let again = line.call("3", &read, &page).await;
        assert_eq!(texts(&again)[0], "docs ran read_page");
        assert!(texts(&again)[1].contains("same call"), "{again}");
        // Calls with other arguments, and calls that may change data, are made.
        line.call("4", &read, &json!({"page": 2})).await;
        line.call("5", &look, &page).await;
        line.call("6", &look, &page).await;
        line.call("7", &write, &page).await;
        let anew = line.call("8", &read, &page).await;
        assert_eq!(texts(&anew).len(), 1, "{anew}");
        let outcomes = line.outcomes(7).await;
        assert_eq!(outcomes, ["ok", "cached", "ok", "ok", "ok", "ok", "ok"]);
    }
}

#[tokio::test]
async fn repeated_calls_are_made_without_a_result_cache_and_after_failures() {
    let plain = start_proxy(&["docs"], "", "prediction").await;
    let page = json!({"page": 1});
    for id in ["2", "3"] {
        let result = plain.call(id, "read_page", &page).await;
        assert_eq!(texts(&result), ["docs ran read_page"]);
    }
    let cache = "[safeguards]\nnotices = \"meta\"\n[safeguards.result_cache]\nenabled = true\n\
                 tools = [\"write_*\"]\n";
    let cached = start_proxy(&["docs"], cache, "none").await;
    let fails = json!({"fail": true});
    for id in ["2", "3"] {
        let result = cached.call(id, "write_page", &fails).await;
        assert_eq!(result["isError"], true);
        assert!(result["_meta"].is_null(), "{result}");
    }
    cached.call("4", "write_page", &page).await;
    let known = cached.call("5", "write_page", &page).await;
    assert_eq!(texts(&known), ["docs ran write_page"]);
    let notices = &known["_meta"]["io.github.riglm/notices"];
    assert_eq!(notices[0]["kind"], "repeated", "{known}");
    let outcomes = cached.outcomes(4).await;
    assert_eq!(outcomes, ["error", "error", "ok", "cached"]);
}

#[tokio::test]
async fn a_long_result_is_cut_and_the_rest_can_be_read() {
    let long = "[safeguards.long_results]\nmax_bytes = 1000\n";
    for servers in [&["docs"][..], &["docs", "wiki"]] {
        let line = start_proxy(servers, long, "prediction").await;
        let prefix = if servers.len() > 1 { "docs__" } else { "" };
        let read = format!("{prefix}read_page");
        let whole = line.call("2", &read, &json!({"lines": 100})).await;
        assert_eq!(texts(&whole).len(), 1, "it is short enough");
        let cut = line.call("3", &read, &json!({"lines": 400})).await;
        let [text, said] = texts(&cut)[..] else {
            panic!("{cut}");
        };
        assert!(text.len() <= 1_000 && text.ends_with('\n'), "{text}");
        let mut all = text.to_owned();
        let mut said = said.to_owned();
        let mut parts = 1;
        while let Some((_, place)) = said.split_once(" with ") {
            let place = place.trim_end_matches(['.', ']']);
            let place: Value = serde_json::from_str(place).unwrap();
            let rest = line.call("4", "read_more", &place).await;
            let text = texts(&rest)[0].to_owned();
            let (text, more) = text.rsplit_once("\n[").unwrap_or((&text, ""));
            all += text;
            said = more.to_owned();
            parts += 1;
        }
        assert_eq!(parts, 4, "3,510 bytes in parts of at most 1,000");
        let expected: Vec<String> = (1..=400).map(|n| format!("\nline {n}")).collect();
        assert_eq!(all, format!("docs ran read_page{}", expected.concat()));
        let nothing = line.call("5", "read_more", &json!({"handle": "0"})).await;
        assert_eq!(nothing["isError"], true, "{nothing}");
    }
}

#[tokio::test]
async fn truncation_requires_the_own_tools() {
    let data = TempDir::new().unwrap();
    let file = data.path().join("riglm.toml");
    let toml = "[upstream]\nurl = \"http://127.0.0.1:9/mcp\"\n\
                [safeguards.long_results]\nmax_bytes = 1000\n";
    std::fs::write(&file, toml).unwrap();
    let mut command = process::command(binary::riglm(), &["config", "check"]);
    command.arg("--config").arg(&file);
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("safeguards.long_results.max_bytes"), "{said}");
}
