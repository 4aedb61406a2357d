//! Requests that a server answers only when it has got input: the client is asked in requests of
//! the bridge's own, and the request is sent again with what it answered (basic/patterns/mrtr).

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{Sent, UpstreamError};

use super::inputs::{Asked, for_client};
use super::requests::Answered;
use super::{LegacyFace, State};

/// The wait before a request is repeated for which the server asked nothing; each further one
/// doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(50);
/// The longest such wait.
const LAST_DELAY: Duration = Duration::from_secs(5);

/// What a server is told of a person who could not be asked: the client may have failed to show the
/// question, which counts as dismissed (client/elicitation, "Response Actions").
const DISMISSED: &str = r#"{"action":"cancel"}"#;

impl LegacyFace {
    /// Asks the client what the server wants to know for its request `client`.
    pub(super) async fn input_required(self: &Arc<Self>, client: RequestId, result: &str) {
        let limit = self.options.max_rounds;
        let begun = {
            let mut state = self.state();
            let State {
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
                Asked::read(result, identity)
            };
            asked.map(|asked| {
                let (ids, n_bare) = requests.suspend(&client, &asked, || {
                    *n_ids += 1;
                    RequestId::Text(format!("riglm:input:{n_ids}").into())
                });
                (asked, ids, n_bare)
            })
        };
        match begun {
            Err(error) => {
                self.state().requests.end(&client);
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
                    tokio::time::sleep(delay_after(n_bare)).await;
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
        if !self.state().requests.is_asked(id) {
            return; // The client cancelled its request meanwhile.
        }
        let id = id.to_json();
        let params = params
            .map(|params| format!(r#","params":{}"#, for_client(params, &id)))
            .unwrap_or_default();
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#);
        self.deliver(text, Some(client.clone())).await;
    }

    /// Takes an answer of the client. One to a question that is not the bridge's goes upstream.
    pub(super) async fn client_answered(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
        let Some(envelope) = message.single() else {
            return Ok(Sent::Delivered);
        };
        let Some(id) = envelope.id() else {
            return Ok(Sent::Delivered); // It answers nothing that can be told.
        };
        let question = self.state().requests.question(id);
        let Some((owner, method)) = question else {
            if is_own(id) {
                return Ok(Sent::Delivered); // It was withdrawn.
            }
            return self.inner.send(message).await;
        };
        let answer = match envelope.kind() {
            Kind::Success => message.result(envelope).unwrap_or("{}"),
            _ if method == "elicitation/create" => DISMISSED,
            _ => {
                let error = message.error(envelope).unwrap_or("{}");
                self.fail(&owner, id, error).await;
                return Ok(Sent::Delivered);
            }
        };
        let answered = self.state().requests.answered(id, answer);
        if let Answered::Complete(owner) = answered {
            self.retry(&owner).await;
        }
        Ok(Sent::Delivered)
    }

    /// Answers a request with the error that the client gave when it was asked `input`.
    async fn fail(&self, owner: &RequestId, input: &RequestId, error: &str) {
        let Some(ended) = self.state().requests.end(owner) else {
            return;
        };
        let others = ended.open_inputs.iter().filter(|open| *open != input);
        for other in others {
            self.withdraw(other, owner).await;
        }
        let text = format!(r#"{{"jsonrpc":"2.0","id":{owner},"error":{error}}}"#);
        self.deliver(text, Some(owner.clone())).await;
    }

    /// Tells the client that a question needs no answer any more.
    pub(super) async fn withdraw(&self, input: &RequestId, owner: &RequestId) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{input},"reason":"the request that it was asked for has ended"}}}}"#
        );
        self.deliver(text, Some(owner.clone())).await;
    }

    async fn retry(self: &Arc<Self>, client: &RequestId) {
        let message = {
            let mut state = self.state();
            let id = state.next_id("retry");
            state.requests.retry(client, id)
        };
        let Some(message) = message else {
            return; // The client cancelled its request meanwhile.
        };
        match self.inner.send(message).await {
            Ok(Sent::UnderWay(exchange)) => self.drive(exchange),
            Ok(Sent::Delivered) => {}
            Err(error) => {
                let ended = self.state().requests.end(client);
                if ended.is_some() {
                    self.events.unanswered(client.clone(), error).await;
                }
            }
        }
    }
}

/// Returns whether the id is one of the bridge or the proxy.
pub(super) fn is_own(id: &RequestId) -> bool {
    matches!(id, RequestId::Text(text) if text.starts_with("riglm:"))
}

/// Returns the wait after that many rounds without a question.
fn delay_after(n_bare: u32) -> Duration {
    FIRST_DELAY
        .saturating_mul(1 << n_bare.saturating_sub(1).min(16))
        .min(LAST_DELAY)
}
