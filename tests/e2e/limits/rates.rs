//! Rate limits of tools, and the limit on calls before a context is declared.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::Envelope;
use riglm_tests::fixture::Transport;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{initialize, request};
use riglm_tests::modern::{Meta, MultiRoundClient};
use riglm_tests::riglm::{Options, ProxiedClient, rows};
use serde_json::Value;
use tempfile::TempDir;

use super::{KEYS, connect, refusal, result, serve};
use crate::odd_over_stdio;

const TWICE: &str = r#"
[[safeguards.limits.rules]]
tools = ["ech*", "odd"]
calls = 2
per = "1h"
"#;

#[tokio::test]
async fn calls_over_the_limit_are_refused_with_the_wait() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        let options = Options::with_configuration(TWICE);
        let line =
            ProxiedClient::through(downstream, &odd_over_stdio(), &options, Answers::default())
                .await;
        let client = &line.client;
        client.initialize(&initialize("\"i\"", "2025-11-25")).await;
        assert_eq!(refusal(client, 1, "echo", r#"{"text":"a"}"#).await, None);
        assert_eq!(refusal(client, 2, "odd", "{}").await, None);
        let refused = refusal(client, 3, "echo", "{}").await.unwrap();
        let told =
            "tools like ech*, odd may be called 2 times in an hour in a session. Try again in ";
        assert!(refused.contains(told), "{refused}");
        let seconds = refused.split("Try again in ").nth(1).unwrap();
        let seconds: u64 = seconds.split(' ').next().unwrap().parse().unwrap();
        assert!((3_500..=3_600).contains(&seconds), "{refused}");
        assert_eq!(refusal(client, 4, "empty", "{}").await, None);
        assert!(refusal(client, 5, "odd", "{}").await.is_some());
        let data = line.data_dir.path().to_owned();
        let mut outcomes = Vec::new();
        for _ in 0..100 {
            let calls = rows(&data, &["calls", "--json"]).await;
            let of = |call: &Value| call["outcome"].as_str().unwrap_or_default().to_owned();
            outcomes = calls.iter().map(of).collect();
            if outcomes.len() == 5 && outcomes.iter().all(|one| !one.is_empty()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        outcomes.sort();
        assert_eq!(outcomes, ["ok", "ok", "ok", "refused", "refused"]);
    }
}

#[tokio::test]
async fn calls_succeed_after_the_named_wait() {
    let data = TempDir::new().unwrap();
    let toml = r#"
[[safeguards.limits.rules]]
tools = ["empty"]
calls = 1
per = "6s"
"#;
    let riglm = serve(data.path(), toml).await;
    let client = connect(&riglm, None, "w").await;
    let start = Instant::now();
    assert_eq!(refusal(&client, 1, "empty", "{}").await, None);
    let refused = refusal(&client, 2, "empty", "{}").await.unwrap();
    let wait = refused.split("Try again in ").nth(1).unwrap();
    let wait: u64 = wait.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=6).contains(&wait), "{refused}");
    tokio::time::sleep(Duration::from_secs(wait)).await;
    assert_eq!(refusal(&client, 3, "empty", "{}").await, None);
    assert!(start.elapsed() >= Duration::from_secs(6));
}

#[tokio::test]
async fn a_rate_limit_has_a_session_principal_or_global_scope() {
    let data = TempDir::new().unwrap();
    let rule = |tool: &str, scope: &str| {
        format!(
            "[[safeguards.limits.rules]]\ntools = [\"{tool}\"]\ncalls = 1\nper = \"1h\"\nscope = \
             \"{scope}\"\n"
        )
    };
    let rules = [
        ("echo", "session"),
        ("empty", "principal"),
        ("odd", "global"),
    ];
    let rules = rules.map(|(tool, scope)| rule(tool, scope)).concat();
    let riglm = serve(data.path(), &format!("{KEYS}{rules}")).await;
    let first = connect(&riglm, Some("ann"), "one").await;
    let other = connect(&riglm, Some("ann"), "two").await;
    let bob = connect(&riglm, Some("bob"), "one").await;
    let mut is_refused = Vec::new();
    let mut id = 0;
    for tool in ["echo", "empty", "odd"] {
        for client in [&first, &first, &other, &bob] {
            id += 1;
            is_refused.push(refusal(client, id, tool, "{}").await.is_some());
        }
    }
    let expected = [
        [false, true, false, false],
        [false, true, true, false],
        [false, true, true, true],
    ];
    assert_eq!(is_refused, expected.concat());
}

#[tokio::test]
async fn multi_round_calls_count_once() {
    let data = TempDir::new().unwrap();
    let toml = r#"
[[safeguards.limits.rules]]
tools = ["elicit"]
calls = 1
per = "1h"
max_concurrent = 1
"#;
    let riglm = serve(data.path(), toml).await;
    let client = RawClient::modern(&riglm.url);
    let meta = Meta::default();
    let rounds = MultiRoundClient::new(&client, &meta);
    let params = r#""name":"elicit","arguments":{}"#;
    let accepted = |_: &Envelope| r#"{"action":"accept","content":{}}"#.to_owned();
    let received = rounds.resolve("tools/call", params, accepted).await;
    assert_eq!(received.len(), 2);
    let ended = &received[1].text;
    assert!(
        ended.contains("accept") && !ended.contains("was not made"),
        "{ended}"
    );
    let over = client.request(&meta.call("3", "elicit", "{}")).await;
    assert!(over.text.contains("was not made"), "{}", over.text);
}

/// Starts a proxy in front of a code server and a browser server.
async fn catalog(more: &str) -> Proxy {
    let listing = |file: &str| {
        let file = format!("e2e/recommending/{file}.json");
        Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
    };
    proxy()
        .server(&server("serena").listing(&listing("code")))
        .server(&server("playwright").listing(&listing("browser")))
        .configuration(more)
        .strategy("prediction")
        .with_control()
        .start()
        .await
}

/// Returns the body of a successful response of the control port.
async fn operate(proxy: &Proxy, method: Method, path: &str, body: &str) -> String {
    let answer = proxy.operate(method, path, body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

#[tokio::test]
async fn recommendations_leave_out_rate_limited_tools() {
    let line = catalog(
        r#"
[recommend]
tools = true
[filtering]
bans = ["find_referencing_symbols"]
[safeguards.result_cache]
enabled = true
tools = ["serena__find_symbols"]
[safeguards.long_results]
max_bytes = 100000
except = ["read_nothing"]
[safeguards.searches]
tools = ["look_around"]
[[safeguards.limits.rules]]
tools = ["serena__find_symbol", "no_such_tool"]
calls = 1
per = "1h"
"#,
    )
    .await;
    let client = connect(&line.riglm, None, "w").await;
    client.request(&request("1", "tools/list")).await;
    for warning in [
        "safeguards.limits.rules[0].tools: no tool matches no_such_tool",
        "safeguards.result_cache.tools: no tool matches serena__find_symbols",
        "safeguards.long_results.except: no tool matches read_nothing",
        "safeguards.searches.tools: no tool matches look_around",
    ] {
        let warned = (line.riglm.process).line(Duration::from_secs(20), warning, |line| {
            line.contains(warning).then_some(())
        });
        warned.await;
    }
    let output = line.riglm.process.output();
    assert!(
        !output.contains("no tool matches serena__find_symbol;"),
        "{output}"
    );
    let ask = r#"{"query":"find where a Python function is defined"}"#;
    let before = result(&client, 2, "recommend_tools", ask).await;
    let before = &before["structuredContent"];
    assert_eq!(
        before["tools"][0]["name"], "serena__find_symbol",
        "{before}"
    );
    assert_eq!(refusal(&client, 3, "serena__find_symbol", "{}").await, None);
    let refused = refusal(&client, 4, "serena__find_symbol", "{}")
        .await
        .unwrap();
    let (_, similar) = refused.split_once("free now: ").unwrap();
    assert!(similar.contains("serena__"), "{refused}");
    assert!(
        !similar.contains("find_symbol") && !similar.contains("find_referencing"),
        "{refused}"
    );
    let after = result(&client, 5, "recommend_tools", ask).await;
    let after = &after["structuredContent"];
    let left_out = after["left_out"].as_array().unwrap();
    let found = left_out
        .iter()
        .find(|one| one["name"] == "serena__find_symbol")
        .unwrap();
    assert_eq!(found["reason"], "rate_limited", "{found}");
    assert_ne!(after["tools"][0]["name"], "serena__find_symbol");
    // A recommendation without a session or a principal ignores rate limits.
    let asked = operate(&line, Method::POST, "/recommendations", ask).await;
    assert!(!asked.contains("rate_limited"), "{asked}");
    let metrics = operate(&line, Method::GET, "/metrics", "").await;
    for series in [
        r#"riglm_calls_limited_total{limit="rate",scope="session"} 1"#,
        r#"riglm_calls_limited_total{limit="rate",scope="global"} 0"#,
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
}

#[tokio::test]
async fn calls_between_two_contexts_are_limited() {
    let line = catalog("[safeguards.limits]\nmax_calls_per_context = 2\n").await;
    let client = connect(&line.riglm, None, "w").await;
    client.request(&request("1", "tools/list")).await;
    let other = connect(&line.riglm, None, "another").await;
    let tool = "serena__find_symbol";
    let mut id = 10;
    for (own, arguments) in [
        ("search_available_tools", r#"{"query":"find a symbol"}"#),
        ("set_context", r#"{"query":"find a symbol"}"#),
    ] {
        for over in [false, false, true] {
            id += 1;
            let refused = refusal(&client, id, tool, "{}").await;
            assert_eq!(refused.is_some(), over, "{refused:?}");
            if let Some(refused) = refused {
                let told =
                    "Call set_context or search_available_tools with your current task first";
                assert!(refused.contains(told), "{refused}");
            }
        }
        assert_eq!(refusal(&other, id, tool, "{}").await, None);
        let bad = result(&client, id + 1, own, "{}").await;
        assert_eq!(bad["isError"], true, "{bad}");
        assert!(
            refusal(&client, id + 2, tool, "{}").await.is_some(),
            "nothing was said"
        );
        let said = result(&client, id + 3, own, arguments).await;
        assert_ne!(said["isError"], true, "{said}");
        id += 3;
    }
}

#[tokio::test]
async fn a_modern_client_is_refused_in_its_own_form() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path(), TWICE).await;
    let client = RawClient::modern(&riglm.url);
    let meta = Meta::default();
    for id in ["1", "2"] {
        let answer = client.request(&meta.call(id, "echo", "{}")).await;
        assert!(!answer.text.contains("was not made"), "{}", answer.text);
    }
    let refused = client.request(&meta.call("3", "echo", "{}")).await;
    let refused: Value = serde_json::from_str(&refused.text).unwrap();
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_eq!(refused["result"]["resultType"], "complete", "{refused}");
}
