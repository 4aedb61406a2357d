//! Legacy clients on upstreams that speak modern revisions only.
//!
//! The client sees a legacy server: `initialize` is answered from `server/discover` (`welcome`),
//! each request goes upstream with what the client said of itself (`identity`), a server that needs
//! input asks the client in requests of its own (`rounds`), and one stream of
//! `subscriptions/listen` brings what legacy servers send unasked (`listening`).
//!
//! Members of a batch are sent one by one and answered one by one, as revision 2025-03-26 allows.

mod identity;
mod inputs;
mod listening;
mod receiving;
mod requests;
mod rounds;
mod sending;
mod subscriptions;
mod welcome;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::RpcError;
use riglm_ports::upstream::{Exchange, Sent, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::identity::Identity;
use self::requests::Requests;
use self::subscriptions::Subscriptions;
use super::options::BridgeOptions;

/// A modern upstream as a legacy server.
#[derive(Debug)]
pub(super) struct LegacyClientLink {
    face: Arc<LegacyFace>,
    /// Ends what runs for the link when it is dropped without a close.
    closing: DropGuard,
}

/// What the link and its tasks have in common.
#[derive(Debug)]
struct LegacyFace {
    inner: Arc<dyn UpstreamLink>,
    events: Arc<dyn UpstreamEvents>,
    options: BridgeOptions,
    state: Mutex<State>,
    /// Wakes the task that listens.
    changed: Notify,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// What the link remembers between messages.
#[derive(Debug, Default)]
struct State {
    identity: Identity,
    requests: Requests,
    subscriptions: Subscriptions,
    n_ids: u64,
}

impl State {
    /// Returns an id of the bridge's own.
    fn next_id(&mut self, what: &str) -> RequestId {
        self.n_ids += 1;
        RequestId::Text(format!("riglm:{what}:{}", self.n_ids).into())
    }
}

impl LegacyClientLink {
    /// Returns a link over `inner`, whose events have to be handed to it; `events` gets what is for
    /// the client. The connection stays with the caller.
    pub(super) fn new(
        inner: Arc<dyn UpstreamLink>,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        let closing = CancellationToken::new();
        Self {
            closing: closing.clone().drop_guard(),
            face: Arc::new(LegacyFace {
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
    pub(super) fn stands_on(&self, inner: &Arc<dyn UpstreamLink>) -> bool {
        Arc::ptr_eq(&self.face.inner, inner)
    }

    /// Answers a handshake with what the server said of itself: the result of `server/discover`.
    pub(super) async fn welcome(&self, initialize: &Message, discovered: &str) {
        self.face.welcome(initialize, discovered).await;
    }
}

#[async_trait]
impl UpstreamLink for LegacyClientLink {
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        if message.is_batch() {
            self.face.send_each(&message).await
        } else {
            self.face.send_one(message).await
        }
    }

    fn has_streams(&self) -> bool {
        self.face.inner.has_streams()
    }

    /// Ends what runs for the link. The connection is closed by who made it.
    async fn close(&self) {
        self.closing.token().cancel();
        self.face.tasks.close();
        self.face.tasks.wait().await;
    }
}

#[async_trait]
impl UpstreamEvents for LegacyClientLink {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        self.face.received(message, related).await;
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        self.face.unanswered(request, error).await;
    }

    async fn lost(&self, error: UpstreamError) {
        self.face.lost(error).await;
    }
}

impl LegacyFace {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request of the client with a result.
    async fn answer(&self, id: &RequestId, result: &str) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        self.deliver(text, Some(id.clone())).await;
    }

    /// Answers a request of the client with an error of the bridge.
    async fn refuse(&self, id: &RequestId, error: &RpcError) {
        self.deliver(error.to_json(Some(id)), Some(id.clone()))
            .await;
    }

    /// Hands a message of the bridge's own to the client.
    async fn deliver(&self, text: String, related: Option<RequestId>) {
        match Message::from_text(text) {
            Ok(message) => self.events.received(message, related).await,
            Err(source) => tracing::error!("a message of the bridge is none: {source}"),
        }
    }

    /// Has an exchange run to its end.
    fn drive(&self, exchange: Exchange) {
        self.spawn(exchange.run);
    }

    /// Runs something until it ends or the link is closed.
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
