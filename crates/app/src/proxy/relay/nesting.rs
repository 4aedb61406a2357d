//! Protection against deeply nested messages of an upstream. They make parsers of clients fail, and
//! can crash a client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;

use super::Relay;

impl Relay {
    /// Drops a message that is nested deeper than `limit`. Requests that it answers fail with an
    /// error, and requests of the upstream in it get an error.
    pub(super) async fn drop_nested(
        self: &Arc<Self>,
        message: &Message,
        related: Option<RequestId>,
        limit: usize,
    ) {
        for part in message.envelopes() {
            match (part.kind(), part.id()) {
                (MessageKind::Success | MessageKind::Failure, id) => {
                    if let Some(id) = id.or(related.as_ref()) {
                        let error = UpstreamError::TooDeep { limit };
                        self.on_unanswered(id, &error).await;
                    }
                }
                (MessageKind::Request, Some(id)) => self.refuse_nested(id, limit).await,
                (MessageKind::Request | MessageKind::Notification, _) => {
                    self.note_nested(part, limit);
                }
            }
        }
    }

    async fn refuse_nested(&self, id: &RequestId, limit: usize) {
        let text = format!("the request is nested deeper than {limit} levels");
        let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
        let (Some(live), Ok(answer)) = (
            self.connection.current(),
            Message::from_text(error.to_json(Some(id))),
        ) else {
            return;
        };
        if let Err(error) = live.link.send(answer).await {
            tracing::debug!("failed to send the rejection of a request to the upstream: {error}");
        }
    }

    /// Logs a dropped notification, as a warning for the first one of a session.
    fn note_nested(&self, notification: &Envelope, limit: usize) {
        let upstream = self.upstream();
        let method = notification.method().unwrap_or_default();
        if self.has_warned_of_nesting.swap(true, Ordering::Relaxed) {
            tracing::debug!(
                %upstream,
                method,
                "dropped a notification of upstream {upstream} that is nested deeper than {limit} levels"
            );
        } else {
            tracing::warn!(
                %upstream,
                method,
                "dropped a notification of upstream {upstream} that is nested deeper than {limit} levels \
                 (limits.message_depth; later ones are logged at debug)"
            );
        }
    }
}
