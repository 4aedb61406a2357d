//! Messages of an upstream that are nested too deep: parsers of clients fail at them, and some of them
//! take down the client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;

use super::Relay;

impl Relay {
    /// Drops a message that is nested deeper than `limit`. The requests that it answers are answered
    /// with an error, and so are requests of the upstream in it.
    pub(super) async fn drop_nested(
        self: &Arc<Self>,
        message: &Message,
        related: Option<RequestId>,
        limit: usize,
    ) {
        for part in message.envelopes() {
            match (part.kind(), part.id()) {
                (Kind::Success | Kind::Failure, id) => {
                    if let Some(id) = id.or(related.as_ref()) {
                        let error = UpstreamError::TooDeep { limit };
                        self.not_answered(id, &error).await;
                    }
                }
                (Kind::Request, Some(id)) => self.refuse_nested(id, limit).await,
                (Kind::Request | Kind::Notification, _) => self.note_nested(part, limit),
            }
        }
    }

    /// Answers a request of the upstream.
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
            tracing::debug!("the upstream could not be told that its request was dropped: {error}");
        }
    }

    /// Logs that a notification was dropped: the first one of a session so that operators see it.
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
