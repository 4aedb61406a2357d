//! The way of one client to one upstream.

mod approved;
mod calls;
pub(super) mod completion;
pub(super) mod connection;
mod from_client;
mod from_upstream;
mod gating;
mod guarded;
mod here;
mod intents;
pub(super) mod list_memory;
mod list_tools;
pub(super) mod listing;
mod mending;
mod nesting;
mod offered;
pub(super) mod params;
pub(super) mod pending;
mod reconnect;
mod recorded_names;
mod rounds;
mod search;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::invocation::Outcome;
use riglm_domain::message::RequestId;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::downstream::ClientLink;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::connection::Connection;
use self::offered::Listed;
use self::pending::{Pending, PendingTable};
use self::rounds::Rounds;
use super::caller::Caller;
use super::shared::Shared;
use super::upstream_set::UpstreamEntry;

/// The longest that a client may take to be told that its requests end with the session.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Joins one client session to a connection of its own to one upstream.
///
/// It is handed each message for that upstream; everything for the client goes out through the
/// [`ClientLink`] that it was made with.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) shared: Arc<Shared>,
    pub(super) entry: Arc<UpstreamEntry>,
    pub(super) caller: Arc<Caller>,
    pub(super) client: Arc<dyn ClientLink>,
    pub(super) connection: Connection,
    pub(super) state: Mutex<State>,
    /// Lists pass whole; what is not to be shown of them is only noted.
    shows_all: AtomicBool,
    /// Held while the upstream is asked for its list on behalf of all that want it.
    fetching: tokio::sync::Mutex<()>,
    is_closed: AtomicBool,
    /// Cancelled when the relay begins to end.
    pub(super) closing: CancellationToken,
    ended: CancellationToken,
    has_fewer_pending: Notify,
    last_used: Mutex<Instant>,
    /// Operators know that the upstream sends notifications that are nested too deep.
    has_warned_of_nesting: AtomicBool,
}

/// What a relay remembers between messages.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The requests that wait for an answer.
    pub(super) pending: PendingTable,
    /// The tools that the last list left out.
    pub(super) hidden: HashSet<ToolName>,
    /// What calls were answered with that asked for input.
    pub(super) rounds: Rounds,
    /// The result by which the upstream answered the handshake.
    pub(super) hello: Option<Arc<str>>,
    /// What is known of the upstream's list, where it can be searched.
    pub(super) listed: Listed,
}

impl Relay {
    pub(super) fn new(
        shared: Arc<Shared>,
        entry: Arc<UpstreamEntry>,
        caller: Arc<Caller>,
        client: Arc<dyn ClientLink>,
    ) -> Arc<Self> {
        let connector = Arc::clone(&entry.upstream.connector);
        let connection = Connection::new(connector, caller.principal.clone());
        Arc::new(Self {
            shared,
            entry,
            caller,
            client,
            connection,
            state: Mutex::default(),
            shows_all: AtomicBool::new(false),
            fetching: tokio::sync::Mutex::new(()),
            is_closed: AtomicBool::new(false),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            has_fewer_pending: Notify::new(),
            last_used: Mutex::new(Instant::now()),
            has_warned_of_nesting: AtomicBool::new(false),
        })
    }

    /// Returns the name of the upstream.
    pub(super) fn upstream(&self) -> &UpstreamName {
        self.entry.name()
    }

    /// Says whether lists pass whole, for somebody else to leave out what is not to be shown.
    pub(super) fn show_all(&self, shows_all: bool) {
        self.shows_all.store(shows_all, Ordering::Release);
    }

    /// Returns whether the upstream is presented as a part of several.
    fn is_united(&self) -> bool {
        self.shows_all.load(Ordering::Acquire)
    }

    /// Returns whether the answer to a request with this id is waited for.
    pub(super) fn is_waiting_for(&self, id: &RequestId) -> bool {
        let mut state = self.state();
        (state.pending.get_mut(id)).is_some_and(|pending| pending.is_counted())
    }

    /// Returns whether the upstream waits for an answer to a request of its own with this id.
    pub(super) fn has_asked(&self, id: &RequestId) -> bool {
        self.state().pending.has_asked(id)
    }

    /// Returns the streams of notifications that are open.
    pub(super) fn listening(&self) -> Vec<RequestId> {
        self.state().pending.listening()
    }

    /// Returns the result by which the upstream answered the handshake.
    pub(super) fn hello(&self) -> Option<Arc<str>> {
        self.state().hello.clone()
    }

    /// Returns whether the relay has ended or is ending.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether a connection is up, so that a message does not wait for one.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.current().is_some()
    }

    /// Returns whether no request is in flight, and none waits for something that the client was
    /// asked.
    pub(super) fn is_quiet(&self) -> bool {
        let is_needed = || {
            let live = self.connection.current();
            live.is_some_and(|live| live.link.is_needed())
        };
        self.state().pending.len() == 0 && !is_needed()
    }

    /// Notes that a message came.
    fn touch(&self) {
        *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Closes the connection when it was not used for as long as the upstream's options say. The
    /// next message makes a new one.
    pub(super) fn reap(self: &Arc<Self>, now: Instant) {
        let last_used = *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let idle_timeout = self.entry.upstream.options.idle_timeout;
        if now.saturating_duration_since(last_used) < idle_timeout || !self.is_quiet() {
            return;
        }
        if let Some(live) = self.connection.current() {
            let name = self.upstream();
            tracing::debug!(upstream = %name, "closing an idle connection to upstream {name}");
            self.replace(live.generation);
        }
    }

    /// Returns since when nobody uses the connection, which the next message makes again if it is
    /// closed; `None` where there is none or it is in use.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.is_connected()
            && self.caller.is_set_up()
            && self.is_quiet()
            && !self.state().pending.is_client_asked();
        is_idle.then(|| {
            *self
                .last_used
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Closes the connection to make place for somebody else. Returns whether there was one that
    /// nobody uses.
    pub(super) fn make_place(self: &Arc<Self>) -> bool {
        let idle = self
            .connection
            .current()
            .filter(|_| self.idle_since().is_some());
        let Some(live) = idle else {
            return false;
        };
        let name = self.upstream();
        tracing::debug!(upstream = %name, "closing an idle connection to upstream {name} to make place");
        self.replace(live.generation);
        true
    }

    /// Waits until no request is in flight that has to end by itself, at most `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        if !self
            .wait_until(limit, |pending| pending.n_ending_by_themselves() == 0)
            .await
        {
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
        let limits = self.shared.limits();
        self.state()
            .pending
            .remove_expired(now, limits.call_timeout, limits.call_timeout_max)
    }

    /// Ends the relay: closes the rows of what is in flight as cancelled and ends the upstream
    /// connection. Returns when that is done, also when another call does it.
    pub(super) async fn close(self: &Arc<Self>, why: &RpcError) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            self.ended.cancelled().await;
            return;
        }
        self.closing.cancel();
        self.abandon(why).await;
        let live = {
            // A connection that is being made is waited for, so that it is not leaked.
            let _connecting = self.connection.lock().await;
            self.connection.take()
        };
        if let Some(live) = live {
            live.link.close().await;
        }
        // What was admitted just before the end and went to the connection since.
        self.abandon(why).await;
        self.ended.cancel();
    }

    /// Ends every request in flight, since the relay ends.
    async fn abandon(self: &Arc<Self>, why: &RpcError) {
        let abandoned = self.state().pending.remove_up_to(u64::MAX);
        let told = join_all(abandoned.into_iter().map(|(id, pending)| async move {
            self.fail(&id, pending, Outcome::Cancelled, why).await;
        }));
        // A client that does not read any more cannot be told.
        let _ = tokio::time::timeout(LAST_WORDS, told).await;
    }

    /// Returns the identifier of the session's row, and makes the row first if there is none.
    pub(super) async fn row(&self) -> SessionId {
        self.caller.row(&self.shared).await
    }

    /// Counts a request of the client whose end reached it, and wakes who waits for that.
    pub(super) fn pending_ended(&self) {
        self.state().pending.ended();
        self.has_fewer_pending.notify_waiters();
        self.entry.slots.make_places();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of requests whose session ends before they are answered.
pub(super) fn session_ended() -> RpcError {
    RpcError::new(
        RpcErrorCode::SessionNotFound,
        "the session ended before the request was answered",
    )
}
