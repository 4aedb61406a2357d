//! The path of messages from a legacy server: to the request, the retry or the listener that they
//! are for.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::PROGRESS_TOKEN;
use riglm_domain::mcp::method;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use serde_json::value::RawValue;

use super::ModernBridge;
use super::call::{CallEnd, WaitingClient, number_of};
use super::connection::Connection;

/// The event receiver of one connection. It keeps neither the link nor the connection alive.
#[derive(Debug)]
pub(super) struct LegacyEvents {
    bridge: Weak<ModernBridge>,
    connection: Weak<Connection>,
}

impl LegacyEvents {
    pub(super) fn new(bridge: Weak<ModernBridge>, connection: &Arc<Connection>) -> Self {
        Self {
            bridge,
            connection: Arc::downgrade(connection),
        }
    }

    fn both(&self) -> Option<(Arc<ModernBridge>, Arc<Connection>)> {
        let bridge = self.bridge.upgrade();
        let bridge = bridge.filter(|bridge| !bridge.core.is_closed())?;
        Some((bridge, self.connection.upgrade()?))
    }
}

#[async_trait]
impl UpstreamEvents for LegacyEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let Some((bridge, connection)) = self.both() else {
            return;
        };
        if !message.is_batch() {
            return bridge
                .dispatch(&connection, message, related.as_ref())
                .await;
        }
        // Servers of revision 2025-03-26 may send batches.
        let members: Vec<&RawValue> = serde_json::from_slice(message.raw()).unwrap_or_default();
        for member in members {
            if let Ok(message) = Message::from_text(member.get().to_owned()) {
                bridge
                    .dispatch(&connection, message, related.as_ref())
                    .await;
            }
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        if let Some((bridge, connection)) = self.both()
            && let Some(Err(error)) = connection.take_own(&request, Err(error))
            && let Some(number) = number_of(&request)
        {
            bridge
                .calls
                .on_call_end(&connection, number, CallEnd::Failed(error))
                .await;
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        if let Some((bridge, connection)) = self.both() {
            tracing::debug!("a legacy connection ended: {error}");
            bridge.connections.note_ended(&connection, error).await;
        }
    }
}

impl ModernBridge {
    async fn dispatch(
        &self,
        connection: &Arc<Connection>,
        message: Message,
        related: Option<&RequestId>,
    ) {
        let Some(envelope) = message.single().cloned() else {
            return;
        };
        connection.touch();
        match envelope.kind() {
            MessageKind::Success | MessageKind::Failure => {
                // An error without an id answers the request on whose stream it came.
                let Some(id) = envelope.id().or(related).cloned() else {
                    return;
                };
                if let Some(Ok(message)) = connection.take_own(&id, Ok(message))
                    && let Some(number) = number_of(&id)
                {
                    self.calls
                        .on_call_end(connection, number, CallEnd::Answered(message))
                        .await;
                }
            }
            MessageKind::Request => {
                self.questions
                    .receive(connection, &message, &envelope, related)
                    .await;
            }
            MessageKind::Notification => {
                self.server_notified(connection, &message, &envelope, related)
                    .await;
            }
        }
    }

    async fn server_notified(
        &self,
        connection: &Arc<Connection>,
        message: &Message,
        envelope: &Envelope,
        related: Option<&RequestId>,
    ) {
        let params = message.params(envelope);
        let named = |key| params.and_then(|params| edit::member(params, key));
        match envelope.method().unwrap_or_default() {
            method::NOTIFICATIONS_PROGRESS => {
                let Some(token) = named(PROGRESS_TOKEN).and_then(RequestId::from_json) else {
                    return;
                };
                let number = {
                    let state = self.core.state.lock();
                    let call = state.call_with_token(connection.number, &token);
                    call.map(|call| call.number)
                };
                self.pass_on(connection, number, |client| {
                    let wanted = client.progress_token.as_ref()?;
                    Some(under_token(message, params?, wanted, &token))
                })
                .await;
            }
            method::NOTIFICATIONS_MESSAGE => {
                let number = {
                    let state = self.core.state.lock();
                    let call = state.call_to_log(connection.number, related);
                    call.map(|call| call.number)
                };
                self.pass_on(connection, number, |client| {
                    client.wants_log.then(|| message.clone())
                })
                .await;
            }
            method::NOTIFICATIONS_CANCELLED => {
                if let Some(id) = named("requestId").and_then(RequestId::from_json) {
                    self.core
                        .state
                        .lock()
                        .server_took_back(connection.number, &id);
                }
            }
            method::NOTIFICATIONS_TOOLS_LIST_CHANGED => {
                self.listening.list_changed("tools", message).await;
            }
            method::NOTIFICATIONS_PROMPTS_LIST_CHANGED => {
                self.listening.list_changed("prompts", message).await;
            }
            method::NOTIFICATIONS_RESOURCES_LIST_CHANGED => {
                self.listening.list_changed("resources", message).await;
            }
            method::NOTIFICATIONS_RESOURCES_UPDATED => {
                self.listening.resource_updated(message, params).await;
            }
            _ => {
                let number = related.and_then(number_of);
                self.pass_on(connection, number, |_| Some(message.clone()))
                    .await;
            }
        }
    }

    /// Forwards a notification to the client's request that waits for a call. `with` returns the
    /// message, or `None` if the request does not want it.
    async fn pass_on(
        &self,
        connection: &Connection,
        number: Option<u64>,
        with: impl Fn(&WaitingClient) -> Option<Message>,
    ) {
        let Some(number) = number else {
            return;
        };
        let Some(turn) = self.core.turn_of(connection, number) else {
            return;
        };
        let _turn = turn.lock().await;
        let passed = {
            let state = self.core.state.lock();
            let client = state.calls.get(&number).and_then(|call| call.client());
            client.and_then(|client| Some((with(client)?, client.id.clone())))
        };
        if let Some((message, id)) = passed {
            self.core.deliver(message, &id).await;
        }
    }
}

/// Returns a progress notification under the token that the client knows.
fn under_token(
    message: &Message,
    params: &str,
    token: &RequestId,
    reported: &RequestId,
) -> Message {
    if token == reported {
        return message.clone();
    }
    let params = edit::with_member(params, PROGRESS_TOKEN, &token.to_json());
    message.with_params(&params)
}
