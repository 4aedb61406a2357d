//! Tests of the client against a server with correct, wrong, late and missing responses.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use riglm_ports::contract::model_call::{
    ModelCallScene, ModelFailure, SECRET_ANSWER, SECRET_PROMPT,
};
use riglm_ports::contract::query_expander::QueryExpanderScene;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use validator::Validate as _;

use super::*;

const KEY: &str = "sk-hunter2";

/// A scripted response.
#[derive(Clone, Debug)]
enum Answer {
    /// A status and a body.
    Reply(u16, String),
    /// No response for a long time.
    Hang,
}

/// A server that returns the scripted responses first, and then the names of each request in
/// reverse order.
#[derive(Clone, Debug)]
struct Server {
    url: String,
    plan: Arc<Mutex<VecDeque<Answer>>>,
    /// The answer after the end of the plan.
    always: Arc<Mutex<Option<Answer>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Server {
    async fn start(plan: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}/v1", listener.local_addr().unwrap()),
            plan: Arc::new(Mutex::new(plan.into_iter().collect())),
            always: Arc::default(),
            requests: Arc::default(),
        };
        let answering = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answering.clone().answer(stream));
            }
        });
        server
    }

    fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().clone()
    }

    async fn answer(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap() == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let body: Value = serde_json::from_slice(&body).unwrap();
        self.requests.lock().push((head, body.clone()));
        let planned = self.plan.lock().pop_front();
        let planned = planned.or_else(|| self.always.lock().clone());
        let (status, body) = match planned {
            Some(Answer::Reply(status, body)) => (status, body),
            Some(Answer::Hang) => return tokio::time::sleep(Duration::from_hours(1)).await,
            None => (200, reply_with(&reversed_names(&body))),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Whatever\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        // The client may close the connection early.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

/// Returns the names in a prompt in reverse order.
fn reversed_names(body: &Value) -> String {
    let question = body["messages"][1]["content"].as_str().unwrap();
    let lines = question.lines().filter_map(|line| {
        let tool: Value = serde_json::from_str(line).ok()?;
        tool["name"].as_str().map(str::to_owned)
    });
    let mut names: Vec<String> = lines.collect();
    names.reverse();
    json!(names).to_string()
}

fn reply_with(text: &str) -> String {
    json!({
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 70, "completion_tokens": 7},
    })
    .to_string()
}

fn model_at(url: &str) -> ChatModel {
    model_within(url, Duration::from_secs(20))
}

fn model_within(url: &str, timeout: Duration) -> ChatModel {
    let config = json!({"url": url, "model": "m", "api_key": KEY});
    let config = serde_json::from_value(config).unwrap();
    ChatModel::new(config, timeout).unwrap()
}

fn catalog() -> BriefCatalog {
    BriefCatalog::new(["a", "b"].map(|name| (name.into(), format!("Does {name}"))))
}

async fn contract_model() -> Arc<ChatModel> {
    let server = Server::start([]).await;
    Arc::new(model_at(&server.url))
}

riglm_ports::reranker_contract!(contract, contract_model());

/// A model and its server.
#[derive(Debug)]
struct Scene {
    model: ChatModel,
    server: Server,
}

impl Scene {
    async fn new() -> Box<Self> {
        let server = Server::start([]).await;
        let model = model_at(&server.url);
        Box::new(Self { model, server })
    }
}

impl QueryExpanderScene for Scene {
    fn expander(&self) -> &dyn QueryExpander {
        &self.model
    }

    fn answer_with(&self, texts: &[&str]) {
        let body = reply_with(&json!(texts).to_string());
        *self.server.always.lock() = Some(Answer::Reply(200, body));
    }
}

riglm_ports::query_expander_contract!(expander_contract, Scene::new());

/// The use of the model whose failures are tested.
#[derive(Debug)]
enum FailingCall {
    Rerank,
    Expand,
}

#[async_trait]
impl ModelCallScene for FailingCall {
    async fn failure(&self, failure: ModelFailure) -> Option<ModelCallError> {
        let server = Server::start(match failure {
            ModelFailure::Down => None,
            ModelFailure::Failing => Some(Answer::Reply(500, SECRET_ANSWER.into())),
            ModelFailure::Nonsense => Some(Answer::Reply(200, reply_with(SECRET_ANSWER))),
            ModelFailure::Silent => Some(Answer::Hang),
        });
        let url = match failure {
            ModelFailure::Down => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                format!("http://{}/v1", listener.local_addr().unwrap())
            }
            _ => server.await.url,
        };
        let model = match failure {
            ModelFailure::Silent => model_within(&url, Duration::from_millis(300)),
            _ => model_at(&url),
        };
        match self {
            Self::Rerank => model.rerank(SECRET_PROMPT, &catalog()).await.err(),
            Self::Expand => model.expand(SECRET_PROMPT, 3).await.err(),
        }
    }
}

riglm_ports::model_call_contract!(failing_rerank, ready(Box::new(FailingCall::Rerank)));
riglm_ports::model_call_contract!(failing_expand, ready(Box::new(FailingCall::Expand)));

#[tokio::test]
async fn requests_follow_the_configuration_and_answers_report_the_usage() {
    let server = Server::start([]).await;
    let reranked = model_at(&server.url)
        .rerank("do b", &catalog())
        .await
        .unwrap();
    assert_eq!(reranked.order, [1, 0]);
    let usage = ModelUsage {
        n_input_tokens: 70,
        n_output_tokens: 7,
    };
    assert_eq!(reranked.usage, usage);
    let (head, body) = server.requests().remove(0);
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains(&format!("authorization: bearer {KEY}\r\n")),
        "{head}"
    );
    assert_eq!(body["model"], "m");
    assert_eq!(body["max_tokens"], 1_024);
    let question = body["messages"][1]["content"].as_str().unwrap();
    assert!(
        question.contains("do b") && question.contains("Does a"),
        "{question}"
    );
}

#[tokio::test]
async fn a_missing_usage_is_estimated() {
    let body = r#"{"choices":[{"message":{"content":[{"type":"text","text":"[\"b\"]"}]}}]}"#;
    let server = Server::start([Answer::Reply(200, body.into())]).await;
    let reranked = model_at(&server.url).rerank("q", &catalog()).await.unwrap();
    assert_eq!(reranked.order, [1]);
    assert!(reranked.usage.n_input_tokens > 50 && reranked.usage.n_output_tokens == 2);
}

#[tokio::test]
async fn answers_without_an_order_are_nonsense() {
    for body in [
        String::new(),
        "<html>".into(),
        "{}".into(),
        r#"{"choices":[]}"#.into(),
        r#"{"choices":[{"message":{"content":null}}]}"#.into(),
        reply_with("I would take b."),
        reply_with(r#"["b","b"]"#),
        reply_with(r#"["c"]"#),
        " ".repeat(300 << 10),
    ] {
        let server = Server::start([Answer::Reply(200, body)]).await;
        let error = model_at(&server.url)
            .rerank("q", &catalog())
            .await
            .unwrap_err();
        assert!(matches!(error, ModelCallError::Nonsense(_)), "{error:?}");
    }
}

#[tokio::test]
async fn server_failures_are_reported_without_the_key() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("http://{}/v1?key={KEY}", listener.local_addr().unwrap());
    drop(listener);
    let mut urls = vec![(nowhere, false)];
    for (answer, is_late) in [
        (Answer::Reply(500, format!("wrong key {KEY}")), false),
        (Answer::Reply(401, String::new()), false),
        (Answer::Hang, true),
    ] {
        urls.push((Server::start([answer]).await.url, is_late));
    }
    for (url, is_late) in urls {
        let start = Instant::now();
        let model = if is_late {
            model_within(&url, Duration::from_millis(500))
        } else {
            model_at(&url)
        };
        let error = model.rerank("q", &catalog()).await.unwrap_err();
        if is_late {
            assert!(matches!(error, ModelCallError::Late), "{error:?}");
        } else {
            assert!(matches!(error, ModelCallError::Unavailable(_)), "{error:?}");
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        let told = format!("{error:?} {error} {model:?}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn other_wordings_are_requested_and_checked() {
    let answers = [
        reply_with(r#"["send mail","q","write a letter"]"#),
        reply_with("no"),
    ];
    let server = Server::start(answers.map(|body| Answer::Reply(200, body))).await;
    let model = model_at(&server.url);
    let expanded = model.expand("q", 3).await.unwrap();
    assert_eq!(expanded.texts, ["send mail", "write a letter"]);
    assert_eq!(expanded.usage.n_input_tokens, 70);
    let error = model.expand("q", 3).await.unwrap_err();
    assert_eq!(error.usage().n_output_tokens, 7);
}

#[test]
fn an_unusable_configuration_is_refused() {
    let refused = |change: Value| {
        let mut config = json!({"url": "http://host/v1", "model": "m"});
        config
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let config: ChatConfig = serde_json::from_value(config).unwrap();
        match config.validate() {
            Err(errors) => errors.to_string(),
            Ok(()) => ChatModel::new(config, Duration::from_secs(1))
                .unwrap_err()
                .to_string(),
        }
    };
    assert!(refused(json!({"url": "file:///x"})).contains("http://"));
    assert!(refused(json!({"api_key": "a\nb"})).contains("api_key"));
    assert!(refused(json!({"model": ""})).contains("1 to 200"));
    assert!(refused(json!({"max_tokens": 15})).contains("16 to 32768"));
}
