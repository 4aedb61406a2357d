//! The messages that a hub sends to the server by itself.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::message::Message;
use riglm_ports::upstream::{SendOutcome, UpstreamError};

use super::hub::{Hub, Leftover};
use super::outgoing::Link;
use super::requests::Purpose;
use super::rewriting::id_of;

/// The timeout for sending a message of the hub.
const OWN_LIMIT: Duration = Duration::from_secs(10);

impl Hub {
    /// Cancels the requests and subscriptions of a session that left.
    pub(super) async fn release(self: &Arc<Self>, link: &Link, leftover: Leftover) {
        if !self.takes_sessions() {
            return;
        }
        let giving_up = async {
            for number in leftover.requests {
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the session ended"}}}}"#,
                    id_of(number)
                );
                self.send_text(link, text).await;
            }
            let _order = self.in_order.lock().await;
            for uri in leftover.resources {
                self.unsubscribe_unused(link, &uri).await;
            }
        };
        if tokio::time::timeout(OWN_LIMIT, giving_up).await.is_err() {
            tracing::debug!(
                "upstream {}: timeout while cancelling the requests of an ended session",
                self.name
            );
        }
    }

    async fn unsubscribe_unused(self: &Arc<Self>, link: &Link, uri: &str) {
        let number = {
            let mut state = self.state.lock();
            // Another session may have subscribed in the meantime.
            if state.subscriptions.has_subscribers(uri) {
                return;
            }
            state.requests.open(Purpose::Own, None, None)
        };
        let Some(number) = number else {
            return;
        };
        let uri = serde_json::Value::from(uri);
        let id = id_of(number);
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/unsubscribe","params":{{"uri":{uri}}}}}"#
        );
        self.send_text(link, text).await;
    }

    /// Sends a message of the hub, given as JSON text. Errors are only logged.
    pub(super) async fn send_text(self: &Arc<Self>, link: &Link, text: String) {
        let Ok(message) = Message::from_text(text) else {
            return;
        };
        if let Err(error) = self.send_own(link, message).await {
            tracing::debug!(
                "upstream {}: failed to send a message over the shared connection: {error}",
                self.name
            );
        }
    }

    /// Sends a message whose exchange no session drives, and waits until it has been sent.
    pub(super) async fn send_own(
        self: &Arc<Self>,
        link: &Link,
        message: Message,
    ) -> Result<(), UpstreamError> {
        if let SendOutcome::UnderWay(exchange) = link.send(message).await? {
            let hub = Arc::clone(self);
            self.tasks.spawn(async move {
                let over = hub.ended_token();
                over.run_until_cancelled(exchange.run).await;
            });
            // A failure to send is reported through the events. The callers must not wait longer
            // than this for it.
            let _ = tokio::time::timeout(OWN_LIMIT, exchange.on_its_way).await;
        }
        Ok(())
    }
}
