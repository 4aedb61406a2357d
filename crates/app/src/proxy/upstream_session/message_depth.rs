//! Protection against deeply nested messages of an upstream. They make parsers of clients fail, and
//! can crash a client.

use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

/// Returns the answer to a request of an upstream that is nested deeper than `limit`.
pub(super) fn nested_request_error(id: &RequestId, limit: usize) -> Option<Message> {
    let text = format!("the request is nested deeper than {limit} levels");
    let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
    Message::from_text(error.to_json(Some(id))).ok()
}

/// Logs dropped notifications, as a warning for the first one of a session.
#[derive(Debug, Default)]
pub(super) struct NestingLog {
    has_warned: AtomicBool,
}

impl NestingLog {
    pub(super) fn note(&self, upstream: &UpstreamName, notification: &Envelope, limit: usize) {
        let method = notification.method().unwrap_or_default();
        if self.has_warned.swap(true, Ordering::Relaxed) {
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
