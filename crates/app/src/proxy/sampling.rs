//! Sampling: questions of the proxy to the language model of a client, over the session in which
//! the client declared the capability.
//!
//! Only legacy clients are asked. For a modern client the question would be the answer to its
//! request. The client would get the search result only if it sent the request again.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::SessionId;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::retrieval::{BriefCatalog, ModelPrompt, parse_order, ranking_prompt};
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::reranker::{Reranker, Reranking};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use riglm_discovery::search::{GuardedModel, ModelGuard, ModelLimits};

/// The maximum number of pending questions per session.
const MAX_WAITING: usize = 16;
/// The token limit of an answer. It is enough for thirty long names.
const MAX_TOKENS: u32 = 1_024;

/// The pending questions to the model of one session.
#[derive(Default)]
pub(super) struct Sampling {
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<Message>>>,
    next: AtomicU64,
    guard: OnceLock<Arc<ModelGuard>>,
}

impl fmt::Debug for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampling")
            .field("n_waiting", &self.waiting.lock().len())
            .finish_non_exhaustive()
    }
}

impl Sampling {
    /// Returns a reranker that asks the model of the client on behalf of a request.
    pub(super) fn reranker(
        self: &Arc<Self>,
        client: &Arc<dyn ClientLink>,
        request: &RequestId,
        row: SessionId,
        limits: ModelLimits,
    ) -> GuardedModel<dyn Reranker> {
        let guard = (self.guard).get_or_init(|| Arc::new(ModelGuard::new(limits)));
        GuardedModel {
            model: Arc::new(ClientModel {
                sampling: Arc::clone(self),
                client: Arc::clone(client),
                request: request.clone(),
                row,
            }),
            guard: Arc::clone(guard),
        }
    }

    /// Passes answers to pending questions and removes them from a batch. Returns the remaining
    /// message, if any. An answer without a pending question is dropped.
    pub(super) fn take_answers(&self, row: SessionId, message: Message) -> Option<Message> {
        let is_own = |part: &Envelope| {
            part.is_response() && part.id().is_some_and(|id| is_question(id, row))
        };
        if !message.envelopes().iter().any(is_own) {
            return Some(message);
        }
        if !message.is_batch() {
            self.deliver_answer(message);
            return None;
        }
        let Ok(texts) = serde_json::from_slice::<Vec<&RawValue>>(message.raw()) else {
            return Some(message);
        };
        let mut rest = Vec::new();
        for (part, text) in message.envelopes().iter().zip(texts) {
            match Message::from_text(text.get().to_owned()) {
                Ok(answer) if is_own(part) => self.deliver_answer(answer),
                _ => rest.push(text.get()),
            }
        }
        let rest = (!rest.is_empty()).then(|| format!("[{}]", rest.join(",")));
        let rest = Message::from_text(rest?).ok()?;
        Some(rest.with_hints(message.hints().clone()))
    }

    fn deliver_answer(&self, answer: Message) {
        let id = answer.single().and_then(|part| part.id()).cloned();
        let sender = id.and_then(|id| self.waiting.lock().remove(&id));
        if let Some(sender) = sender {
            // The receiver may have given up just now.
            drop(sender.send(answer));
        } else {
            tracing::debug!("dropped a late answer: its request has already ended");
        }
    }
}

/// Returns the id of a question in the session with this row. The row is needed because the upstream
/// may be another riglm with its own questions.
fn question_id(row: SessionId, number: u64) -> RequestId {
    InternalRequest::Sampling.id(format_args!("{row}:{number}"))
}

/// Returns whether an id belongs to a question in the session with this row.
fn is_question(id: &RequestId, row: SessionId) -> bool {
    let prefix = InternalRequest::Sampling.id(format_args!("{row}:"));
    match (id, &prefix) {
        (RequestId::Text(id), RequestId::Text(prefix)) => id.starts_with(&**prefix),
        _ => false,
    }
}

/// The model of a client, used for one request.
#[derive(Debug)]
struct ClientModel {
    sampling: Arc<Sampling>,
    client: Arc<dyn ClientLink>,
    request: RequestId,
    row: SessionId,
}

/// A pending question. If it is dropped before the answer, it is cancelled at the client.
struct Question<'a> {
    model: &'a ClientModel,
    id: RequestId,
}

impl ClientModel {
    async fn answer(&self, question: &ModelPrompt) -> Result<String, ModelCallError> {
        let (sender, receiver) = oneshot::channel();
        let number = self.sampling.next.fetch_add(1, Ordering::Relaxed);
        let id = question_id(self.row, number);
        {
            let mut waiting = self.sampling.waiting.lock();
            if waiting.len() >= MAX_WAITING {
                return Err(ModelCallError::Unavailable(
                    "the queue of sampling requests is full".into(),
                ));
            }
            waiting.insert(id.clone(), sender);
        }
        let asked = Question { model: self, id };
        let message = message(&asked.id, question);
        let route = Route::Related(self.request.clone());
        self.client.deliver(message, route).await;
        let answer = receiver.await;
        let answer = answer.map_err(|error| ModelCallError::Unavailable(error.into()))?;
        let result = answer.single().and_then(|part| answer.result(part));
        // Any error counts as a refusal: the user declined, or the client is not able to answer.
        let result = result.ok_or(ModelCallError::Refused)?;
        Ok(text_of(result).unwrap_or_default())
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if self
            .model
            .sampling
            .waiting
            .lock()
            .remove(&self.id)
            .is_none()
        {
            return;
        }
        let cancelled = Message::cancellation(&self.id, Some("it took too long"));
        let (client, request) = (Arc::clone(&self.model.client), self.model.request.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { client.deliver(cancelled, Route::Related(request)).await });
        }
    }
}

/// Returns the `sampling/createMessage` request.
fn message(id: &RequestId, question: &ModelPrompt) -> Message {
    let params = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": question.user}}],
        "systemPrompt": question.system,
        "includeContext": "none",
        "maxTokens": MAX_TOKENS,
        "temperature": 0,
        "modelPreferences": {"speedPriority": 1, "costPriority": 1, "intelligencePriority": 0.3},
    });
    let params = params.to_string();
    Message::request(id, method::SAMPLING_CREATE_MESSAGE, Some(&params))
}

/// Returns the text of a model answer with one content or several.
fn text_of(result: &str) -> Option<String> {
    let content = member(result, "content")?;
    if !content.starts_with('[') {
        return member(content, "text").and_then(unescape).map(Into::into);
    }
    let parts: Vec<&RawValue> = serde_json::from_str(content).ok()?;
    let texts = parts.iter().filter_map(|part| member(part.get(), "text"));
    Some(texts.filter_map(unescape).collect())
}

#[async_trait]
impl Reranker for ClientModel {
    async fn rerank(
        &self,
        query: &str,
        catalog: &BriefCatalog,
    ) -> Result<Reranking, ModelCallError> {
        if catalog.is_empty() {
            return Ok(Reranking::default());
        }
        let question = ranking_prompt(query, catalog);
        let text = self.answer(&question).await?;
        // Clients do not report token usage, so it is estimated.
        let usage = ModelUsage::estimate(question.n_bytes(), text.len());
        match parse_order(&text, catalog) {
            Some(order) => Ok(Reranking { order, usage }),
            None => Err(ModelCallError::Nonsense(usage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use riglm_ports::contract::model_call::{
        ModelCallScene, ModelFailure, SECRET_ANSWER, SECRET_PROMPT,
    };
    use riglm_ports::fake::RecordingClient;

    use super::*;

    fn row(n: u8) -> SessionId {
        SessionId::new(jiff::Timestamp::UNIX_EPOCH, [n; 10])
    }

    fn catalog() -> BriefCatalog {
        BriefCatalog::new(["a", "b"].map(|name| (name.into(), String::new())))
    }

    struct Scene {
        sampling: Arc<Sampling>,
        client: Arc<RecordingClient>,
        model: GuardedModel<dyn Reranker>,
    }

    fn scene() -> Scene {
        let sampling = Arc::<Sampling>::default();
        let client = Arc::new(RecordingClient::default());
        let link: Arc<dyn ClientLink> = client.clone();
        let request = RequestId::Number("7".into());
        let model = sampling.reranker(&link, &request, row(1), ModelLimits::default());
        Scene {
            sampling,
            client,
            model,
        }
    }

    impl Scene {
        /// Waits for `n` messages to the client and returns them.
        async fn sent_messages(&self, n: usize) -> Vec<(serde_json::Value, Route)> {
            for _ in 0..1_000 {
                let sent = self.client.delivered_messages();
                if sent.len() >= n {
                    let read = |(text, route): (String, Route)| {
                        (serde_json::from_str(&text).unwrap(), route)
                    };
                    return sent.into_iter().map(read).collect();
                }
                tokio::task::yield_now().await;
            }
            panic!("the client was not sent {n} messages");
        }

        fn answer(&self, id: &str, rest: &str) -> Option<Message> {
            let text = format!(r#"{{"jsonrpc":"2.0","id":"{id}",{rest}}}"#);
            (self.sampling).take_answers(row(1), Message::from_text(text).unwrap())
        }
    }

    async fn ask_model(rest: &str) -> Result<Reranking, ModelCallError> {
        let scene = scene();
        let catalog = catalog();
        let answering = async {
            let (question, route) = scene.sent_messages(1).await.remove(0);
            assert_eq!(route, Route::Related(RequestId::Number("7".into())));
            assert_eq!(question["method"], "sampling/createMessage");
            let id = question["id"].as_str().unwrap().to_owned();
            assert!(id.starts_with("riglm:"), "{id}");
            assert!(scene.answer(&id, rest).is_none());
            assert!(
                scene.answer(&id, rest).is_none(),
                "a second one goes nowhere"
            );
        };
        tokio::join!(scene.model.model.rerank("q", &catalog), answering).0
    }

    /// A client whose model answers at once: with all tools, the last one first, or with this
    /// member in place of that.
    #[derive(Debug)]
    struct AnsweringClient {
        sampling: Arc<Sampling>,
        member: Option<String>,
    }

    #[async_trait]
    impl ClientLink for AnsweringClient {
        async fn deliver(&self, message: Message, _route: Route) {
            let asked: serde_json::Value = serde_json::from_slice(message.raw()).unwrap();
            if asked["method"] != "sampling/createMessage" {
                return;
            }
            let question = asked["params"]["messages"][0]["content"]["text"].as_str();
            let lines = question.unwrap().lines().filter_map(|line| {
                let tool: serde_json::Value = serde_json::from_str(line).ok()?;
                tool["name"].as_str().map(str::to_owned)
            });
            let mut names: Vec<String> = lines.collect();
            names.reverse();
            let content = json!({"type": "text", "text": json!(names).to_string()});
            let result = || format!(r#""result":{{"content":{content}}}"#);
            let member = self.member.clone().unwrap_or_else(result);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{},{member}}}"#, asked["id"]);
            let answer = Message::from_text(answer).unwrap();
            assert!(self.sampling.take_answers(row(1), answer).is_none());
        }

        async fn finish(&self, _request: &RequestId) {}

        async fn close(&self) {}
    }

    fn model_answering(member: Option<String>) -> ClientModel {
        let sampling = Arc::<Sampling>::default();
        let client = AnsweringClient {
            sampling: Arc::clone(&sampling),
            member,
        };
        ClientModel {
            sampling,
            client: Arc::new(client),
            request: RequestId::Number("7".into()),
            row: row(1),
        }
    }

    riglm_ports::reranker_contract!(contract, ready(Box::new(model_answering(None))));

    /// The failures of the model of a client. It has no timeout: the caller drops the call.
    #[derive(Debug)]
    struct FailingModel;

    #[async_trait]
    impl ModelCallScene for FailingModel {
        async fn failure(&self, failure: ModelFailure) -> Option<ModelCallError> {
            let member = match failure {
                ModelFailure::Failing => {
                    format!(r#""error":{{"code":-1,"message":"{SECRET_ANSWER}"}}"#)
                }
                ModelFailure::Nonsense => {
                    format!(r#""result":{{"content":{{"type":"text","text":"{SECRET_ANSWER}"}}}}"#)
                }
                ModelFailure::Down | ModelFailure::Silent => return None,
            };
            let model = model_answering(Some(member));
            model.rerank(SECRET_PROMPT, &catalog()).await.err()
        }
    }

    riglm_ports::model_call_contract!(failures, ready(Box::new(FailingModel)));

    #[tokio::test]
    async fn the_model_of_the_client_gives_the_order() {
        for content in [
            r#"{"type":"text","text":"[\"b\",\"a\"]"}"#,
            r#"[{"type":"text","text":"[\"b\","},{"type":"text","text":"\"a\"]"}]"#,
        ] {
            let result =
                format!(r#""result":{{"role":"assistant","model":"m","content":{content}}}"#);
            let reranked = ask_model(&result).await.unwrap();
            assert_eq!(reranked.order, [1, 0]);
            assert!(reranked.usage.n_input_tokens > 0);
        }
    }

    #[tokio::test]
    async fn refusals_and_invalid_answers_give_no_order() {
        let refused = ask_model(r#""error":{"code":-1,"message":"User rejected"}"#).await;
        assert!(
            matches!(refused, Err(ModelCallError::Refused)),
            "{refused:?}"
        );
        for result in [
            r#"{"content":{"type":"text","text":"tool b"}}"#,
            r#"{"content":{"type":"image","data":"x"}}"#,
            "{}",
            "7",
        ] {
            let nonsense = ask_model(&format!(r#""result":{result}"#)).await;
            assert!(
                matches!(nonsense, Err(ModelCallError::Nonsense(_))),
                "{nonsense:?}"
            );
        }
    }

    #[tokio::test]
    async fn sampling_answers_are_taken_out_of_batches() {
        let scene = scene();
        let catalog = catalog();
        let answering = async {
            let (question, _) = scene.sent_messages(1).await.remove(0);
            let result =
                r#"{"role":"assistant","model":"m","content":{"type":"text","text":"[\"b\"]"}}"#;
            let answer = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
                question["id"]
            );
            let other = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
            let batch = Message::from_text(format!("[{other},{answer}]")).unwrap();
            let rest = scene.sampling.take_answers(row(1), batch).unwrap();
            assert_eq!(&rest.raw()[..], format!("[{other}]").as_bytes());
            let batch = Message::from_text(format!("[{answer}]")).unwrap();
            assert!(scene.sampling.take_answers(row(1), batch).is_none());
        };
        let asking = scene.model.model.rerank("q", &catalog);
        let (reranked, ()) = tokio::join!(asking, answering);
        assert_eq!(reranked.unwrap().order, [1]);
    }

    #[tokio::test]
    async fn dropped_sampling_requests_are_cancelled() {
        let scene = scene();
        let catalog = catalog();
        let giving_up = async {
            tokio::select! {
                biased;
                _ = scene.model.model.rerank("q", &catalog) => panic!("nobody answered"),
                _ = scene.sent_messages(1) => {}
            }
        };
        giving_up.await;
        let sent = scene.sent_messages(2).await;
        assert_eq!(sent[1].0["method"], "notifications/cancelled");
        assert_eq!(sent[1].0["params"]["requestId"], sent[0].0["id"]);
        assert!(scene.sampling.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn only_answers_to_own_requests_are_taken() {
        let scene = scene();
        for id in ["1", "riglm:u:1", &format!("riglm:sampling:{}:0", row(2))] {
            assert!(scene.answer(id, r#""result":{}"#).is_some(), "{id}");
        }
        let own = format!("riglm:sampling:{}:0", row(1));
        let request = format!(r#"{{"jsonrpc":"2.0","id":"{own}","method":"ping"}}"#);
        let request = Message::from_text(request).unwrap();
        assert!(scene.sampling.take_answers(row(1), request).is_some());
        assert!(scene.answer(&own, r#""result":{}"#).is_none());
    }
}
