//! The way of a message from a modern server to a legacy client.

use std::sync::Arc;

use riglm_domain::edit::{member, meta, with_member, without_meta};
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::meta::SUBSCRIPTION_ID;
use riglm_ports::upstream::UpstreamError;

use super::LegacyFace;
use super::inputs::is_input_required;
use super::rounds::is_own;
use super::subscriptions::Opened;
use crate::bridge::detection::code;

/// The code of a resource that is not there, in legacy revisions.
const RESOURCE_NOT_FOUND: &str = "-32002";
/// The code that modern revisions use for it, among others.
const INVALID_PARAMS: i64 = -32602;

impl LegacyFace {
    /// Takes a message of the server.
    pub(super) async fn received(self: &Arc<Self>, message: Message, related: Option<RequestId>) {
        let Some(envelope) = message.single().cloned() else {
            // Modern revisions have no batches.
            return self.events.received(message, self.owner_of(related)).await;
        };
        if envelope.is_response() {
            self.answered(message, &envelope, related).await;
        } else if envelope.method() == Some("notifications/cancelled") {
            self.server_cancelled(&message, &envelope);
        } else if let Some(stream) = stream_of(&message, &envelope, related.as_ref()) {
            self.heard(&stream, message, &envelope).await;
        } else {
            self.events.received(message, self.owner_of(related)).await;
        }
    }

    /// Takes note that a request will get no answer.
    pub(super) async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        if self.stream_ended(&request, Opened::Ended(error.clone())) {
            return;
        }
        let client = {
            let mut state = self.state();
            let client = state.requests.owner(&request).cloned();
            if let Some(client) = &client {
                state.requests.end(client);
            }
            client
        };
        match client {
            Some(client) if client == request => self.events.unanswered(client, error).await,
            // The part of the request that was processed is not to be repeated.
            Some(client) if error == UpstreamError::SessionExpired => {
                let error = UpstreamError::NoAnswer;
                self.events.unanswered(client, error).await;
            }
            Some(client) => self.events.unanswered(client, error).await,
            None if is_own(&request) => {}
            None => self.events.unanswered(request, error).await,
        }
    }

    /// Takes note that the connection is over.
    pub(super) async fn lost(&self, error: UpstreamError) {
        let open = self.state().requests.end_all();
        self.closing.cancel();
        for (input, owner) in open {
            self.withdraw(&input, &owner).await;
        }
        self.events.lost(error).await;
    }

    /// Passes an answer on under the client's own id, or does what it asks for.
    async fn answered(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
        related: Option<RequestId>,
    ) {
        // An error that names no request answers the one on whose stream it came.
        let Some(id) = envelope.id().or(related.as_ref()) else {
            return self.events.received(message, related).await;
        };
        let end = match message.error(envelope) {
            Some(error) => Opened::Refused(error.to_owned()),
            None => Opened::Ended(UpstreamError::NoAnswer),
        };
        if self.stream_ended(id, end) {
            return;
        }
        let owner = self.state().requests.owner(id).cloned();
        let Some(client) = owner else {
            // The answer to a request that was cancelled; of one that went upstream a second time
            // the client does not know the id.
            if !is_own(id) {
                let related = Some(id.clone());
                self.events.received(message, related).await;
            }
            return;
        };
        let result = message.result(envelope);
        if let Some(result) = result.filter(|result| is_input_required(result)) {
            return self.input_required(client, result).await;
        }
        let ended = self.state().requests.end(&client);
        let is_read = ended.is_some_and(|ended| &*ended.method == "resources/read");
        let message = match message.error(envelope) {
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
        self.events.received(message, Some(client)).await;
    }

    /// A server takes back nothing but a stream of notifications.
    fn server_cancelled(&self, message: &Message, envelope: &Envelope) {
        let params = message.params(envelope);
        let id = params
            .and_then(|params| member(params, "requestId"))
            .and_then(RequestId::from_json);
        if let Some(id) = id {
            self.stream_ended(&id, Opened::Ended(UpstreamError::NoAnswer));
        }
    }

    /// Takes what came on a stream of notifications.
    async fn heard(&self, stream: &RequestId, message: Message, envelope: &Envelope) {
        let params = message.params(envelope);
        if envelope.method() == Some("notifications/subscriptions/acknowledged") {
            let filter = params.and_then(|params| member(params, "notifications"));
            self.acknowledged(stream, filter.unwrap_or("{}"));
            return;
        }
        // While one stream takes the place of another, both bring the same.
        if !self.state().subscriptions.is_active(stream) {
            return;
        }
        let message = match params {
            Some(params) => message.with_params(&without_meta(params, SUBSCRIPTION_ID)),
            None => message,
        };
        self.events.received(message, None).await;
    }

    /// Returns the client's request on whose stream something came.
    fn owner_of(&self, related: Option<RequestId>) -> Option<RequestId> {
        let related = related?;
        match self.state().requests.owner(&related) {
            Some(client) => Some(client.clone()),
            None => (!is_own(&related)).then_some(related),
        }
    }
}

/// Returns the `subscriptions/listen` that a notification belongs to.
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
        let is_stream = matches!(related?, RequestId::Text(id) if id.starts_with("riglm:listen:"));
        is_stream.then(|| related.cloned()).flatten()
    })
}

/// Returns whether an error of `resources/read` says that there is no such resource: modern
/// revisions have no code for that, but the error names the URI.
fn is_not_found(error: &str) -> bool {
    code(error) == Some(INVALID_PARAMS)
        && member(error, "data").is_some_and(|data| member(data, "uri").is_some())
}
