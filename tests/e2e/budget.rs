//! Token budgets of work sessions: the notices at the end of results.

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::messages::{call, initialize, request, request_with};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Options, ProxiedClient, Riglm, rows};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The length of the JSON text around the text of a result.
const RESULT_OVERHEAD: usize = r#"{"content":[{"type":"text","text":""}]}"#.len();

fn budget(keys: &str) -> Options {
    Options::with_configuration(&format!("[safeguards.budget]\n{keys}\n"))
}

async fn on_http(upstream: &Upstream, options: &Options) -> ProxiedClient {
    let line =
        ProxiedClient::through(Transport::Streamable, upstream, options, Answers::default()).await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    line
}

/// Returns the request for a result of this estimated number of tokens. The tokens of long results
/// are estimated and not counted, so the number is exact.
fn request_of_tokens(id: usize, tool: &str, n_tokens: usize) -> String {
    let n_bytes = n_tokens * 4 - RESULT_OVERHEAD;
    assert!(n_bytes > 16 << 10);
    call(
        &id.to_string(),
        tool,
        &json!({"bytes": n_bytes}).to_string(),
    )
}

/// Returns the texts of a result after its first one: the notices.
fn notices_of(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let content = answer["result"]["content"].as_array().unwrap().iter();
    let texts = content.map(|part| part["text"].as_str().unwrap_or_default().to_owned());
    texts.skip(1).collect()
}

/// Spends tokens step by step and returns the notice of each step.
async fn spend_tokens(client: &RawClient, tool: &str, steps: &[usize]) -> Vec<String> {
    let mut said = Vec::new();
    for (n, n_tokens) in steps.iter().enumerate() {
        let answer = client
            .request(&request_of_tokens(100 + n, tool, *n_tokens))
            .await;
        said.push(notices_of(&answer.text).concat());
    }
    said
}

/// Asserts the percentage and the end of each notice. An empty text means no notice.
fn assert_notices(said: &[String], expected: &[(&str, &str)]) {
    for (n, (line, (percent, end))) in said.iter().zip(expected).enumerate() {
        if percent.is_empty() {
            assert_eq!(line, "", "{n}: {said:?}");
        } else {
            let start = format!("Token budget: {percent} % used");
            assert!(
                line.starts_with(&start) && line.ends_with(end),
                "{n}: {line}"
            );
        }
    }
    assert_eq!(said.len(), expected.len());
}

const ASK: &str = "or ask the user how to continue.";
const STOP: &str = "Stop calling tools: answer with what you have.";
/// Steps below and above each threshold of a budget of 100,000 tokens.
const STEPS: [usize; 7] = [49_000, 5_000, 4_200, 4_200, 12_000, 14_000, 5_000];
const EXPECTED_NOTICES: [(&str, &str); 7] = [
    ("", ""),
    ("54", ")."),
    ("", ""),
    ("62", ")."),
    ("74", ASK),
    ("88", ASK),
    ("93", STOP),
];

#[tokio::test]
async fn notices_come_at_each_threshold_and_at_each_further_5_percent() {
    let options = budget("tokens = 100000");
    let upstream = super::odd_over_stdio();
    for transport in [Transport::Streamable, Transport::Stdio] {
        let line = ProxiedClient::through(transport, &upstream, &options, Answers::default()).await;
        line.client.initialize(&initialize("0", "2025-11-25")).await;
        let said = spend_tokens(&line.client, "large", &STEPS).await;
        assert_notices(&said, &EXPECTED_NOTICES);
        // The notice does not stop calls.
        let answer = line
            .client
            .request(&call("9", "echo", r#"{"text":"on"}"#))
            .await;
        assert!(answer.text.contains(r#""text":"on""#), "{}", answer.text);
    }
}

#[tokio::test]
async fn several_upstreams_have_one_budget() {
    let command = json!([env!("CARGO_BIN_EXE_odd-server"), "stdio"]);
    let upstreams = ["one", "two"].map(|name| format!("[upstreams.{name}]\ncommand = {command}\n"));
    let options = Options::with_configuration(&format!(
        "{}[safeguards.budget]\ntokens = 100000\n",
        upstreams.concat()
    ));
    let line = on_http(&Upstream::from_configuration(), &options).await;
    let first = spend_tokens(&line.client, "one__large", &[49_000]).await;
    assert_notices(&first, &[("", "")]);
    let second = spend_tokens(&line.client, "two__large", &[5_000, 4_200]).await;
    assert_notices(&second, &[("54", ")."), ("", "")]);
}

#[tokio::test]
async fn calls_over_the_budget_are_refused_if_configured() {
    let options = budget("tokens = 100000\non_exhausted = \"refuse\"");
    let line = on_http(&super::odd_over_stdio(), &options).await;
    spend_tokens(&line.client, "large", &[80_000, 9_000]).await;
    // 89 % are used, so this call is made.
    let last = spend_tokens(&line.client, "large", &[5_000]).await;
    assert_notices(&last, &[("94", STOP)]);
    let answer = line
        .client
        .request(&call("9", "echo", r#"{"text":"on"}"#))
        .await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("This call was not made. Token budget: 94 % used"),
        "{text}"
    );
    assert_eq!(answer["result"]["isError"], true);
    // Another client has its own work session.
    let other = line.riglm.as_ref().unwrap().client(Answers::default());
    other.set_header("x-riglm-session", "another");
    other.initialize(&initialize("0", "2025-11-25")).await;
    let answer = other.request(&call("9", "echo", r#"{"text":"on"}"#)).await;
    assert!(answer.text.contains(r#""text":"on""#), "{}", answer.text);
    let calls = rows(line.data_dir.path(), &["calls", "--json"]).await;
    let outcomes: Vec<&str> = calls
        .iter()
        .map(|call| call["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "refused", "ok"]);
}

#[tokio::test]
async fn client_budgets_lower_the_budget_of_the_operator() {
    let upstream = super::odd_over_stdio();
    for (keys, said, of) in [
        ("", 100_000, 100_000),
        ("tokens = 200000", 100_000, 100_000),
        ("tokens = 100000", 200_000, 100_000),
        ("tokens = 100000\nclient_may_raise = true", 200_000, 200_000),
    ] {
        let line = on_http(&upstream, &budget(keys)).await;
        line.client
            .set_header("x-riglm-token-budget", &said.to_string());
        let said = spend_tokens(&line.client, "large", &[of * 3 / 5])
            .await
            .concat();
        assert!(said.contains(&format!(" of {of} tokens")), "{keys}: {said}");
    }
    // Declared once, in the metadata of one request. It stays in effect for later requests.
    let line = on_http(&upstream, &Options::default()).await;
    let params =
        r#"{"name":"empty","arguments":{},"_meta":{"io.github.riglm/token-budget":100000}}"#;
    let answer = line
        .client
        .request(&request_with("8", "tools/call", params))
        .await;
    assert!(answer.text.contains(r#""content":[]"#), "{}", answer.text);
    let said = spend_tokens(&line.client, "large", &[49_000, 5_000]).await;
    assert_notices(&said, &[("", ""), ("54", ").")]);
}

#[tokio::test]
async fn a_modern_client_gets_notices_too() {
    let data = TempDir::new().unwrap();
    let riglm = Riglm::serve(&super::odd_over_stdio(), data.path(), &Options::default()).await;
    let client = RawClient::modern(&riglm.url);
    let meta = Meta::default().and(r#""io.github.riglm/token-budget":50000"#);
    let arguments = json!({"bytes": 120_000}).to_string();
    let answer = client.request(&meta.call("1", "large", &arguments)).await;
    assert!(
        notices_of(&answer.text)
            .concat()
            .starts_with("Token budget: 60 % used")
    );
    let off = budget("enabled = false\ntokens = 1000");
    let line = on_http(&super::odd_over_stdio(), &off).await;
    line.client.set_header("x-riglm-token-budget", "1000");
    assert_eq!(spend_tokens(&line.client, "large", &[5_000]).await, [""]);
}

#[tokio::test]
async fn shown_definitions_count_once_towards_the_budget() {
    let upstream = super::odd_over_stdio();
    let plain = on_http(&upstream, &budget("enabled = false")).await;
    let list = plain.client.request(&request("1", "tools/list")).await.text;
    let tokens = list.len() / 4;
    // The list is more than half of the budget. Counted twice, it would exceed the budget.
    let keys = format!("tokens = {}", tokens * 8 / 5);
    let line = on_http(&upstream, &budget(&keys)).await;
    for id in ["1", "1"] {
        let shown = line.client.request(&request(id, "tools/list")).await.text;
        assert_eq!(shown, list);
    }
    let answer = line.client.request(&call("2", "is_error", "{}")).await;
    let said = notices_of(&answer.text).concat();
    assert!(
        said.contains("(tool definitions ") && said.ends_with(")."),
        "{said}"
    );
}

#[tokio::test]
async fn notices_do_not_change_structured_content() {
    let upstream = super::odd_over_stdio();
    let plain = on_http(&upstream, &budget("enabled = false")).await;
    let odd = plain.client.request(&call("7", "odd", "{}")).await.text;
    let structured = r#""structuredContent":{"n":1.0,"big":123456789012345678901234567890,"small":1E-7,"null":null}"#;
    assert!(odd.contains(structured), "{odd}");
    let (content, _) = odd.split_once(structured).unwrap();
    let line = |notices| {
        let text =
            format!("[safeguards]\nnotices = \"{notices}\"\n[safeguards.budget]\ntokens = 100\n");
        let (upstream, options) = (&upstream, Options::with_configuration(&text));
        async move { on_http(upstream, &options).await }
    };
    let told_in_text = line("text").await;
    let answer = told_in_text
        .client
        .request(&call("7", "odd", "{}"))
        .await
        .text;
    assert!(
        answer.contains(structured) && answer.contains("% used"),
        "{answer}"
    );
    let parts = notices_of(&answer);
    assert!(
        parts.last().unwrap().contains("Stop calling tools"),
        "{answer}"
    );
    let told_in_meta = line("meta").await;
    let answer = told_in_meta
        .client
        .request(&call("7", "odd", "{}"))
        .await
        .text;
    assert!(
        answer.starts_with(content) && answer.contains(structured),
        "{answer}"
    );
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let meta = &answer["result"]["_meta"];
    assert_eq!(meta["x.example/a"], json!({"b": []}));
    let notice = &meta["io.github.riglm/notices"][0];
    assert_eq!(notice["kind"], "token_budget");
    assert!(
        notice["text"]
            .as_str()
            .unwrap()
            .contains("Stop calling tools")
    );
}

#[tokio::test]
async fn a_profile_has_thresholds_and_a_budget_of_its_own() {
    let options = Options::with_configuration(
        "[safeguards.budget]\ntokens = 1000000\n\
         [profiles.small.safeguards.budget]\ntokens = 100000\nstatus = 0.1\n\
         [profiles.off.safeguards.budget]\nenabled = false\ntokens = 1000\n",
    );
    let data = TempDir::new().unwrap();
    let riglm = Riglm::serve(&super::odd_over_stdio(), data.path(), &options).await;
    for (path, expected) in [("/mcp", ""), ("/mcp/small", "12"), ("/mcp/off", "")] {
        let client = RawClient::streamable(&riglm.at(path), Answers::default());
        client.initialize(&initialize("0", "2025-11-25")).await;
        let said = spend_tokens(&client, "large", &[12_000]).await;
        assert_notices(&said, &[(expected, ").")]);
    }
}
