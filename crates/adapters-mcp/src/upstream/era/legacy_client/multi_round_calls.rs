//! Multi-round calls: the server requires input before it answers. The bridge asks the client in
//! requests of its own, and sends the request again with the answers (basic/patterns/mrtr).

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::internal_id::{InternalRequest, is_internal};
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::resilience::Backoff;
use riglm_ports::upstream::{SendOutcome, UpstreamError};

use super::inputs::{InputQuestions, for_client};
use super::requests::AnswerEffect;
use super::{LegacyBridge, LegacyState};

/// The back-off before a request is repeated after rounds without a question.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// The result for a person who could not be asked. The client may have failed to show the question,
/// which counts as dismissed (client/elicitation, "Response Actions").
const DISMISSED: &str = r#"{"action":"cancel"}"#;

impl LegacyBridge {
    /// Asks the client for the input that the server requires for the request `client`.
    pub(super) async fn input_required(self: &Arc<Self>, client: RequestId, result: &str) {
        let limit = self.options.max_rounds;
        let begun = {
            let mut state = self.state.lock();
            let LegacyState {
                identity,
                requests,
                n_ids,
                ..
            } = &mut *state;
            let asked = if requests.n_rounds(&client) >= limit {
                Err(RpcError::new(
                    RpcErrorCode::LimitReached,
                    format!("the server asked for input more than {limit} times"),
                ))
            } else {
                InputQuestions::read(result, identity)
            };
            asked.map(|asked| {
                let (ids, n_bare) = requests.suspend(&client, &asked, || {
                    *n_ids += 1;
                    InternalRequest::BridgedInput.id(*n_ids)
                });
                (asked, ids, n_bare)
            })
        };
        match begun {
            Err(error) => {
                self.state.lock().requests.end(&client);
                self.refuse(&client, &error).await;
            }
            Ok((asked, ids, _)) if !ids.is_empty() => {
                for (request, id) in asked.requests.iter().zip(ids) {
                    self.ask_client(&client, &id, request.method, request.params)
                        .await;
                }
            }
            Ok((_, _, n_bare)) => {
                let face = Arc::clone(self);
                self.spawn(async move {
                    tokio::time::sleep(BACKOFF.delay(n_bare, fastrand::f64())).await;
                    face.retry(&client).await;
                });
            }
        }
    }

    async fn ask_client(
        &self,
        client: &RequestId,
        id: &RequestId,
        method: &str,
        params: Option<&str>,
    ) {
        if !self.state.lock().requests.is_asked(id) {
            return; // The client cancelled its request meanwhile.
        }
        let params = params.map(|params| for_client(params, &id.to_json()));
        let message = Message::request(id, method, params.as_deref());
        self.deliver(message, client).await;
    }

    /// Processes an answer of the client. An answer to a question of the server itself goes
    /// upstream.
    pub(super) async fn client_answered(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let Some(envelope) = message.single() else {
            return Ok(SendOutcome::Delivered);
        };
        let Some(id) = envelope.id() else {
            return Ok(SendOutcome::Delivered); // It answers nothing that can be told.
        };
        let question = self.state.lock().requests.question(id);
        let Some((owner, method)) = question else {
            if is_internal(id) {
                return Ok(SendOutcome::Delivered); // It was withdrawn.
            }
            return self.inner.send(message).await;
        };
        let answer = match envelope.kind() {
            MessageKind::Success => message.result(envelope).unwrap_or("{}"),
            _ if method == method::ELICITATION_CREATE => DISMISSED,
            _ => {
                let error = message.error(envelope).unwrap_or("{}");
                self.fail(&owner, id, error).await;
                return Ok(SendOutcome::Delivered);
            }
        };
        let answered = self.state.lock().requests.store_answer(id, answer);
        if let AnswerEffect::Complete(owner) = answered {
            self.retry(&owner).await;
        }
        Ok(SendOutcome::Delivered)
    }

    /// Answers a request with the error of the client for the question `input`.
    async fn fail(&self, owner: &RequestId, input: &RequestId, error: &str) {
        let Some(ended) = self.state.lock().requests.end(owner) else {
            return;
        };
        let others = ended.open_inputs.iter().filter(|open| *open != input);
        for other in others {
            self.withdraw(other, owner).await;
        }
        self.deliver(Message::failure(Some(owner), error), owner)
            .await;
    }

    /// Cancels a question at the client.
    pub(super) async fn withdraw(&self, input: &RequestId, owner: &RequestId) {
        let reason = "the request that needed this input has ended";
        self.deliver(Message::cancellation(input, Some(reason)), owner)
            .await;
    }

    async fn retry(self: &Arc<Self>, client: &RequestId) {
        let message = {
            let mut state = self.state.lock();
            let id = state.next_id(InternalRequest::BridgedRetry);
            state.requests.retry(client, id)
        };
        let Some(message) = message else {
            return; // The client cancelled its request meanwhile.
        };
        match self.inner.send(message).await {
            Ok(SendOutcome::UnderWay(exchange)) => self.drive(exchange),
            Ok(SendOutcome::Delivered) => {}
            Err(error) => {
                let ended = self.state.lock().requests.end(client);
                if ended.is_some() {
                    self.events.on_unanswered(client.clone(), error).await;
                }
            }
        }
    }
}
