//! The sending half of a Streamable HTTP session: messages go to the event log, from where the
//! bodies of POST and GET take them.

use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::message::{Message, RequestId};
use riglm_ports::downstream::{ClientLink, Route};

use super::event_log::EventLog;

/// The way to a client over Streamable HTTP.
#[derive(Debug)]
pub(super) struct HttpLink {
    pub(super) log: Arc<EventLog>,
}

impl HttpLink {
    pub(super) fn new() -> Self {
        Self {
            log: Arc::new(EventLog::new()),
        }
    }
}

#[async_trait]
impl ClientLink for HttpLink {
    async fn deliver(&self, message: Message, route: Route) {
        self.log.push(&message, &route).await;
    }

    async fn finish(&self, request: &RequestId) {
        self.log.finish(request);
    }

    async fn close(&self) {
        self.log.close();
    }
}
