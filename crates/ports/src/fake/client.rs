//! A client link that records the messages sent to it.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, RequestId};

use crate::downstream::{ClientLink, Route};

/// Records every message with its route, in order.
#[derive(Debug, Default)]
pub struct RecordingClient {
    delivered: Mutex<Vec<(String, Route)>>,
    finished: Mutex<Vec<RequestId>>,
    is_closed: AtomicBool,
}

impl RecordingClient {
    /// Returns the delivered messages: the text of each one and its route.
    pub fn delivered_messages(&self) -> Vec<(String, Route)> {
        self.delivered.lock().clone()
    }

    /// Returns the requests whose streams were ended without an answer.
    pub fn finished_requests(&self) -> Vec<RequestId> {
        self.finished.lock().clone()
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
        self.delivered.lock().push((text, route));
    }

    async fn finish(&self, request: &RequestId) {
        if !self.is_closed() {
            self.finished.lock().push(request.clone());
        }
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}
