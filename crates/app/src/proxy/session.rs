//! One client, connected over one transport session, and its way to the upstream.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use riglm_domain::id::{SessionId, ToolName};
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_domain::protocol::{Revision, Transport};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::session::ClientInfo;
use riglm_ports::downstream::ClientLink;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::pending::{Pending, PendingTable};
use super::shared::Shared;
use crate::tracking::SessionDetails;

/// The longest that a client may take to be told that its requests end with the session.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The session of one client.
///
/// The downstream adapter hands it each message of the client and tells it when the client is
/// gone; everything for the client goes out through the [`ClientLink`] that it was made with.
#[derive(Debug)]
pub struct ClientSession {
    pub(super) shared: Arc<Shared>,
    pub(super) transport: Transport,
    pub(super) principal: Principal,
    pub(super) client: Arc<dyn ClientLink>,
    pub(super) connection: Connection,
    pub(super) state: Mutex<State>,
    started_at: Timestamp,
    row: OnceCell<SessionId>,
    n_calls: AtomicU64,
    is_closed: AtomicBool,
    /// Cancelled when the session begins to end.
    pub(super) closing: CancellationToken,
    ended: CancellationToken,
    has_fewer_pending: Notify,
    last_seen: Mutex<Instant>,
}

/// What a session remembers between messages.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The requests that wait for an answer.
    pub(super) pending: PendingTable,
    /// What the client says of itself.
    pub(super) client_info: ClientInfo,
    /// The revision that was agreed on, or asked for while that is not known.
    pub(super) revision: Option<Revision>,
    /// What has to be played back to an upstream that lost its state.
    pub(super) handshake: Handshake,
    /// The tools that the last list left out.
    pub(super) hidden: HashSet<ToolName>,
}

/// The messages by which the client set up its session, as it sent them.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshake {
    /// `initialize`, once it was answered with a result.
    pub(super) initialize: Option<Message>,
    /// `notifications/initialized`.
    pub(super) initialized: Option<Message>,
    /// The last `logging/setLevel`.
    pub(super) log_level: Option<Message>,
}

impl ClientSession {
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: Transport,
        principal: Principal,
        client: Arc<dyn ClientLink>,
    ) -> Arc<Self> {
        let started_at = shared.recorder.now();
        let connection = Connection::new(Arc::clone(&shared.connector), principal.clone());
        Arc::new(Self {
            shared,
            transport,
            principal,
            client,
            connection,
            state: Mutex::default(),
            started_at,
            row: OnceCell::new(),
            n_calls: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            has_fewer_pending: Notify::new(),
            last_seen: Mutex::new(Instant::now()),
        })
    }

    /// Returns who is calling.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the revision that was agreed on, or asked for while that is not known.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        self.state().revision.clone()
    }

    /// Returns whether a handshake was completed.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.state().handshake.initialize.is_some()
    }

    /// Returns whether the session has ended or is ending.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Notes that the client is there: a message came, or a stream to it is open.
    pub fn touch(&self) {
        *self
            .last_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns whether nothing was heard of the client for longer than the limit, and nothing is
    /// in flight. A client over standard input is there as long as the input is open.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let last_seen = *self
            .last_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.transport != Transport::Stdio
            && now.saturating_duration_since(last_seen) >= self.shared.limits.idle_timeout
            && self.state().pending.len() == 0
    }

    /// Waits until no request is in flight, at most `limit`.
    pub async fn drain(&self, limit: Duration) {
        if !self.wait_until(limit, |pending| pending.len() == 0).await {
            tracing::warn!("requests were still in flight when their session had to end");
        }
    }

    /// Waits until no request of connections up to `generation` is in flight, at most `limit`.
    pub(super) async fn drain_generation(&self, generation: u64, limit: Duration) {
        self.wait_until(limit, |pending| !pending.has_up_to(generation))
            .await;
    }

    /// Waits until the requests in flight are as `is_reached` wants them. Returns whether they
    /// were within the limit.
    async fn wait_until(
        &self,
        limit: Duration,
        is_reached: impl Fn(&PendingTable) -> bool,
    ) -> bool {
        let reached = async {
            loop {
                let fewer = self.has_fewer_pending.notified();
                if is_reached(&self.state().pending) {
                    return;
                }
                fewer.await;
            }
        };
        tokio::time::timeout(limit, reached).await.is_ok()
    }

    /// Takes out the requests whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant) -> Vec<(RequestId, Pending)> {
        let limits = &self.shared.limits;
        self.state()
            .pending
            .remove_expired(now, limits.call_timeout, limits.call_timeout_max)
    }

    /// Ends the session: closes the rows of what is in flight as cancelled, ends the upstream
    /// connection and the transport. Returns when that is done, also when another call does it.
    pub async fn close(self: &Arc<Self>) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            self.ended.cancelled().await;
            return;
        }
        self.closing.cancel();
        let abandoned = self.state().pending.remove_up_to(u64::MAX);
        let error = &RpcError::new(
            RpcErrorCode::SessionNotFound,
            "the session ended before the request was answered",
        );
        let told = join_all(abandoned.into_iter().map(|(id, pending)| async move {
            self.fail(&id, pending, Outcome::Cancelled, error).await;
        }));
        // A client that does not read any more cannot be told.
        let _ = tokio::time::timeout(LAST_WORDS, told).await;
        let live = {
            // A connection that is being made is waited for, so that it is not leaked.
            let _connecting = self.connection.lock().await;
            self.connection.take()
        };
        if let Some(live) = live {
            live.link.close().await;
        }
        if let Some(row) = self.row.get() {
            self.shared.recorder.session_closed(*row).await;
        }
        self.client.close().await;
        self.ended.cancel();
    }

    /// Returns the identifier of the session's row, and makes the row first if there is none.
    pub(super) async fn row(&self) -> SessionId {
        *self
            .row
            .get_or_init(|| async {
                let (client_info, revision) = {
                    let state = self.state();
                    let unknown = || Revision::new("unknown");
                    (
                        state.client_info.clone(),
                        state.revision.clone().unwrap_or_else(unknown),
                    )
                };
                let details = SessionDetails {
                    principal: &self.principal,
                    client_info: &client_info,
                    protocol: &revision,
                    transport: self.transport,
                    started_at: self.started_at,
                };
                self.shared.recorder.session_opened(details).await
            })
            .await
    }

    /// Returns the position of the next call.
    pub(super) fn next_sequence(&self) -> u64 {
        self.n_calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a request of the client whose end reached it, and wakes who waits for that.
    pub(super) fn pending_ended(&self) {
        self.state().pending.ended();
        self.shared.n_in_flight.fetch_sub(1, Ordering::Relaxed);
        self.has_fewer_pending.notify_waiters();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
