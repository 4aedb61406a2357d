//! Presents a legacy server as one of revision 2026-07-28.
//!
//! What a modern client says of itself with each request becomes the handshake of a legacy
//! connection (`welcome`, `connection`, `opening`); there is one for each set of capabilities and
//! log level. Requests go down under ids of the bridge's own (`calling`), and their answers
//! (`ending`) get what modern answers must have (`answers`). What the server asks meanwhile is put
//! to the client as the answer to its request (`asking`), under a sealed state (`request_state`)
//! with which a retry goes on (`resuming`). Notifications of changes go to who listens
//! (`listening`, `subscription`); `sweeping` ends what is over by itself.
//!
//! All that is remembered lies in `state`, behind one lock that is never held while waiting.

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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::join_all;
use riglm_domain::edit;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::principal::Principal;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{
    Exchange, Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use self::call::takes_input;
use self::connection::lost;
use self::request_state::Seal;
use self::state::State;
use super::options::BridgeOptions;

/// How many answers to servers may be on their way at the same time.
const MAX_REPLIES: usize = 64;

/// A link that takes modern requests and speaks with a legacy server.
#[derive(Debug)]
pub struct ModernClientLink {
    core: Arc<Core>,
}

impl ModernClientLink {
    /// Returns a link for one client, which opens connections of `inner` on behalf of `principal`
    /// as requests need them, and reports to `events`.
    #[must_use]
    pub fn new(
        inner: Arc<dyn UpstreamConnector>,
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Arc<Self> {
        let core = Core {
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
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        if self.core.is_closed() {
            return Err(lost());
        }
        let Some(envelope) = message.single() else {
            self.core.refuse_batch(&message).await;
            return Ok(Sent::Delivered);
        };
        match envelope.kind() {
            Kind::Request => self.core.take_request(&message, envelope).await,
            Kind::Notification => {
                self.core.take_notification(&message, envelope).await;
                Ok(Sent::Delivered)
            }
            // Modern clients answer in their retries.
            Kind::Success | Kind::Failure => Ok(Sent::Delivered),
        }
    }

    fn has_streams(&self) -> bool {
        true
    }

    /// A call that waits for what the client was asked is needed until its state expires.
    fn is_needed(&self) -> bool {
        !self.core.state().parked.is_empty()
    }

    async fn close(&self) {
        self.core.closing.cancel();
        let state = std::mem::take(&mut *self.core.state());
        let connections = state.connections.into_values();
        join_all(connections.map(|connection| async move {
            connection.close().await;
            connection.end(lost());
        }))
        .await;
    }
}

/// What the tasks and the connections of a link share.
#[derive(Debug)]
struct Core {
    inner: Arc<dyn UpstreamConnector>,
    principal: Principal,
    events: Arc<dyn UpstreamEvents>,
    seal: Seal,
    options: BridgeOptions,
    state: Mutex<State>,
    closing: CancellationToken,
    /// Told when something with a deadline came.
    changed: Notify,
    replies: Arc<Semaphore>,
}

impl Core {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Runs `work` until its end or that of the link.
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

    /// Runs `work` on a task of its own, whether or not the exchange is driven, and returns the
    /// exchange that ends with it.
    fn under_way(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) -> Sent {
        let sent = CancellationToken::new();
        let guard = sent.clone().drop_guard();
        self.spawn(async move {
            work.await;
            drop(guard);
        });
        Sent::UnderWay(Exchange {
            run: Box::pin(sent.clone().cancelled_owned()),
            on_its_way: Box::pin(sent.cancelled_owned()),
        })
    }

    async fn take_request(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<Sent, UpstreamError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(Sent::Delivered);
        };
        if self.state().is_in_flight(id) {
            return Err(UpstreamError::Garbled {
                reason: "a request with this id is in flight already",
            });
        }
        let meta = RequestMeta::read(message.params(envelope));
        let checked = meta.check_spoken();
        if let Err(error) = checked.and_then(|()| meta.check_complete(method)) {
            self.deliver_error(id, &error).await;
            return Ok(Sent::Delivered);
        }
        if method == "subscriptions/listen" {
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
        if envelope.method() == Some("notifications/cancelled") {
            self.cancel(message, envelope).await;
        } else {
            tracing::debug!("a notification that concerns no request was dropped");
        }
    }

    async fn refuse_batch(&self, message: &Message) {
        let error = RpcError::new(
            RpcErrorCode::InvalidRequest,
            "the revision of these requests has no JSON-RPC batches",
        );
        for id in message.request_ids() {
            self.deliver_error(id, &error).await;
        }
    }

    /// Reports a message that belongs to a request of the client.
    async fn deliver(&self, message: Option<Message>, to: &RequestId) {
        if self.is_closed() {
            return;
        }
        if let Some(message) = message {
            self.events.received(message, Some(to.clone())).await;
        } else {
            let reason = "it cannot be put into a message of this revision";
            self.unanswered(to, UpstreamError::Garbled { reason }).await;
        }
    }

    async fn deliver_error(&self, id: &RequestId, error: &RpcError) {
        self.deliver(answers::failure(id, error), id).await;
    }

    async fn unanswered(&self, id: &RequestId, error: UpstreamError) {
        if self.is_closed() {
            return;
        }
        // The session that expired is the bridge's own; this link goes on.
        let error = match error {
            UpstreamError::SessionExpired => lost(),
            error => error,
        };
        self.events.unanswered(id.clone(), error).await;
    }
}
