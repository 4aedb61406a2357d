//! The way of a message from a legacy client to a modern server.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use riglm_domain::edit::{member, with_member};
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{Exchange, Sent, UpstreamError};
use serde_json::value::RawValue;

use super::LegacyFace;

impl LegacyFace {
    /// Sends the members of a batch one by one.
    pub(super) async fn send_each(
        self: &Arc<Self>,
        batch: &Message,
    ) -> Result<Sent, UpstreamError> {
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
                (Ok(Sent::UnderWay(exchange)), _) => {
                    runs.push(exchange.run);
                    ways.push(exchange.on_its_way);
                }
                (Ok(Sent::Delivered), _) => {}
                (Err(error), Some(id)) => self.events.unanswered(id, error).await,
                (Err(error), None) => tracing::debug!("a member of a batch was not sent: {error}"),
            }
        }
        if runs.is_empty() {
            return Ok(Sent::Delivered);
        }
        Ok(Sent::UnderWay(Exchange {
            run: Box::pin(async move {
                join_all(runs).await;
            }),
            on_its_way: Box::pin(async move {
                join_all(ways).await;
            }),
        }))
    }

    /// Sends a message that is no batch, or deals with it here.
    pub(super) async fn send_one(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
        let Some(envelope) = message.single() else {
            return Ok(Sent::Delivered);
        };
        match (envelope.kind(), envelope.method(), envelope.id().cloned()) {
            (Kind::Request, Some(method), Some(id)) => match method {
                "ping" => {
                    self.answer(&id, "{}").await;
                    Ok(Sent::Delivered)
                }
                "logging/setLevel" => {
                    self.set_level(&id, message.params(envelope)).await;
                    Ok(Sent::Delivered)
                }
                "resources/subscribe" | "resources/unsubscribe" => {
                    let is_on = method == "resources/subscribe";
                    self.subscribe(&id, message.params(envelope), is_on).await;
                    Ok(Sent::Delivered)
                }
                _ => self.request(id, &message).await,
            },
            (Kind::Notification, Some(method), _) => match method {
                "notifications/initialized" => {
                    self.start_listening();
                    Ok(Sent::Delivered)
                }
                "notifications/cancelled" => self.cancel(&message).await,
                // They have no counterpart: roots are asked for when they are needed, and progress
                // of input is not reported.
                "notifications/roots/list_changed" | "notifications/progress" => {
                    Ok(Sent::Delivered)
                }
                _ => self.inner.send(message).await,
            },
            _ => self.client_answered(message).await,
        }
    }

    async fn set_level(&self, id: &RequestId, params: Option<&str>) {
        let is_known = self.state().identity.set_level(params);
        if is_known {
            return self.answer(id, "{}").await;
        }
        let error = RpcError::new(RpcErrorCode::InvalidParams, "Invalid log level");
        self.refuse(id, &error).await;
    }

    async fn request(&self, id: RequestId, message: &Message) -> Result<Sent, UpstreamError> {
        let message = {
            let mut state = self.state();
            let params = message
                .single()
                .and_then(|envelope| message.params(envelope));
            let signed = message.with_params(&state.identity.sign(params));
            state.requests.begin(id.clone(), signed.clone());
            signed
        };
        let sent = self.inner.send(message).await;
        if sent.is_err() {
            self.state().requests.end(&id);
        }
        sent
    }

    /// Takes back a request of the client: upstream, and what the client was asked for it.
    async fn cancel(&self, message: &Message) -> Result<Sent, UpstreamError> {
        let params = message.single().and_then(|part| message.params(part));
        let id = params
            .and_then(|params| member(params, "requestId"))
            .and_then(RequestId::from_json);
        let (Some(params), Some(id)) = (params, id) else {
            return Ok(Sent::Delivered);
        };
        let ended = {
            let mut state = self.state();
            state.subscriptions.nobody_waits(&id);
            state.requests.end(&id)
        };
        let Some(ended) = ended else {
            return Ok(Sent::Delivered); // It was answered already.
        };
        for input in &ended.open_inputs {
            self.withdraw(input, &id).await;
        }
        match ended.upstream {
            Some(upstream) if upstream == id => self.inner.send(message.clone()).await,
            Some(upstream) => {
                let params = with_member(params, "requestId", &upstream.to_json());
                self.inner.send(message.with_params(&params)).await
            }
            None => Ok(Sent::Delivered),
        }
    }
}
