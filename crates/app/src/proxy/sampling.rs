//! Questions of the proxy itself to the language model of a client, over the session in which the
//! client offered it.
//!
//! Only clients of legacy revisions are asked. A modern one is asked for something by answering its
//! request with the question, and has the answer to its search only if it comes back: what it was to
//! get at once would depend on that.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use riglm_domain::edit::member;
use riglm_domain::id::SessionId;
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::retrieval::{BriefCatalog, ModelText, accepted_order, ranking_question};
use riglm_domain::scan::unescaped;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::reranker::{Reranked, Reranker};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::search::{Guarded, ModelGuard, ModelLimits};

/// What the ids of these questions begin with; the row of the session follows, since a server behind
/// the proxy may be one like this itself and ask questions of its own.
const OWN_IDS: &str = "riglm:sampling:";
/// The most questions of a session that wait for an answer.
const MAX_WAITING: usize = 16;
/// The most tokens of an answer: thirty long names fit.
const MAX_TOKENS: u32 = 1_024;

/// What the model of one session was asked.
#[derive(Default)]
pub(super) struct Sampling {
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<Message>>>,
    next: AtomicU64,
    guard: OnceLock<Arc<ModelGuard>>,
}

impl fmt::Debug for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampling")
            .field("n_waiting", &self.waiting().len())
            .finish_non_exhaustive()
    }
}

impl Sampling {
    /// Returns the model of the client, to be asked for a request of the session with this row.
    pub(super) fn reranker(
        self: &Arc<Self>,
        (client, request): (&Arc<dyn ClientLink>, &RequestId),
        row: SessionId,
        limits: ModelLimits,
    ) -> Guarded<dyn Reranker> {
        let guard = (self.guard).get_or_init(|| Arc::new(ModelGuard::new(limits)));
        Guarded {
            model: Arc::new(ClientModel {
                sampling: Arc::clone(self),
                client: Arc::clone(client),
                request: request.clone(),
                row,
            }),
            guard: Arc::clone(guard),
        }
    }

    /// Hands answers to who asked; returns any other message, and what else a batch has. An answer that
    /// nobody waits for any more goes nowhere.
    pub(super) fn answered(&self, row: SessionId, message: Message) -> Option<Message> {
        let own = own_ids(row);
        let is_own = |part: &Envelope| {
            let is_named =
                |id: &RequestId| matches!(id, RequestId::Text(id) if id.starts_with(&own));
            part.is_response() && part.id().is_some_and(is_named)
        };
        if !message.envelopes().iter().any(is_own) {
            return Some(message);
        }
        if !message.is_batch() {
            self.hand_over(message);
            return None;
        }
        let Ok(texts) = serde_json::from_slice::<Vec<&RawValue>>(message.raw()) else {
            return Some(message);
        };
        let mut rest = Vec::new();
        for (part, text) in message.envelopes().iter().zip(texts) {
            match Message::from_text(text.get().to_owned()) {
                Ok(answer) if is_own(part) => self.hand_over(answer),
                _ => rest.push(text.get()),
            }
        }
        let rest = (!rest.is_empty()).then(|| format!("[{}]", rest.join(",")));
        let rest = Message::from_text(rest?).ok()?;
        Some(rest.with_hints(message.hints().clone()))
    }

    fn hand_over(&self, answer: Message) {
        let id = answer.single().and_then(|part| part.id()).cloned();
        let sender = id.and_then(|id| self.waiting().remove(&id));
        if let Some(sender) = sender {
            // Who asked may have given up just now.
            drop(sender.send(answer));
        } else {
            tracing::debug!("an answer that nobody waits for any more is dropped");
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<RequestId, oneshot::Sender<Message>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn own_ids(row: SessionId) -> String {
    format!("{OWN_IDS}{row}:")
}

/// The model of a client, as it is asked for one of its requests.
#[derive(Debug)]
struct ClientModel {
    sampling: Arc<Sampling>,
    client: Arc<dyn ClientLink>,
    request: RequestId,
    row: SessionId,
}

/// A question that waits for its answer. Dropped before, it is taken back.
struct Question<'a> {
    model: &'a ClientModel,
    id: RequestId,
}

impl ClientModel {
    async fn answer(&self, question: &ModelText) -> Result<String, ModelCallError> {
        let (sender, receiver) = oneshot::channel();
        let number = self.sampling.next.fetch_add(1, Ordering::Relaxed);
        let id = RequestId::Text(format!("{}{number}", own_ids(self.row)).into());
        {
            let mut waiting = self.sampling.waiting();
            if waiting.len() >= MAX_WAITING {
                return Err(ModelCallError::Unavailable(
                    "too many questions wait".into(),
                ));
            }
            waiting.insert(id.clone(), sender);
        }
        let asked = Question { model: self, id };
        let message = message(&asked.id, question);
        let message = message.map_err(|error| ModelCallError::Unavailable(error.into()))?;
        let route = Route::Related(self.request.clone());
        self.client.deliver(message, route).await;
        let answer = receiver.await;
        let answer = answer.map_err(|error| ModelCallError::Unavailable(error.into()))?;
        let result = answer.single().and_then(|part| answer.result(part));
        // Whatever the error is: its user said no, or it cannot.
        let result = result.ok_or(ModelCallError::Refused)?;
        Ok(text_of(result).unwrap_or_default())
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if self.model.sampling.waiting().remove(&self.id).is_none() {
            return;
        }
        let cancelled = json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": self.id.to_json().trim_matches('"'), "reason": "it took too long"},
        });
        let (client, request) = (Arc::clone(&self.model.client), self.model.request.clone());
        let Ok(message) = Message::from_text(cancelled.to_string()) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { client.deliver(message, Route::Related(request)).await });
        }
    }
}

/// Returns the request that asks a client.
fn message(
    id: &RequestId,
    question: &ModelText,
) -> Result<Message, riglm_domain::message::MessageError> {
    let params = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": question.user}}],
        "systemPrompt": question.system,
        "includeContext": "none",
        "maxTokens": MAX_TOKENS,
        "temperature": 0,
        "modelPreferences": {"speedPriority": 1, "costPriority": 1, "intelligencePriority": 0.3},
    });
    let id = id.to_json();
    Message::from_text(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{params}}}"#
    ))
}

/// Returns the text of what a model said: one content, or several.
fn text_of(result: &str) -> Option<String> {
    let content = member(result, "content")?;
    if !content.starts_with('[') {
        return member(content, "text").and_then(unescaped).map(Into::into);
    }
    let parts: Vec<&RawValue> = serde_json::from_str(content).ok()?;
    let texts = parts.iter().filter_map(|part| member(part.get(), "text"));
    Some(texts.filter_map(unescaped).collect())
}

#[async_trait]
impl Reranker for ClientModel {
    async fn rerank(
        &self,
        query: &str,
        catalog: &BriefCatalog,
    ) -> Result<Reranked, ModelCallError> {
        if catalog.is_empty() {
            return Ok(Reranked::default());
        }
        let question = ranking_question(query, catalog);
        let text = self.answer(&question).await?;
        // Clients do not say what it cost.
        let usage = ModelUsage::estimated(question.n_bytes(), text.len());
        match accepted_order(&text, catalog) {
            Some(order) => Ok(Reranked { order, usage }),
            None => Err(ModelCallError::Nonsense(usage)),
        }
    }
}

#[cfg(test)]
mod tests {
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
        model: Guarded<dyn Reranker>,
    }

    fn scene() -> Scene {
        let sampling = Arc::<Sampling>::default();
        let client = Arc::new(RecordingClient::default());
        let link: Arc<dyn ClientLink> = client.clone();
        let request = RequestId::Number("7".into());
        let model = sampling.reranker((&link, &request), row(1), ModelLimits::default());
        Scene {
            sampling,
            client,
            model,
        }
    }

    impl Scene {
        /// Returns what the client was sent, when there is so much of it.
        async fn sent(&self, n: usize) -> Vec<(serde_json::Value, Route)> {
            for _ in 0..1_000 {
                let sent = self.client.delivered();
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
            self.sampling
                .answered(row(1), Message::from_text(text).unwrap())
        }
    }

    async fn asked(rest: &str) -> Result<Reranked, ModelCallError> {
        let scene = scene();
        let catalog = catalog();
        let answering = async {
            let (question, route) = scene.sent(1).await.remove(0);
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

    #[tokio::test]
    async fn the_model_of_the_client_says_an_order() {
        for content in [
            r#"{"type":"text","text":"[\"b\",\"a\"]"}"#,
            r#"[{"type":"text","text":"[\"b\","},{"type":"text","text":"\"a\"]"}]"#,
        ] {
            let result =
                format!(r#""result":{{"role":"assistant","model":"m","content":{content}}}"#);
            let reranked = asked(&result).await.unwrap();
            assert_eq!(reranked.order, [1, 0]);
            assert!(reranked.usage.n_input_tokens > 0);
        }
    }

    #[tokio::test]
    async fn a_client_that_refuses_or_says_something_else_gives_no_order() {
        let refused = asked(r#""error":{"code":-1,"message":"User rejected"}"#).await;
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
            let nonsense = asked(&format!(r#""result":{result}"#)).await;
            assert!(
                matches!(nonsense, Err(ModelCallError::Nonsense(_))),
                "{nonsense:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_answer_in_a_batch_is_taken_out_of_it() {
        let scene = scene();
        let catalog = catalog();
        let answering = async {
            let (question, _) = scene.sent(1).await.remove(0);
            let result =
                r#"{"role":"assistant","model":"m","content":{"type":"text","text":"[\"b\"]"}}"#;
            let answer = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
                question["id"]
            );
            let other = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
            let batch = Message::from_text(format!("[{other},{answer}]")).unwrap();
            let rest = scene.sampling.answered(row(1), batch).unwrap();
            assert_eq!(&rest.raw()[..], format!("[{other}]").as_bytes());
            let batch = Message::from_text(format!("[{answer}]")).unwrap();
            assert!(scene.sampling.answered(row(1), batch).is_none());
        };
        let asking = scene.model.model.rerank("q", &catalog);
        let (reranked, ()) = tokio::join!(asking, answering);
        assert_eq!(reranked.unwrap().order, [1]);
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_is_taken_back() {
        let scene = scene();
        let catalog = catalog();
        let giving_up = async {
            tokio::select! {
                biased;
                _ = scene.model.model.rerank("q", &catalog) => panic!("nobody answered"),
                _ = scene.sent(1) => {}
            }
        };
        giving_up.await;
        let sent = scene.sent(2).await;
        assert_eq!(sent[1].0["method"], "notifications/cancelled");
        assert_eq!(sent[1].0["params"]["requestId"], sent[0].0["id"]);
        assert!(scene.sampling.waiting().is_empty());
    }

    #[tokio::test]
    async fn what_is_not_the_proxys_own_goes_on() {
        let scene = scene();
        for id in ["1", "riglm:u:1", &format!("riglm:sampling:{}:0", row(2))] {
            assert!(scene.answer(id, r#""result":{}"#).is_some(), "{id}");
        }
        let own = format!("riglm:sampling:{}:0", row(1));
        let request = format!(r#"{{"jsonrpc":"2.0","id":"{own}","method":"ping"}}"#);
        let request = Message::from_text(request).unwrap();
        assert!(scene.sampling.answered(row(1), request).is_some());
        assert!(scene.answer(&own, r#""result":{}"#).is_none());
    }
}
