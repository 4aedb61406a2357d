//! Multi-round calls: the server requires input before it answers. The bridge asks the client in
//! requests of its own, and sends the request again with the answers (basic/patterns/mrtr).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::mcp::internal_id::{InternalRequest, is_internal};
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::resilience::Backoff;
use riglm_ports::upstream::{SendOutcome, UpstreamError};

use super::inputs::{InputQuestions, for_client};
use super::peers::Peers;
use super::requests::{AnswerEffect, EndedRequest, Requests};

/// The back-off before a request is repeated after rounds without a question.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// The result for a person who could not be asked. The client may have failed to show the question,
/// which counts as dismissed (client/elicitation, "Response Actions").
const DISMISSED: &str = r#"{"action":"cancel"}"#;

/// The requests of the client at the server, and the questions that they wait for.
#[derive(Debug)]
pub(super) struct MultiRoundCalls {
    pub(super) peers: Arc<Peers>,
    pub(super) requests: Mutex<Requests>,
}

impl MultiRoundCalls {
    /// Returns an empty set of requests.
    pub(super) fn new(peers: Arc<Peers>) -> Self {
        Self {
            peers,
            requests: Mutex::default(),
        }
    }

    /// Sends a request of the client.
    pub(super) async fn send(
        &self,
        id: RequestId,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        self.requests.lock().begin(id.clone(), message.clone());
        let sent = self.peers.server.send(message).await;
        if sent.is_err() {
            self.requests.lock().end(&id);
        }
        sent
    }

    /// Returns the client's id of a request that is in flight at the server.
    pub(super) fn owner(&self, upstream: &RequestId) -> Option<RequestId> {
        self.requests.lock().owner(upstream).cloned()
    }

    pub(super) fn end(&self, client: &RequestId) -> Option<EndedRequest> {
        self.requests.lock().end(client)
    }

    /// Ends the request with this id at the server. Returns its id at the client.
    pub(super) fn end_in_flight(&self, upstream: &RequestId) -> Option<RequestId> {
        let mut requests = self.requests.lock();
        let client = requests.owner(upstream).cloned()?;
        requests.end(&client);
        Some(client)
    }

    /// Asks the client for the input that the server requires for the request `client`.
    pub(super) async fn input_required(self: &Arc<Self>, client: RequestId, result: &str) {
        let limit = self.peers.options.max_rounds;
        let mut read = InputQuestions::read(result, &self.peers.identity.lock());
        let begun = {
            let mut requests = self.requests.lock();
            // A task repeats its questions until it has processed the answers.
            if let (Ok(asked), Some(task)) = (&mut read, requests.task(&client)) {
                let answered = &task.answered;
                (asked.requests).retain(|asked| !answered.contains(&asked.key));
            }
            let asked = if requests.n_rounds(&client) >= limit {
                Err(RpcError::new(
                    RpcErrorCode::LimitReached,
                    format!("the server asked for input more than {limit} times"),
                ))
            } else {
                read
            };
            asked.map(|asked| {
                let (ids, n_bare) = requests.suspend(&client, &asked, || {
                    self.peers.next_id(InternalRequest::BridgedInput)
                });
                (asked, ids, n_bare)
            })
        };
        match begun {
            Err(error) => {
                if let Some(ended) = self.end(&client) {
                    self.cancel_task(&ended);
                }
                self.peers.refuse(&client, &error).await;
            }
            Ok((asked, ids, _)) if !ids.is_empty() => {
                for (request, id) in asked.requests.iter().zip(ids) {
                    self.ask_client(&client, &id, request.method, request.params)
                        .await;
                }
            }
            Ok((_, _, n_bare)) => {
                let calls = Arc::clone(self);
                self.peers.tasks.spawn(async move {
                    tokio::time::sleep(BACKOFF.delay(n_bare, fastrand::f64())).await;
                    calls.retry(&client).await;
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
        if !self.requests.lock().is_asked(id) {
            return; // The client cancelled its request meanwhile.
        }
        let params = params.map(|params| for_client(params, &id.to_json()));
        let message = Message::request(id, method, params.as_deref());
        self.peers.deliver(message, client).await;
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
        let question = self.requests.lock().question(id);
        let Some((owner, method)) = question else {
            if is_internal(id) {
                return Ok(SendOutcome::Delivered); // It was withdrawn.
            }
            return self.peers.server.send(message).await;
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
        let answered = self.requests.lock().store_answer(id, answer);
        if let AnswerEffect::Complete(owner) = answered {
            let is_task = self.requests.lock().task(&owner).is_some();
            if is_task {
                self.update_task(&owner).await;
            } else {
                self.retry(&owner).await;
            }
        }
        Ok(SendOutcome::Delivered)
    }

    /// Answers a request with the error of the client for the question `input`.
    async fn fail(&self, owner: &RequestId, input: &RequestId, error: &str) {
        let Some(ended) = self.end(owner) else {
            return;
        };
        let others = ended.open_inputs.iter().filter(|open| *open != input);
        for other in others {
            self.withdraw(other, owner).await;
        }
        self.cancel_task(&ended);
        self.peers
            .deliver(Message::failure(Some(owner), error), owner)
            .await;
    }

    /// Cancels a question at the client.
    pub(super) async fn withdraw(&self, input: &RequestId, owner: &RequestId) {
        let reason = "the request that needed this input has ended";
        self.peers
            .deliver(Message::cancellation(input, Some(reason)), owner)
            .await;
    }

    /// Sends a request of the client again, with the answers to the questions of the server.
    pub(super) async fn retry(self: &Arc<Self>, client: &RequestId) {
        let id = self.peers.next_id(InternalRequest::BridgedRetry);
        let message = self.requests.lock().retry(client, id);
        let Some(message) = message else {
            return; // The client cancelled its request meanwhile.
        };
        self.send_again(client, message).await;
    }

    /// Sends a message of the bridge that continues a request of the client.
    pub(super) async fn send_again(self: &Arc<Self>, client: &RequestId, message: Message) {
        match self.peers.server.send(message).await {
            Ok(SendOutcome::UnderWay(exchange)) => self.peers.tasks.drive(exchange),
            Ok(SendOutcome::Delivered) => {}
            Err(_) if self.repeats_question(client) => {}
            Err(error) => {
                let ended = self.end(client);
                if ended.is_some() {
                    self.peers.client.on_unanswered(client.clone(), error).await;
                }
            }
        }
    }
}
