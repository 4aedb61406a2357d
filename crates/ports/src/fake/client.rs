//! A client that remembers what it was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use riglm_domain::message::{Message, RequestId};

use crate::downstream::{ClientLink, Route};

/// Remembers every message with its route, in order.
#[derive(Debug, Default)]
pub struct RecordingClient {
    delivered: Mutex<Vec<(String, Route)>>,
    finished: Mutex<Vec<RequestId>>,
    is_closed: AtomicBool,
}

impl RecordingClient {
    /// Returns what was delivered: the text of each message and its route.
    pub fn delivered(&self) -> Vec<(String, Route)> {
        self.delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the requests whose streams were ended without an answer.
    pub fn finished(&self) -> Vec<RequestId> {
        self.finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns whether the session was ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl ClientLink for RecordingClient {
    async fn deliver(&self, message: Message, route: Route) {
        if self.is_closed() {
            return;
        }
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((text, route));
    }

    async fn finish(&self, request: &RequestId) {
        self.finished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request.clone());
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}
