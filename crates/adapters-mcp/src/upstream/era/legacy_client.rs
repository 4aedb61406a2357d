//! The bridge for legacy clients on upstreams that speak modern revisions only.
//!
//! The client sees a legacy server. `initialize` is answered from `server/discover` (`welcome`).
//! Each request goes upstream with the client's description of itself (`identity`). If the server
//! needs input, the client gets requests from the bridge (`multi_round_calls`). If it answers with a
//! task, the bridge waits for its result (`awaited_tasks`). One
//! `subscriptions/listen` stream supplies the notifications that legacy servers send unasked
//! (`listening`). Both use the `peers`. `sending` and `receiving` give each message to one of them.
//!
//! Members of a batch are sent and answered one by one, as revision 2025-03-26 allows.

mod awaited_tasks;
mod identity;
mod inputs;
mod listening;
mod multi_round_calls;
mod peers;
mod receiving;
mod requests;
mod sending;
mod subscriptions;
mod welcome;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::mcp::message::Message;
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio_util::sync::DropGuard;

use self::listening::NotificationStream;
use self::multi_round_calls::MultiRoundCalls;
use self::peers::Peers;
use super::options::BridgeOptions;

/// Presents a modern upstream as a legacy server.
#[derive(Debug)]
pub(super) struct LegacyClientLink {
    peers: Arc<Peers>,
    calls: Arc<MultiRoundCalls>,
    stream: Arc<NotificationStream>,
    /// Stops the tasks of the link if it is dropped without `close`.
    _closing: DropGuard,
}

impl LegacyClientLink {
    /// Returns a link over `inner`. The caller must pass it the events of `inner`; `events`
    /// receives the messages for the client. The caller keeps the ownership of the connection.
    pub(super) fn new(
        inner: Arc<dyn UpstreamLink>,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        let peers = Arc::new(Peers::new(inner, events, options));
        let closing = peers.tasks.closing().clone().drop_guard();
        Self {
            calls: Arc::new(MultiRoundCalls::new(Arc::clone(&peers))),
            stream: Arc::new(NotificationStream::new(Arc::clone(&peers))),
            peers,
            _closing: closing,
        }
    }

    /// Returns whether the link uses this connection.
    pub(super) fn uses_link(&self, inner: &Arc<dyn UpstreamLink>) -> bool {
        Arc::ptr_eq(&self.peers.server, inner)
    }

    /// Answers a handshake with the result of `server/discover`, and stores the descriptions of
    /// client and server.
    pub(super) async fn welcome(&self, initialize: &Message, discovered: &str) {
        let Some(envelope) = initialize.single() else {
            return;
        };
        let Some((_, id)) = envelope.as_request() else {
            return;
        };
        let params = initialize.params(envelope).unwrap_or("{}");
        self.peers.identity.lock().introduce(params);
        self.stream.set_offer(welcome::offer(discovered));
        let result = welcome::initialize_result(params, discovered);
        self.peers.answer(id, &result).await;
    }
}

#[async_trait]
impl UpstreamLink for LegacyClientLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if message.is_batch() {
            self.send_each(&message).await
        } else {
            self.send_one(message).await
        }
    }

    fn time_to_start(&self) -> Option<Duration> {
        self.peers.server.time_to_start()
    }

    fn has_streams(&self) -> bool {
        self.peers.server.has_streams()
    }

    /// Stops the tasks of the link. The owner closes the connection.
    async fn close(&self) {
        self.peers.close().await;
    }
}
