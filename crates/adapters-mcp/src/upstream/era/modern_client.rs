//! The bridge for modern clients: presents a legacy server as a server of revision 2026-07-28.
//!
//! The description that a modern client sends with each request becomes the handshake of a legacy
//! connection (`welcome`, `connection`, `opening`). There is one connection for each set of
//! capabilities and log level. Requests are sent under ids of the bridge (`calling`). Their answers
//! (`ending`) get the members that modern answers require (`answers`). A question of the server
//! during a call becomes the answer to the client's request (`asking`), with a sealed state
//! (`request_state`) by which a retry continues (`resuming`). Change notifications go to listening
//! clients (`listening`, `subscription`). `sweeping` ends expired calls and connections.
//!
//! All mutable state is in `state`, behind one lock that is never held over an await.

mod answers;
mod asking;
mod call;
mod calling;
mod connection;
mod ending;
mod from_server;
mod listening;
mod opening;
mod request_state;
mod resuming;
mod state;
mod subscription;
mod sweeping;
mod welcome;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    Exchange, SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use self::call::takes_input;
use self::connection::connection_lost;
use self::request_state::Seal;
use self::state::BridgeState;
use super::options::BridgeOptions;

/// The maximum number of answers to servers that wait to be sent.
const MAX_REPLIES: usize = 64;

/// A link that accepts modern requests and connects to a legacy server.
#[derive(Debug)]
pub struct ModernClientLink {
    core: Arc<ModernBridge>,
}

impl ModernClientLink {
    /// Returns a link for one client. It opens connections of `inner` for `principal` on demand,
    /// and reports to `events`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn UpstreamConnector>,
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Arc<Self> {
        let core = ModernBridge {
            inner,
            principal,
            events,
            seal: Seal::new(&options.state_key),
            options,
            state: Mutex::default(),
            closing: CancellationToken::new(),
            changed: Notify::new(),
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        };
        Arc::new(Self {
            core: Arc::new(core),
        })
    }
}

impl Drop for ModernClientLink {
    fn drop(&mut self) {
        self.core.closing.cancel();
    }
}

#[async_trait]
impl UpstreamLink for ModernClientLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if self.core.is_closed() {
            return Err(connection_lost());
        }
        let Some(envelope) = message.single() else {
            self.core.refuse_batch(&message).await;
            return Ok(SendOutcome::Delivered);
        };
        match envelope.kind() {
            MessageKind::Request => self.core.take_request(&message, envelope).await,
            MessageKind::Notification => {
                self.core.take_notification(&message, envelope).await;
                Ok(SendOutcome::Delivered)
            }
            // Modern clients send their answers in retries of the request.
            MessageKind::Success | MessageKind::Failure => Ok(SendOutcome::Delivered),
        }
    }

    fn has_streams(&self) -> bool {
        true
    }

    /// A call that waits for input of the client is needed until its state expires.
    fn is_needed(&self) -> bool {
        !self.core.state.lock().parked.is_empty()
    }

    async fn close(&self) {
        self.core.closing.cancel();
        let state = std::mem::take(&mut *self.core.state.lock());
        let connections = state.connections.into_values();
        join_all(connections.map(|connection| async move {
            connection.close().await;
            connection.end(connection_lost());
        }))
        .await;
    }
}

/// The state that the tasks and the connections of a link share.
#[derive(Debug)]
struct ModernBridge {
    inner: Arc<dyn UpstreamConnector>,
    principal: Principal,
    events: Arc<dyn UpstreamEvents>,
    seal: Seal,
    options: BridgeOptions,
    state: Mutex<BridgeState>,
    closing: CancellationToken,
    // Wakes `sweep` when a new deadline was added.
    changed: Notify,
    replies: Arc<Semaphore>,
}

impl ModernBridge {
    fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Runs `work` until it ends or the link is closed.
    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Runs `work` on a separate task, whether or not the exchange is driven. Returns the exchange,
    /// which ends with the work.
    fn under_way(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) -> SendOutcome {
        let sent = CancellationToken::new();
        let guard = sent.clone().drop_guard();
        self.spawn(async move {
            work.await;
            drop(guard);
        });
        SendOutcome::UnderWay(Exchange {
            run: Box::pin(sent.clone().cancelled_owned()),
            on_its_way: Box::pin(sent.cancelled_owned()),
        })
    }

    async fn take_request(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<SendOutcome, UpstreamError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(SendOutcome::Delivered);
        };
        if self.state.lock().is_in_flight(id) {
            return Err(UpstreamError::Garbled {
                reason: "a request with this id is already in flight",
            });
        }
        let meta = RequestMeta::read(message.params(envelope));
        let checked = meta.check_revision();
        if let Err(error) = checked.and_then(|()| meta.check_complete(method)) {
            self.deliver_error(id, &error).await;
            return Ok(SendOutcome::Delivered);
        }
        if method == method::SUBSCRIPTIONS_LISTEN {
            return self.listen(message, envelope, id).await;
        }
        let params = message.params(envelope);
        let request_state = params
            .and_then(|params| edit::member(params, "requestState"))
            .filter(|state| *state != "null");
        match request_state {
            Some(state) if takes_input(method) => {
                self.retry(message, envelope, (method, id), state).await
            }
            _ => self.call(message, envelope, (method, id), 0).await,
        }
    }

    async fn take_notification(self: &Arc<Self>, message: &Message, envelope: &Envelope) {
        if envelope.method() == Some(method::NOTIFICATIONS_CANCELLED) {
            self.cancel(message, envelope).await;
        } else {
            tracing::debug!("dropped a notification that belongs to no request");
        }
    }

    async fn refuse_batch(&self, message: &Message) {
        let error = RpcError::new(
            RpcErrorCode::InvalidRequest,
            "this protocol revision does not support JSON-RPC batches",
        );
        for id in message.request_ids() {
            self.deliver_error(id, &error).await;
        }
    }

    /// Delivers a message that belongs to a request of the client.
    async fn deliver(&self, message: Message, to: &RequestId) {
        if !self.is_closed() {
            self.events.on_message(message, Some(to.clone())).await;
        }
    }

    async fn deliver_error(&self, id: &RequestId, error: &RpcError) {
        self.deliver(error.to_message(Some(id)), id).await;
    }

    async fn report_unanswered(&self, id: &RequestId, error: UpstreamError) {
        if self.is_closed() {
            return;
        }
        // The expired session is internal to the bridge. The link itself stays valid.
        let error = match error {
            UpstreamError::SessionExpired => connection_lost(),
            error => error,
        };
        self.events.on_unanswered(id.clone(), error).await;
    }
}
