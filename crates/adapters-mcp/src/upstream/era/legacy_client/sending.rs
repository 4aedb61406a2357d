//! The path of a message from a legacy client to a modern server.

use bytes::Bytes;
use futures_util::future::join_all;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{Exchange, SendOutcome, UpstreamError};
use serde_json::value::RawValue;

use super::LegacyClientLink;
use super::subscriptions::SubscriptionWish;

impl LegacyClientLink {
    /// Sends the members of a batch one by one.
    pub(super) async fn send_each(&self, batch: &Message) -> Result<SendOutcome, UpstreamError> {
        let members: Vec<&RawValue> = serde_json::from_slice(batch.raw()).unwrap_or_default();
        let (mut runs, mut ways) = (Vec::new(), Vec::new());
        for member in members {
            let bytes = Bytes::copy_from_slice(member.get().as_bytes());
            let Ok(message) = Message::parse(&bytes) else {
                continue; // It was read as a part of the batch before.
            };
            let message = message.with_trace(batch.trace().cloned());
            let request = message.request_ids().next().cloned();
            match (self.send_one(message).await, request) {
                (Ok(SendOutcome::UnderWay(exchange)), _) => {
                    runs.push(exchange.run);
                    ways.push(exchange.on_its_way);
                }
                (Ok(SendOutcome::Delivered), _) => {}
                (Err(error), Some(id)) => self.peers.client.on_unanswered(id, error).await,
                (Err(error), None) => tracing::debug!("failed to send a part of a batch: {error}"),
            }
        }
        if runs.is_empty() {
            return Ok(SendOutcome::Delivered);
        }
        Ok(SendOutcome::UnderWay(Exchange {
            run: Box::pin(async move {
                join_all(runs).await;
            }),
            on_its_way: Box::pin(async move {
                join_all(ways).await;
            }),
        }))
    }

    /// Sends a message that is no batch, or handles it locally.
    pub(super) async fn send_one(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let Some(envelope) = message.single() else {
            return Ok(SendOutcome::Delivered);
        };
        match (envelope.kind(), envelope.method(), envelope.id().cloned()) {
            (MessageKind::Request, Some(method), Some(id)) => match method {
                method::PING => {
                    self.peers.answer(&id, "{}").await;
                    Ok(SendOutcome::Delivered)
                }
                method::LOGGING_SET_LEVEL => {
                    self.set_level(&id, message.params(envelope)).await;
                    Ok(SendOutcome::Delivered)
                }
                method::RESOURCES_SUBSCRIBE => {
                    let wish = SubscriptionWish::Subscribe;
                    self.stream
                        .change_subscription(&id, message.params(envelope), wish)
                        .await;
                    Ok(SendOutcome::Delivered)
                }
                method::RESOURCES_UNSUBSCRIBE => {
                    let wish = SubscriptionWish::Unsubscribe;
                    self.stream
                        .change_subscription(&id, message.params(envelope), wish)
                        .await;
                    Ok(SendOutcome::Delivered)
                }
                _ => self.request(id, &message).await,
            },
            (MessageKind::Notification, Some(method), _) => match method {
                method::NOTIFICATIONS_INITIALIZED => {
                    self.stream.start();
                    Ok(SendOutcome::Delivered)
                }
                method::NOTIFICATIONS_CANCELLED => self.cancel(&message).await,
                // They have no counterpart: roots are requested on demand, and progress of input is
                // not reported.
                method::NOTIFICATIONS_ROOTS_LIST_CHANGED | method::NOTIFICATIONS_PROGRESS => {
                    Ok(SendOutcome::Delivered)
                }
                _ => self.peers.server.send(message).await,
            },
            _ => self.calls.client_answered(message).await,
        }
    }

    async fn set_level(&self, id: &RequestId, params: Option<&str>) {
        let is_known = self.peers.identity.lock().set_level(params);
        if is_known {
            return self.peers.answer(id, "{}").await;
        }
        let error = RpcError::new(RpcErrorCode::InvalidParams, "Invalid log level");
        self.peers.refuse(id, &error).await;
    }

    async fn request(
        &self,
        id: RequestId,
        message: &Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let params = (message.single()).and_then(|envelope| message.params(envelope));
        let params = self.peers.identity.lock().sign(params);
        self.calls.send(id, message.with_params(&params)).await
    }

    /// Cancels a request of the client upstream, and its open questions at the client.
    async fn cancel(&self, message: &Message) -> Result<SendOutcome, UpstreamError> {
        let params = message.single().and_then(|part| message.params(part));
        let id = params
            .and_then(|params| member(params, "requestId"))
            .and_then(RequestId::from_json);
        let (Some(params), Some(id)) = (params, id) else {
            return Ok(SendOutcome::Delivered);
        };
        self.stream.forget_request(&id);
        let Some(ended) = self.calls.end(&id) else {
            return Ok(SendOutcome::Delivered); // It was answered already.
        };
        for input in &ended.open_inputs {
            self.calls.withdraw(input, &id).await;
        }
        if ended.task.is_some() {
            // "The notifications/cancelled notification MUST NOT be used for task cancellation"
            // (tasks extension, "Task Cancellation").
            self.calls.cancel_task(&ended);
            return Ok(SendOutcome::Delivered);
        }
        match ended.upstream {
            Some(upstream) if upstream == id => self.peers.server.send(message.clone()).await,
            Some(upstream) => {
                let params = with_member(params, "requestId", &upstream.to_json());
                self.peers.server.send(message.with_params(&params)).await
            }
            None => Ok(SendOutcome::Delivered),
        }
    }
}
