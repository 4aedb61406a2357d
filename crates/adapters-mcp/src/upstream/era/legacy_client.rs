//! The bridge for legacy clients on upstreams that speak modern revisions only.
//!
//! The client sees a legacy server. `initialize` is answered from `server/discover` (`welcome`).
//! Each request goes upstream with the client's description of itself (`identity`). If the server
//! needs input, the client gets requests from the bridge (multi-round calls). One
//! `subscriptions/listen` stream supplies the notifications that legacy servers send unasked
//! (`listening`).
//!
//! Members of a batch are sent and answered one by one, as revision 2025-03-26 allows.

mod identity;
mod inputs;
mod listening;
mod multi_round_calls;
mod receiving;
mod requests;
mod sending;
mod subscriptions;
mod welcome;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_ports::upstream::{Exchange, SendOutcome, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::identity::Identity;
use self::requests::Requests;
use self::subscriptions::Subscriptions;
use super::options::BridgeOptions;

/// Presents a modern upstream as a legacy server.
#[derive(Debug)]
pub(super) struct LegacyClientLink {
    face: Arc<LegacyBridge>,
    /// Stops the tasks of the link if it is dropped without `close`.
    closing: DropGuard,
}

/// The state that the link and its tasks share.
#[derive(Debug)]
struct LegacyBridge {
    inner: Arc<dyn UpstreamLink>,
    events: Arc<dyn UpstreamEvents>,
    options: BridgeOptions,
    state: Mutex<LegacyState>,
    /// Wakes the task that maintains the notification stream.
    changed: Notify,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// The mutable state of the link.
#[derive(Debug, Default)]
struct LegacyState {
    identity: Identity,
    requests: Requests,
    subscriptions: Subscriptions,
    n_ids: u64,
}

impl LegacyState {
    /// Returns a new id of the bridge.
    fn next_id(&mut self, kind: InternalRequest) -> RequestId {
        self.n_ids += 1;
        kind.id(self.n_ids)
    }
}

impl LegacyClientLink {
    /// Returns a link over `inner`. The caller must pass it the events of `inner`; `events`
    /// receives the messages for the client. The caller keeps the ownership of the connection.
    pub(super) fn new(
        inner: Arc<dyn UpstreamLink>,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        let closing = CancellationToken::new();
        Self {
            closing: closing.clone().drop_guard(),
            face: Arc::new(LegacyBridge {
                inner,
                events,
                options,
                state: Mutex::default(),
                changed: Notify::new(),
                closing,
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Returns whether the link uses this connection.
    pub(super) fn uses_link(&self, inner: &Arc<dyn UpstreamLink>) -> bool {
        Arc::ptr_eq(&self.face.inner, inner)
    }

    /// Answers a handshake with the result of `server/discover`.
    pub(super) async fn welcome(&self, initialize: &Message, discovered: &str) {
        self.face.welcome(initialize, discovered).await;
    }
}

#[async_trait]
impl UpstreamLink for LegacyClientLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if message.is_batch() {
            self.face.send_each(&message).await
        } else {
            self.face.send_one(message).await
        }
    }

    fn has_streams(&self) -> bool {
        self.face.inner.has_streams()
    }

    /// Stops the tasks of the link. The owner closes the connection.
    async fn close(&self) {
        self.closing.token().cancel();
        self.face.tasks.close();
        self.face.tasks.wait().await;
    }
}

#[async_trait]
impl UpstreamEvents for LegacyClientLink {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        self.face.on_message(message, related).await;
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        self.face.on_unanswered(request, error).await;
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.face.on_lost(error).await;
    }
}

impl LegacyBridge {
    /// Answers a request of the client with a result.
    async fn answer(&self, id: &RequestId, result: &str) {
        self.deliver(Message::success(id, result), id).await;
    }

    /// Answers a request of the client with an error of the bridge.
    async fn refuse(&self, id: &RequestId, error: &RpcError) {
        self.deliver(error.to_message(Some(id)), id).await;
    }

    /// Delivers a message of the bridge that belongs to a request of the client.
    async fn deliver(&self, message: Message, related: &RequestId) {
        self.events.on_message(message, Some(related.clone())).await;
    }

    /// Runs an exchange to its end.
    fn drive(&self, exchange: Exchange) {
        self.spawn(exchange.run);
    }

    /// Runs a task until it ends or the link is closed.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => {}
                () = work => {}
            }
        });
    }
}
