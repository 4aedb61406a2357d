//! The path of a message from a modern server to a legacy client.

use async_trait::async_trait;
use riglm_domain::mcp::edit::{member, meta, with_member, without_meta};
use riglm_domain::mcp::internal_id::{InternalRequest, is_internal};
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::mcp::method;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};

use super::LegacyClientLink;
use super::subscriptions::StreamOutcome;
use crate::upstream::era::detection::code;

/// The error code of legacy revisions for a resource that does not exist.
const RESOURCE_NOT_FOUND: &str = "-32002";
/// The error code of modern revisions for this case, among others.
const INVALID_PARAMS: i64 = -32602;

#[async_trait]
impl UpstreamEvents for LegacyClientLink {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let Some(envelope) = message.single().cloned() else {
            // Modern revisions have no batches, so it is forwarded unchanged.
            return self
                .peers
                .client
                .on_message(message, self.owner_of(related))
                .await;
        };
        if envelope.is_response() {
            self.on_answer(message, &envelope, related).await;
        } else if envelope.method() == Some(method::NOTIFICATIONS_CANCELLED) {
            self.server_cancelled(&message, &envelope);
        } else if let Some(stream) = stream_of(&message, &envelope, related.as_ref()) {
            self.on_stream_notification(&stream, message, &envelope)
                .await;
        } else {
            self.peers
                .client
                .on_message(message, self.owner_of(related))
                .await;
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        if self
            .stream
            .note_ended(&request, StreamOutcome::Ended(error.clone()))
        {
            return;
        }
        let waiting = self.calls.owner(&request);
        if waiting.is_some_and(|client| self.calls.repeats_question(&client)) {
            return;
        }
        match self.calls.end_in_flight(&request) {
            Some(client) if client == request => {
                self.peers.client.on_unanswered(client, error).await;
            }
            // The server has processed a part of the request, so the client must not repeat it.
            Some(client) if error == UpstreamError::SessionExpired => {
                let error = UpstreamError::NoAnswer;
                self.peers.client.on_unanswered(client, error).await;
            }
            Some(client) => self.peers.client.on_unanswered(client, error).await,
            None if is_internal(&request) => {}
            None => self.peers.client.on_unanswered(request, error).await,
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        let open = self.calls.requests.lock().end_all();
        self.peers.tasks.closing().cancel();
        for (input, owner) in open {
            self.calls.withdraw(&input, &owner).await;
        }
        self.peers.client.on_lost(error).await;
    }
}

impl LegacyClientLink {
    /// Forwards an answer under the client's own id, or handles a request for input in it.
    async fn on_answer(&self, message: Message, envelope: &Envelope, related: Option<RequestId>) {
        // An error without an id answers the request on whose stream it came.
        let Some(id) = envelope.id().or(related.as_ref()) else {
            return self.peers.client.on_message(message, related).await;
        };
        let end = match message.error(envelope) {
            Some(error) => StreamOutcome::Refused(error.to_owned()),
            None => StreamOutcome::Ended(UpstreamError::NoAnswer),
        };
        if self.stream.note_ended(id, end) {
            return;
        }
        let Some(client) = self.calls.owner(id) else {
            // The request was cancelled. After a retry under an id of the bridge, the client does
            // not know the id, so the answer is dropped.
            if !self.calls.cancel_late_task(&message, envelope) && !is_internal(id) {
                let related = Some(id.clone());
                self.peers.client.on_message(message, related).await;
            }
            return;
        };
        let Some(message) = self.calls.settle(&client, message, envelope).await else {
            return;
        };
        let Some(envelope) = message.single().cloned() else {
            return;
        };
        let ended = self.calls.end(&client);
        let is_read = ended.is_some_and(|ended| &*ended.method == method::RESOURCES_READ);
        let message = match message.error(&envelope) {
            Some(error) if is_read && is_not_found(error) => {
                message.with_error(&with_member(error, "code", RESOURCE_NOT_FOUND))
            }
            _ => message,
        };
        let message = if envelope.id() == Some(&client) {
            message
        } else {
            message.with_id(&client)
        };
        self.peers.client.on_message(message, Some(client)).await;
    }

    /// Handles a cancellation by the server, which can only concern a notification stream.
    fn server_cancelled(&self, message: &Message, envelope: &Envelope) {
        let params = message.params(envelope);
        let id = params
            .and_then(|params| member(params, "requestId"))
            .and_then(RequestId::from_json);
        if let Some(id) = id {
            self.stream
                .note_ended(&id, StreamOutcome::Ended(UpstreamError::NoAnswer));
        }
    }

    /// Processes a message on a notification stream.
    async fn on_stream_notification(
        &self,
        stream: &RequestId,
        message: Message,
        envelope: &Envelope,
    ) {
        let params = message.params(envelope);
        if envelope.method() == Some(method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED) {
            let filter = params.and_then(|params| member(params, "notifications"));
            self.stream
                .note_acknowledged(stream, filter.unwrap_or("{}"));
            return;
        }
        // While one stream replaces another, both carry the same notifications.
        if !self.stream.is_active(stream) {
            return;
        }
        let message = match params {
            Some(params) => message.with_params(&without_meta(params, SUBSCRIPTION_ID)),
            None => message,
        };
        self.peers.client.on_message(message, None).await;
    }

    /// Returns the client's request to whose stream a message belongs.
    fn owner_of(&self, related: Option<RequestId>) -> Option<RequestId> {
        let related = related?;
        let owner = self.calls.owner(&related);
        owner.or_else(|| (!is_internal(&related)).then_some(related))
    }
}

/// Returns the id of the listen request to which a notification belongs.
fn stream_of(
    message: &Message,
    envelope: &Envelope,
    related: Option<&RequestId>,
) -> Option<RequestId> {
    let named = message
        .params(envelope)
        .and_then(|params| meta(params, SUBSCRIPTION_ID))
        .and_then(RequestId::from_json);
    named.or_else(|| {
        related
            .filter(|id| InternalRequest::BridgedListen.has(id))
            .cloned()
    })
}

/// Returns whether an error of `resources/read` means a missing resource. Modern revisions have no
/// specific code, but the error names the URI.
fn is_not_found(error: &str) -> bool {
    code(error) == Some(INVALID_PARAMS)
        && member(error, "data").is_some_and(|data| member(data, "uri").is_some())
}
