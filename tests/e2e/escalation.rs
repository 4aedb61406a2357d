//! The escalation of searches, through the real program: notes of the operator, query expansion,
//! and reranking by a language model behind an endpoint or at the client.

mod chat;

use std::path::Path;

use http::Method;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Transport;
use riglm_tests::kit::{Proxy, ServerBuilder, proxy, server};
use riglm_tests::messages::{call, initialize, initialize_with, request};
use riglm_tests::modern::Meta;
use serde_json::Value;
use tempfile::TempDir;

use self::chat::{ChatAnswer, FakeChatServer};

/// The query has some words in common with the tools, so it finds matches, but not of high quality.
const QUERY: &str = "harvest crops before the thunder tomorrow evening";

const TOOLS: [(&str, &str); 6] = [
    ("plant_pumpkins", "Plants pumpkins in a field"),
    ("harvest_field", "Harvests what grows in a field"),
    ("count_crops", "Counts the crops of a field"),
    ("water_plants", "Waters plants in the greenhouse"),
    ("sell_crops", "Sells crops on the market"),
    ("weather_forecast", "Tells the weather of tomorrow"),
];

/// Returns a server with [`TOOLS`], which are written to this folder.
fn farm(folder: &Path) -> ServerBuilder {
    let file = folder.join("tools.json");
    let tools = TOOLS.map(|(name, description)| {
        format!(r#"{{"name": "{name}", "description": "{description}", "inputSchema": {{"type": "object"}}}}"#)
    });
    std::fs::write(&file, format!("[{}]", tools.join(","))).unwrap();
    server("farm").listing(&file)
}

struct RunningProxy {
    proxy: Proxy,
    _data: TempDir,
}

async fn start_proxy(configuration: &str) -> RunningProxy {
    let data = TempDir::new().unwrap();
    let proxy = proxy()
        .before(farm(data.path()).upstream())
        .configuration(&format!(
            "logging.level = \"debug\"\n[search.encoder]\nmodel = \"none\"\n{configuration}"
        ))
        .variable("LADDER_KEY", "sk-hunter2")
        .strategy("prediction")
        .with_control();
    RunningProxy {
        proxy: proxy.start_in(data.path()).await,
        _data: data,
    }
}

impl RunningProxy {
    async fn client(&self, answers: Answers) -> RawClient {
        let client = with_own_work_session(self.proxy.riglm.client(answers));
        client.initialize(&initialize("0", "2025-11-25")).await;
        client.request(&request("\"list\"", "tools/list")).await;
        client
    }

    async fn metric(&self, name: &str) -> f64 {
        let metrics = self.proxy.operate(Method::GET, "/metrics", "").await;
        let text = metrics.body;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().unwrap()
    }
}

/// Returns the client with its own work session. Within one work session, a repeated search returns
/// the same result.
fn with_own_work_session(client: RawClient) -> RawClient {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    client.set_header("x-riglm-session", &format!("work {number}"));
    client
}

/// Returns the structured content of a search, and its latency.
async fn ask(client: &RawClient, id: &str, query: &str) -> (Value, Duration) {
    let arguments = format!(r#"{{"query":"{query}"}}"#);
    let start = Instant::now();
    let answer = client
        .request(&call(id, "search_available_tools", &arguments))
        .await;
    let mut answer: Value = serde_json::from_str(&answer.text).unwrap();
    (
        answer["result"]["structuredContent"].take(),
        start.elapsed(),
    )
}

fn names(answer: &Value) -> Vec<String> {
    let matches = answer["matches"].as_array().unwrap();
    let names = matches.iter().map(|found| found["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

fn model_requests_series(purpose: &str, model: &str, outcome: &str) -> String {
    format!(
        r#"riglm_model_requests_total{{model="{model}",outcome="{outcome}",purpose="{purpose}"}}"#
    )
}

/// The timeout of a model, much longer than a search without a model.
const MODEL_TIMEOUT: Duration = Duration::from_secs(4);

fn reranked_by(chat: &FakeChatServer, more: &str) -> String {
    format!(
        "[search.rerank]\nby = \"endpoint\"\ntimeout = \"{}s\"\n{more}\n[search.rerank.endpoint]\n\
         url = \"{}\"\nmodel = \"m\"\napi_key = \"${{LADDER_KEY}}\"\n",
        MODEL_TIMEOUT.as_secs(),
        chat.url
    )
}

#[tokio::test]
async fn an_endpoint_reranks_search_results() {
    let plain = start_proxy("").await;
    let client = plain.client(Answers::default()).await;
    let (before, _) = ask(&client, "1", QUERY).await;
    assert_ne!(before["quality"], "high", "{before}");
    let chat = FakeChatServer::start([ChatAnswer::Reverse]).await;
    let line = start_proxy(&reranked_by(&chat, "")).await;
    let client = line.client(Answers::default()).await;
    let (after, _) = ask(&client, "1", QUERY).await;
    let told = chat.requests().remove(0);
    let mut names_told = told.tools();
    assert_eq!(names_told[..3], names(&before)[..3]);
    names_told.reverse();
    assert_eq!(names(&after)[..3], names_told[..3]);
    assert!(
        told.head.contains("authorization: bearer sk-hunter2"),
        "{}",
        told.head
    );
    assert!(told.question().contains(QUERY), "{}", told.question());
    assert!(!told.question().contains("inputSchema"));
    // A repeated search returns the same result, without another request to the model.
    let (again, _) = ask(&client, "2", QUERY).await;
    assert_eq!(again["matches"], after["matches"]);
    let noted = again["notes"].to_string();
    assert!(noted.contains("The answer is the same"), "{noted}");
    assert_eq!(chat.requests().len(), 1);
    assert!(
        line.metric(&model_requests_series("reranking", "endpoint", "used"))
            .await
            >= 1.0
    );
    let tokens =
        r#"riglm_model_tokens_total{direction="input",model="endpoint",purpose="reranking"}"#;
    assert!((line.metric(tokens).await - 70.0).abs() < 0.5);
    assert!(!line.proxy.riglm.process.output().contains("hunter2"));
    assert!(!line.proxy.riglm.process.output().contains("thunder"));
}

#[tokio::test]
async fn a_failing_endpoint_keeps_the_original_order() {
    let plain = start_proxy("").await;
    let client = plain.client(Answers::default()).await;
    let (before, _) = ask(&client, "1", QUERY).await;
    for (answer, outcome) in [
        (ChatAnswer::Hang, "late"),
        (ChatAnswer::Status(500), "unavailable"),
        (ChatAnswer::Says("I would take the first one."), "nonsense"),
        (ChatAnswer::Says(r#"["delete_everything"]"#), "nonsense"),
        (ChatAnswer::Huge, "nonsense"),
        (ChatAnswer::Garbage, "nonsense"),
    ] {
        let chat = FakeChatServer::start([answer.clone()]).await;
        let line = start_proxy(&reranked_by(&chat, "")).await;
        let client = line.client(Answers::default()).await;
        let (after, took) = ask(&client, "1", QUERY).await;
        assert_eq!(after, before, "{answer:?}");
        assert!(took < 3 * MODEL_TIMEOUT, "{answer:?}: {took:?}");
        let counted = model_requests_series("reranking", "endpoint", outcome);
        assert!(line.metric(&counted).await >= 1.0, "{answer:?}");
        // During the back-off, searches do not wait for the model.
        if outcome == "late" {
            assert!(took >= MODEL_TIMEOUT, "{took:?}");
            let (_, took) = ask(&client, "2", "crops before the thunder").await;
            assert!(took < MODEL_TIMEOUT, "{took:?}");
            assert_eq!(chat.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn an_endpoint_is_asked_no_more_often_than_allowed() {
    let chat = FakeChatServer::start([]).await;
    let line = start_proxy(&reranked_by(&chat, "max_requests_per_minute = 1")).await;
    let client = line.client(Answers::default()).await;
    ask(&client, "1", QUERY).await;
    ask(&client, "2", "crops before the thunder").await;
    assert_eq!(chat.requests().len(), 1);
    let counted = model_requests_series("reranking", "endpoint", "over_budget");
    assert!(line.metric(&counted).await >= 1.0);
}

const BY_CLIENT: &str = "[search.rerank]\nby = \"client\"\ntimeout = \"4s\"\n";

fn sampling_answers(text: &str) -> Answers {
    let text = serde_json::Value::from(text);
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"role":"assistant","model":"m","content":{{"type":"text","text":{text}}}}}}}"#
    );
    Answers::default().with("sampling/createMessage", &answer)
}

#[tokio::test]
async fn the_model_of_the_client_reranks_search_results() {
    let line = start_proxy(BY_CLIENT).await;
    let plain = with_own_work_session(line.proxy.riglm.client(Answers::default()));
    plain
        .initialize(&initialize_with("0", "2025-11-25", "{}"))
        .await;
    plain.request(&request("1", "tools/list")).await;
    let (before, _) = ask(&plain, "2", QUERY).await;
    assert!(
        plain
            .received_messages()
            .iter()
            .all(|it| !it.is_method("sampling/createMessage"))
    );
    let names_before = names(&before);
    let choice = format!(r#"["{}","{}"]"#, names_before[2], names_before[0]);
    for transport in [Transport::Streamable, Transport::Legacy] {
        let client = match transport {
            Transport::Legacy => {
                RawClient::legacy(&line.proxy.riglm.at("/sse"), sampling_answers(&choice)).await
            }
            _ => line.proxy.riglm.client(sampling_answers(&choice)),
        };
        let client = with_own_work_session(client);
        client.initialize(&initialize("0", "2024-11-05")).await;
        client.request(&request("\"list\"", "tools/list")).await;
        let arguments = format!(r#"{{"query":"{QUERY}"}}"#);
        let answer = client
            .request(&call("1", "search_available_tools", &arguments))
            .await;
        let asked = client
            .method_after(0, "sampling/createMessage", 1)
            .await
            .remove(0);
        assert!(asked.text.contains("\"riglm:"), "{}", asked.text);
        assert!(!asked.text.contains("inputSchema"), "{}", asked.text);
        let place = |name: &str| answer.text.find(&format!(" {name}")).unwrap();
        assert!(
            place(&names_before[2]) < place(&names_before[0]),
            "{}",
            answer.text
        );
        assert!(
            place(&names_before[0]) < place(&names_before[1]),
            "{}",
            answer.text
        );
    }
    assert!(
        line.metric(&model_requests_series("reranking", "client", "used"))
            .await
            >= 2.0
    );
}

#[tokio::test]
async fn refused_invalid_or_late_rerankings_keep_the_original_order() {
    let refusing = Answers::default().with(
        "sampling/createMessage",
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-1,"message":"User rejected sampling request"}}"#,
    );
    for (answers, outcome) in [
        (refusing, "refused"),
        (sampling_answers("the second one"), "nonsense"),
        (Answers::default(), "late"),
    ] {
        // A new proxy, because the calls of one client influence the results of others.
        let line = start_proxy(BY_CLIENT).await;
        let plain = with_own_work_session(line.proxy.riglm.client(Answers::default()));
        plain
            .initialize(&initialize_with("0", "2025-11-25", "{}"))
            .await;
        plain.request(&request("1", "tools/list")).await;
        let (before, _) = ask(&plain, "2", QUERY).await;
        let client = line.client(answers).await;
        let (after, took) = ask(&client, "1", QUERY).await;
        assert_eq!(after, before, "{outcome}");
        assert!(took < 3 * MODEL_TIMEOUT, "{outcome}: {took:?}");
        let counted = model_requests_series("reranking", "client", outcome);
        assert!(line.metric(&counted).await >= 1.0, "{outcome}");
        let received = client.received_messages();
        let asked = received.iter();
        let asked = asked.filter(|it| it.is_method("sampling/createMessage"));
        assert_eq!(asked.count(), 1);
        if outcome == "late" {
            client.method_after(0, "notifications/cancelled", 1).await;
        }
        // The session goes on.
        let called = client.request(&call("7", "count_crops", "{}")).await;
        assert!(called.text.contains("\"result\""), "{}", called.text);
    }
}

#[tokio::test]
async fn modern_clients_are_not_asked_to_rerank() {
    let line = start_proxy(BY_CLIENT).await;
    let client = RawClient::modern(&line.proxy.riglm.url);
    let search = Meta::default().call(
        "1",
        "search_available_tools",
        &format!(r#"{{"query":"{QUERY}"}}"#),
    );
    let answer = client.request(&search).await;
    assert!(answer.text.contains("\"complete\""), "{}", answer.text);
    assert!(answer.text.contains("harvest_field"), "{}", answer.text);
    for outcome in ["used", "late", "refused"] {
        let counted = model_requests_series("reranking", "client", outcome);
        assert!(line.metric(&counted).await < 0.5, "{outcome}");
    }
}

#[tokio::test]
async fn a_note_of_the_operator_is_searched_first() {
    let chat = FakeChatServer::start([]).await;
    let note = "[search.notes]\nentries = [{ tools = [\"weather*\"], text = \
                \"Vacation and sick leave are requested with this one.\" }]\n";
    let line = start_proxy(&format!("{note}{}", reranked_by(&chat, ""))).await;
    let client = line.client(Answers::default()).await;
    let (found, _) = ask(&client, "1", "request vacation or sick leave").await;
    assert_eq!(names(&found)[0], "weather_forecast", "{found}");
    assert_eq!(found["quality"], "high");
    let said = found["notes"][0].as_str().unwrap();
    assert!(said.starts_with("Note of the operator: Vacation"), "{said}");
    assert!(chat.requests().is_empty());
    assert!(line.metric("riglm_searches_curated_total").await >= 1.0);
}

#[tokio::test]
async fn notes_without_matching_tools_give_a_warning() {
    let line =
        start_proxy("[search.notes]\nentries = [{ tools = [\"nowhere*\"], text = \"x\" }]\n").await;
    let _client = line.client(Answers::default()).await;
    let told = |line: &str| {
        line.contains("match no listed tool: nowhere*")
            .then_some(())
    };
    line.proxy
        .riglm
        .process
        .line(Duration::from_secs(10), "the warning", told)
        .await;
}

#[tokio::test]
async fn query_expansion_is_used_and_reported() {
    let chat = FakeChatServer::start([ChatAnswer::Says(r#"["sell crops"]"#)]).await;
    let configuration = format!(
        "[search.expansion]\ntimeout = \"4s\"\n[search.expansion.endpoint]\nurl = \"{}\"\nmodel = \"m\"\n",
        chat.url
    );
    let line = start_proxy(&configuration).await;
    let client = line.client(Answers::default()).await;
    let (found, _) = ask(&client, "1", "zucchini aubergine").await;
    assert_eq!(chat.requests().len(), 1);
    let helped = line
        .metric(r#"riglm_search_expansions_total{helped="true"}"#)
        .await;
    assert!(helped >= 1.0, "{found}");
    let said = found["notes"].to_string();
    assert!(
        said.contains("also searched for") && said.contains("sell crops"),
        "{said}"
    );
    assert!(names(&found)[0] == "sell_crops", "{found}");
}
