//! Budgets of tokens of work sessions: what models are told at the end of results, and when.

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::messages::{call, initialize, request, request_with};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Line, Options, Riglm, rows};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The JSON text around the text of a result.
const AROUND: usize = r#"{"content":[{"type":"text","text":""}]}"#.len();

fn budget(keys: &str) -> Options {
    Options::configured(&format!("[safeguards.budget]\n{keys}\n"))
}

async fn on_http(upstream: &Upstream, options: &Options) -> Line {
    let line = Line::through(Transport::Streamable, upstream, options, Answers::default()).await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    line
}

/// Returns the request for a result of so many tokens, as they are estimated: of results that are long
/// nothing is counted, so that the number stays.
fn spending(id: usize, tool: &str, n_tokens: usize) -> String {
    let n_bytes = n_tokens * 4 - AROUND;
    assert!(n_bytes > 16 << 10);
    call(
        &id.to_string(),
        tool,
        &json!({"bytes": n_bytes}).to_string(),
    )
}

/// Returns the texts of a result behind its first.
fn told(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let content = answer["result"]["content"].as_array().unwrap().iter();
    let texts = content.map(|part| part["text"].as_str().unwrap_or_default().to_owned());
    texts.skip(1).collect()
}

/// Spends tokens one after the other; returns what was said each time, cut at its percentage.
async fn spend(client: &RawClient, tool: &str, steps: &[usize]) -> Vec<String> {
    let mut said = Vec::new();
    for (n, n_tokens) in steps.iter().enumerate() {
        let answer = client.request(&spending(100 + n, tool, *n_tokens)).await;
        said.push(told(&answer.text).concat());
    }
    said
}

/// Asserts that what was said begins with these percentages, and ends so; an empty text is silence.
fn assert_said(said: &[String], expected: &[(&str, &str)]) {
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

const ASK: &str = "or ask the user how to go on.";
const STOP: &str = "Stop calling tools: answer with what is there.";
/// Below and above each threshold of a budget of 100,000 tokens.
const STEPS: [usize; 7] = [49_000, 5_000, 4_200, 4_200, 12_000, 14_000, 5_000];
const SAID: [(&str, &str); 7] = [
    ("", ""),
    ("54", ")."),
    ("", ""),
    ("62", ")."),
    ("74", ASK),
    ("88", ASK),
    ("93", STOP),
];

#[tokio::test]
async fn each_state_is_said_when_it_is_entered_and_at_each_further_twentieth() {
    let options = budget("tokens = 100000");
    let upstream = super::odd_over_stdio();
    for transport in [Transport::Streamable, Transport::Stdio] {
        let line = Line::through(transport, &upstream, &options, Answers::default()).await;
        line.client.initialize(&initialize("0", "2025-11-25")).await;
        let said = spend(&line.client, "large", &STEPS).await;
        assert_said(&said, &SAID);
        // It is only said: calls go on.
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
    let options = Options::configured(&format!(
        "{}[safeguards.budget]\ntokens = 100000\n",
        upstreams.concat()
    ));
    let line = on_http(&Upstream::configured(), &options).await;
    let first = spend(&line.client, "one__large", &[49_000]).await;
    assert_said(&first, &[("", "")]);
    let second = spend(&line.client, "two__large", &[5_000, 4_200]).await;
    assert_said(&second, &[("54", ")."), ("", "")]);
}

#[tokio::test]
async fn calls_are_refused_at_the_end_of_a_budget_where_that_is_wanted() {
    let options = budget("tokens = 100000\non_exhausted = \"refuse\"");
    let line = on_http(&super::odd_over_stdio(), &options).await;
    spend(&line.client, "large", &[80_000, 9_000]).await;
    // 89 % are used: this one is made.
    let last = spend(&line.client, "large", &[5_000]).await;
    assert_said(&last, &[("94", STOP)]);
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
    // Another client does other work.
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
async fn a_client_says_its_budget_in_a_header_or_in_meta_and_only_lowers_that_of_the_operator() {
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
        let said = spend(&line.client, "large", &[of * 3 / 5]).await.concat();
        assert!(said.contains(&format!(" of {of} tokens")), "{keys}: {said}");
    }
    // In the metadata, of one request; later ones need not say it again.
    let line = on_http(&upstream, &Options::default()).await;
    let params =
        r#"{"name":"empty","arguments":{},"_meta":{"io.github.riglm/token-budget":100000}}"#;
    let answer = line
        .client
        .request(&request_with("8", "tools/call", params))
        .await;
    assert!(answer.text.contains(r#""content":[]"#), "{}", answer.text);
    let said = spend(&line.client, "large", &[49_000, 5_000]).await;
    assert_said(&said, &[("", ""), ("54", ").")]);
}

#[tokio::test]
async fn a_modern_client_is_told_as_well() {
    let data = TempDir::new().unwrap();
    let riglm = Riglm::serve(&super::odd_over_stdio(), data.path(), &Options::default()).await;
    let client = RawClient::modern(&riglm.url);
    let meta = Meta::default().and(r#""io.github.riglm/token-budget":50000"#);
    let arguments = json!({"bytes": 120_000}).to_string();
    let answer = client.request(&meta.call("1", "large", &arguments)).await;
    assert!(
        told(&answer.text)
            .concat()
            .starts_with("Token budget: 60 % used")
    );
    let off = budget("enabled = false\ntokens = 1000");
    let line = on_http(&super::odd_over_stdio(), &off).await;
    line.client.set_header("x-riglm-token-budget", "1000");
    assert_eq!(spend(&line.client, "large", &[5_000]).await, [""]);
}

#[tokio::test]
async fn definitions_that_are_shown_count_once_and_lists_stay_as_they_are() {
    let upstream = super::odd_over_stdio();
    let plain = on_http(&upstream, &budget("enabled = false")).await;
    let list = plain.client.request(&request("1", "tools/list")).await.text;
    let tokens = list.len() / 4;
    // The list alone is more than half of it, twice the list would be more than all.
    let keys = format!("tokens = {}", tokens * 8 / 5);
    let line = on_http(&upstream, &budget(&keys)).await;
    for id in ["1", "1"] {
        let shown = line.client.request(&request(id, "tools/list")).await.text;
        assert_eq!(shown, list);
    }
    let answer = line.client.request(&call("2", "is_error", "{}")).await;
    let said = told(&answer.text).concat();
    assert!(
        said.contains("(tool definitions ") && said.ends_with(")."),
        "{said}"
    );
}

#[tokio::test]
async fn structured_content_keeps_its_bytes_wherever_notices_stand() {
    let upstream = super::odd_over_stdio();
    let plain = on_http(&upstream, &budget("enabled = false")).await;
    let odd = plain.client.request(&call("7", "odd", "{}")).await.text;
    let structured = r#""structuredContent":{"n":1.0,"big":123456789012345678901234567890,"small":1E-7,"null":null}"#;
    assert!(odd.contains(structured), "{odd}");
    let (content, _) = odd.split_once(structured).unwrap();
    let line = |notices| {
        let text =
            format!("[safeguards]\nnotices = \"{notices}\"\n[safeguards.budget]\ntokens = 100\n");
        let (upstream, options) = (&upstream, Options::configured(&text));
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
    let parts = told(&answer);
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
    let options = Options::configured(
        "[safeguards.budget]\ntokens = 1000000\n\
         [profiles.small.safeguards.budget]\ntokens = 100000\nstatus = 0.1\n\
         [profiles.off.safeguards.budget]\nenabled = false\ntokens = 1000\n",
    );
    let data = TempDir::new().unwrap();
    let riglm = Riglm::serve(&super::odd_over_stdio(), data.path(), &options).await;
    for (path, expected) in [("/mcp", ""), ("/mcp/small", "12"), ("/mcp/off", "")] {
        let client = RawClient::streamable(&riglm.at(path), Answers::default());
        client.initialize(&initialize("0", "2025-11-25")).await;
        let said = spend(&client, "large", &[12_000]).await;
        assert_said(&said, &[(expected, ").")]);
    }
}
