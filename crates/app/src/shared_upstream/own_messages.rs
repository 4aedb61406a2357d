//! What a hub tells the server by itself.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::message::Message;
use riglm_ports::upstream::{Sent, UpstreamError};

use super::hub::{Hub, Leftover};
use super::outgoing::Link;
use super::requests::Purpose;
use super::rewriting::id_of;

/// The longest that a message of the hub's own may take to be sent or answered.
const OWN_LIMIT: Duration = Duration::from_secs(10);

impl Hub {
    /// Takes back what a session that left had asked for.
    pub(super) async fn give_up(self: &Arc<Self>, link: &Link, leftover: Leftover) {
        if !self.takes_sessions() {
            return;
        }
        let giving_up = async {
            for number in leftover.requests {
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the session ended"}}}}"#,
                    id_of(number)
                );
                self.say(link, text).await;
            }
            let _order = self.in_order.lock().await;
            for uri in leftover.resources {
                self.unsubscribe_for_nobody(link, &uri).await;
            }
        };
        if tokio::time::timeout(OWN_LIMIT, giving_up).await.is_err() {
            tracing::debug!("upstream {} could not be told of an end", self.name);
        }
    }

    async fn unsubscribe_for_nobody(self: &Arc<Self>, link: &Link, uri: &str) {
        let number = {
            let mut state = self.state();
            // Somebody may have come back to it meanwhile.
            if state.subscriptions.is_known(uri) {
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
        self.say(link, text).await;
    }

    /// Sends text of the hub's own.
    pub(super) async fn say(self: &Arc<Self>, link: &Link, text: String) {
        let Ok(message) = Message::from_text(text) else {
            return;
        };
        if let Err(error) = self.send_own(link, message).await {
            tracing::debug!("upstream {} could not be told: {error}", self.name);
        }
    }

    /// Sends a message whose exchange no session drives, and waits until it is on its way.
    pub(super) async fn send_own(
        self: &Arc<Self>,
        link: &Link,
        message: Message,
    ) -> Result<(), UpstreamError> {
        if let Sent::UnderWay(exchange) = link.send(message).await? {
            let hub = Arc::clone(self);
            self.tasks.spawn(async move {
                let over = hub.over();
                over.run_until_cancelled(exchange.run).await;
            });
            // What does not get on its way is reported; others need not wait for that.
            let _ = tokio::time::timeout(OWN_LIMIT, exchange.on_its_way).await;
        }
        Ok(())
    }
}
