//! The upstream session: one upstream as part of a client session.

mod approved_lists;
mod call_authorization;
mod call_recording;
pub(super) mod completion;
pub(super) mod connection;
mod delivery;
mod error_hints;
mod intents;
mod known_answers;
mod message_depth;
mod multi_round_calls;
mod recorded_names;
mod request_pipeline;
mod response_pipeline;
mod safeguards;
pub(super) mod scope;
mod tool_list_answers;
mod tool_list_fetch;
pub(super) mod upstream_requests;
pub(super) mod upstream_tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::usage::invocation::Outcome;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use self::call_authorization::CallAuthorization;
use self::call_recording::CallRecording;
use self::connection::Connection;
use self::error_hints::ErrorHints;
use self::intents::IntentLayer;
use self::message_depth::NestingLog;
use self::scope::UpstreamScope;
use self::upstream_requests::{Pending, UpstreamRequests};
use self::upstream_tools::UpstreamTools;
use super::aggregator::wait_times::WaitTimes;
use super::client_context::ClientContext;
use super::log_spans as spans;
use super::session_link::SessionLink;
use super::shared_state::SharedState;
use super::upstream_set::UpstreamEntry;

/// The timeout for notifying a client that its requests end with the session.
const END_NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// One upstream of a client session.
///
/// The session passes each message for that upstream to [`receive`](Self::receive). All messages for
/// the client go out through the [`SessionLink`].
#[derive(Debug)]
pub(super) struct UpstreamSession {
    pub(super) scope: Arc<UpstreamScope>,
    pub(super) tools: Arc<UpstreamTools>,
    intents: Arc<IntentLayer>,
    authorization: CallAuthorization,
    recording: CallRecording,
    hints: ErrorHints,
    nesting: NestingLog,
    pub(super) client: Arc<SessionLink>,
    /// The number of the upstream session among all that the client session has or had.
    pub(super) number: u64,
    /// The span of log events about the upstream in this session.
    span: Span,
    /// The times that the session waited for the upstream.
    pub(super) waiting: WaitTimes,
    pub(super) connection: Connection,
    /// The requests that wait for an answer.
    pub(super) state: Mutex<UpstreamRequests>,
    // Locked while the list is fetched from the upstream for all waiting requests.
    fetching: Arc<tokio::sync::Mutex<()>>,
    is_closed: AtomicBool,
    // Cancelled when the upstream begins to end.
    pub(super) closing: CancellationToken,
    ended: CancellationToken,
    has_fewer_pending: Notify,
    last_used: Mutex<Instant>,
    /// The number of requests of the proxy itself for tools.
    n_asked: AtomicU64,
}

impl UpstreamSession {
    pub(super) fn new(
        shared: Arc<SharedState>,
        entry: Arc<UpstreamEntry>,
        client_context: Arc<ClientContext>,
        client: Arc<SessionLink>,
        number: u64,
    ) -> Arc<Self> {
        let connector = Arc::clone(&entry.upstream.connector);
        let connection = Connection::new(connector, client_context.principal.clone());
        let scope = Arc::new(UpstreamScope {
            shared,
            entry,
            client_context,
        });
        let span = spans::upstream(&scope.client_context.span, scope.upstream());
        let tools = Arc::new(UpstreamTools::new(&scope));
        let intents = Arc::new(IntentLayer::new(&scope));
        Arc::new(Self {
            authorization: CallAuthorization::new(&scope, &tools),
            recording: CallRecording::new(&scope, &tools, &intents),
            hints: ErrorHints::new(&scope),
            nesting: NestingLog::default(),
            scope,
            tools,
            intents,
            client,
            number,
            span,
            waiting: WaitTimes::default(),
            connection,
            state: Mutex::default(),
            fetching: Arc::default(),
            is_closed: AtomicBool::new(false),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
            has_fewer_pending: Notify::new(),
            last_used: Mutex::new(Instant::now()),
            n_asked: AtomicU64::new(0),
        })
    }

    pub(super) fn name(&self) -> &UpstreamName {
        self.scope.upstream()
    }

    /// Returns whether a request with this id waits for its answer.
    pub(super) fn is_waiting_for(&self, id: &RequestId) -> bool {
        let mut state = self.state.lock();
        (state.get_mut(id)).is_some_and(|pending| pending.is_counted())
    }

    /// Returns whether a request of the upstream with this id waits for the answer of the client.
    pub(super) fn has_asked(&self, id: &RequestId) -> bool {
        self.state.lock().has_asked(id)
    }

    /// Returns the ids of the open notification streams.
    pub(super) fn listening(&self) -> Vec<RequestId> {
        self.state.lock().listening()
    }

    /// Returns the ids of the notification streams that subscribe to tool list changes.
    pub(super) fn tool_streams(&self) -> Vec<RequestId> {
        self.state.lock().tool_streams()
    }

    /// Returns whether the upstream session has ended or is ending.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether a connection is open, so that a message need not wait for one.
    pub(super) fn is_connected(&self) -> bool {
        self.connection.current().is_some()
    }

    /// Returns whether a message would start a process.
    pub(super) fn costs_start(&self) -> bool {
        self.scope.entry.starts_processes() && !self.is_connected()
    }

    /// Returns whether messages pass verbatim to a process that has not answered anything.
    fn is_not_ready(&self) -> bool {
        let is_starting = || {
            let live = self.connection.current();
            live.is_none_or(|live| live.link.time_to_start().is_some())
        };
        !self.scope.is_merged() && self.scope.entry.starts_processes() && is_starting()
    }

    /// Returns whether no request is in flight and the bridge does not wait for input of the
    /// client.
    pub(super) fn is_quiet(&self) -> bool {
        let is_needed = || {
            let live = self.connection.current();
            live.is_some_and(|live| live.link.is_needed())
        };
        let is_empty = {
            let state = self.state.lock();
            state.len() == 0 && !state.is_list_awaited()
        };
        is_empty && !is_needed()
    }

    /// Registers a message as use of the connection.
    fn touch(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// Closes the connection if it was idle for longer than the idle timeout of the upstream. The
    /// next message opens a new one.
    pub(super) fn reap(self: &Arc<Self>, now: Instant) {
        let last_used = *self.last_used.lock();
        let idle_timeout = self.scope.entry.upstream.options.idle_timeout;
        if now.saturating_duration_since(last_used) < idle_timeout || !self.is_quiet() {
            return;
        }
        if let Some(live) = self.connection.current() {
            let name = self.name();
            tracing::debug!(upstream = %name, "closing an idle connection to upstream {name}");
            self.replace(live.generation);
        }
    }

    /// Returns the time since which the connection is idle. The next message reopens an idle
    /// connection that was closed. Returns `None` without a connection or while it is in use.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.is_connected()
            && self.scope.client_context.is_set_up()
            && self.is_quiet()
            && !self.state.lock().is_client_asked();
        is_idle.then(|| *self.last_used.lock())
    }

    /// Closes an idle connection to free its permit. Returns whether there was an idle connection.
    pub(super) fn close_if_idle(self: &Arc<Self>) -> bool {
        let idle = self
            .connection
            .current()
            .filter(|_| self.idle_since().is_some());
        let Some(live) = idle else {
            return false;
        };
        // Another session may have asked for the connection.
        let _in_span = self.span.enter();
        let name = self.name();
        tracing::debug!(
            upstream = %name,
            "closing an idle connection to upstream {name} to make room"
        );
        self.replace(live.generation);
        true
    }

    /// Waits at most `limit` until no request is in flight, except for streams that never end by
    /// themselves.
    pub(super) async fn drain(&self, limit: Duration) {
        let is_left = |id: &RequestId| self.scope.client_context.requests.is_left(id);
        self.wait_until(limit, |pending| {
            pending.n_ending_by_themselves(is_left) == 0 && !pending.is_list_awaited()
        })
        .await;
    }

    /// Makes a drain look again, because the client has left a request.
    pub(super) fn wake_drain(&self) {
        self.has_fewer_pending.notify_waiters();
    }

    /// Waits at most `limit` until no request of connections up to `generation` is in flight.
    pub(super) async fn drain_generation(&self, generation: u64, limit: Duration) {
        self.wait_until(limit, |pending| !pending.has_up_to(generation))
            .await;
    }

    /// Waits at most `limit` until the requests in flight satisfy the condition. Returns whether
    /// they do.
    async fn wait_until(
        &self,
        limit: Duration,
        is_reached: impl Fn(&UpstreamRequests) -> bool,
    ) -> bool {
        let reached = async {
            loop {
                let fewer = self.has_fewer_pending.notified();
                if is_reached(&self.state.lock()) {
                    return;
                }
                fewer.await;
            }
        };
        tokio::time::timeout(limit, reached).await.is_ok()
    }

    /// Removes and returns the requests whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant) -> Vec<(RequestId, Pending)> {
        let limits = self.scope.shared.limits();
        self.state
            .lock()
            .remove_expired(now, limits.call_timeout, limits.call_timeout_max)
    }

    /// Ends the upstream session: closes the rows of requests in flight as cancelled and closes the upstream
    /// session. Waits for the end also if another call is closing it.
    pub(super) async fn close(self: &Arc<Self>, why: &RpcError) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            self.ended.cancelled().await;
            return;
        }
        self.closing.cancel();
        self.abandon(why).await;
        let live = {
            // A connection attempt in progress is awaited. Otherwise its connection would leak.
            let _connecting = self.connection.lock().await;
            self.connection.take()
        };
        if let Some(live) = live {
            live.link.close().await;
        }
        // Covers requests that were admitted just before the end and sent afterwards.
        self.abandon(why).await;
        self.ended.cancel();
    }

    /// Fails every request in flight at the end of the upstream session.
    async fn abandon(self: &Arc<Self>, why: &RpcError) {
        let abandoned = self.state.lock().remove_up_to(u64::MAX);
        let told = join_all(abandoned.into_iter().map(|(id, pending)| async move {
            self.fail(&id, pending, Outcome::Cancelled, why).await;
        }));
        // A client that does not read any more cannot be notified.
        let _ = tokio::time::timeout(END_NOTICE_TIMEOUT, told).await;
    }

    /// Counts a finished request and wakes all tasks that wait for requests to end.
    pub(super) fn pending_ended(&self) {
        self.state.lock().note_ended();
        self.has_fewer_pending.notify_waiters();
        self.scope.entry.slots.free_idle_connections();
    }
}

/// Returns the error of requests whose session ends before they are answered.
pub(super) fn session_ended() -> RpcError {
    RpcError::new(
        RpcErrorCode::SessionNotFound,
        "the session ended before the request was answered",
    )
}
