//! The exchanges under way, by the requests in them, so that a cancellation finds its own.
//!
//! A server need not answer a request that was cancelled, and may leave its stream open for
//! ever; the exchange has to end nevertheless.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use riglm_domain::message::{Message, RequestId};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// What cancels each open request.
#[derive(Debug, Default)]
pub(super) struct OpenExchanges(Mutex<HashMap<RequestId, CancellationToken>>);

impl OpenExchanges {
    /// Enters an exchange; the token is signalled should the client cancel one of `requests`.
    pub(super) fn enter(&self, requests: &[RequestId]) -> CancellationToken {
        let cancelled = CancellationToken::new();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for request in requests {
            open.insert(request.clone(), cancelled.clone());
        }
        cancelled
    }

    /// Forgets an exchange.
    pub(super) fn leave(&self, requests: &[RequestId]) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for request in requests {
            open.remove(request);
        }
    }

    /// Tells the exchange that a `notifications/cancelled` names.
    pub(super) fn note_cancelled(&self, message: &Message) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let params = message
            .single()
            .and_then(|envelope| message.params(envelope));
        let Some(Ok(Cancelled { request_id })) = params.map(serde_json::from_str) else {
            return;
        };
        let Some(request) = RequestId::from_json(request_id.get()) else {
            return;
        };
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cancelled) = open.get(&request) {
            cancelled.cancel();
        }
    }
}
