//! The hub: one shared connection with its sessions, their requests, their subscriptions and the
//! handshake.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::{Mutex, MutexGuard};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::incoming::HubEvents;
use super::outgoing::Link;
use super::own_messages::{OWN_LIMIT, OwnSender};
use super::requests::{CancelEffect, Purpose, Requests, SharedSessionNumber};
use super::rewriting::id_of;
use super::session_handle::SharedSessionHandle;
use super::subscriptions::Subscriptions;

/// The time for which an unused connection is kept open for the next session.
const LINGER: Duration = Duration::from_mins(1);

/// The maximum number of answers to requests of the server that wait to be sent.
const MAX_REPLIES: usize = 64;

/// The shared future that opens the connection and resolves to it.
type ConnectFuture = Shared<BoxFuture<'static, Result<Arc<dyn UpstreamLink>, UpstreamError>>>;

/// One shared connection. It is opened once; after its end a new hub replaces it.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) name: Box<str>,
    pub(super) tasks: TaskTracker,
    // Locked while a request for all sessions is decided and sent, so that the server receives such
    // requests in the order of the decisions.
    pub(super) in_order: tokio::sync::Mutex<()>,
    pub(super) replies: Arc<Semaphore>,
    pub(super) state: Mutex<HubState>,
    pub(super) own: OwnSender,
    opening: ConnectFuture,
    n_seats: watch::Sender<usize>,
    is_retired: CancellationToken,
    is_over: CancellationToken,
}

/// The state of the connection with respect to sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HubCondition {
    #[default]
    Sound,
    /// Requests in flight may still be answered, but nothing more is sent.
    Retired,
    Over,
}

/// The state of the handshake of legacy revisions.
#[derive(Debug, Default)]
pub(super) enum Handshake {
    /// No session has requested a handshake.
    #[default]
    None,
    /// The handshake is in flight, with its request number and the time of sending.
    Asked(u64, Instant),
    /// The result of the handshake.
    Done(Box<str>),
}

/// The mutable state of a hub.
#[derive(Debug, Default)]
pub(super) struct HubState {
    pub(super) seats: BTreeMap<SharedSessionNumber, Arc<SharedSessionHandle>>,
    pub(super) requests: Requests,
    pub(super) subscriptions: Subscriptions,
    pub(super) handshake: Handshake,
    /// Whether `notifications/initialized` was sent to the server.
    pub(super) is_initialized: bool,
    last_seat: SharedSessionNumber,
    condition: HubCondition,
}

/// The place of a session at a hub.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) number: SharedSessionNumber,
    /// Stops all reports to the session when it is cancelled.
    pub(super) left: CancellationToken,
}

/// The requests and resources that must be cancelled at the server after a session left.
#[derive(Debug)]
pub(super) struct Leftover {
    /// The numbers of its requests in flight.
    pub(super) requests: Vec<u64>,
    /// The resources without any other subscriber.
    pub(super) resources: Vec<Box<str>>,
}

impl Hub {
    /// Returns a hub whose connection is opened when it is first awaited.
    pub(super) fn new(
        connector: Arc<dyn UpstreamConnector>,
        principal: Principal,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak: &Weak<Self>| {
            let hub = Weak::clone(weak);
            let name: Box<str> = connector.name().as_str().into();
            let is_over = CancellationToken::new();
            let opening = async move {
                let events = Arc::new(HubEvents::new(Weak::clone(&hub)));
                let opened = connector.connect(&principal, events).await;
                if opened.is_err()
                    && let Some(hub) = hub.upgrade()
                {
                    // The hub is finished, so the next session makes another attempt with a new
                    // hub.
                    hub.finish();
                }
                opened
            };
            Self {
                own: OwnSender::new(name.clone(), tasks.clone(), is_over.clone()),
                name,
                tasks: tasks.clone(),
                in_order: tokio::sync::Mutex::default(),
                replies: Arc::new(Semaphore::new(MAX_REPLIES)),
                state: Mutex::default(),
                opening: opening.boxed().shared(),
                n_seats: watch::Sender::new(0),
                is_retired: CancellationToken::new(),
                is_over,
            }
        })
    }

    /// Returns the connection and opens it first if necessary.
    pub(super) async fn open_link(&self) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        self.opening.clone().await
    }

    /// Returns whether the transport tells to which request a message belongs.
    pub(super) fn has_streams(&self) -> bool {
        let opened = self.opening.peek();
        opened.is_some_and(|opened| opened.as_ref().is_ok_and(|link| link.has_streams()))
    }

    /// Opens the connection and closes it when no session has used it for `LINGER`, or at once
    /// after retirement or when no more sessions will connect. Returns when the connection has
    /// ended.
    pub(super) async fn run(self: &Arc<Self>, no_more: &CancellationToken) {
        let Ok(link) = self.open_link().await else {
            return;
        };
        let mut n_seats = self.n_seats.subscribe();
        loop {
            tokio::select! {
                () = self.is_over.cancelled() => return,
                () = wait_for_sessions(&mut n_seats, |n| n == 0) => {}
            }
            tokio::select! {
                () = self.is_over.cancelled() => return,
                () = wait_for_sessions(&mut n_seats, |n| n > 0) => continue,
                () = self.is_retired.cancelled() => {}
                () = no_more.cancelled() => {}
                () = tokio::time::sleep(LINGER) => {}
            }
            if self.finish_if_unused() {
                tracing::debug!("closing the shared connection to upstream {}", self.name);
                return link.close().await;
            }
        }
    }

    pub(super) fn takes_sessions(&self) -> bool {
        self.state.lock().condition == HubCondition::Sound
    }

    /// Adds a session. Returns `None` if the connection accepts no more sessions.
    pub(super) fn attach(&self, events: &Arc<dyn UpstreamEvents>) -> Option<Seat> {
        let mut state = self.state.lock();
        if state.condition != HubCondition::Sound {
            return None;
        }
        state.last_seat += 1;
        let number = state.last_seat;
        let seat = SharedSessionHandle::new(Arc::clone(events), &self.tasks);
        let left = seat.stop_token();
        state.seats.insert(number, Arc::new(seat));
        self.n_seats.send_replace(state.seats.len());
        Some(Seat { number, left })
    }

    /// Removes a session with its requests and subscriptions. Returns `None` if it was removed
    /// before.
    pub(super) fn detach(
        &self,
        number: SharedSessionNumber,
    ) -> Option<(Arc<SharedSessionHandle>, Leftover)> {
        let mut state = self.state.lock();
        let seat = state.seats.remove(&number)?;
        let consequences = state.requests.leave(number);
        let leftover = Leftover {
            resources: state.subscriptions.leave_all(number),
            requests: consequences
                .iter()
                .filter_map(CancelEffect::number)
                .collect(),
        };
        self.n_seats.send_replace(state.seats.len());
        // `retire` locks the state again.
        drop(state);
        if consequences.contains(&CancelEffect::HandshakeAbandoned) {
            self.retire();
        }
        Some((seat, leftover))
    }

    /// Cancels the requests and subscriptions of a session that left.
    pub(super) async fn release(self: &Arc<Self>, link: &Link, leftover: Leftover) {
        if !self.takes_sessions() {
            return;
        }
        let giving_up = async {
            for number in leftover.requests {
                let message = Message::cancellation(&id_of(number), Some("the session ended"));
                self.own.send_quietly(link, message).await;
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
        let params = format!(r#"{{"uri":{uri}}}"#);
        let message =
            Message::request(&id_of(number), method::RESOURCES_UNSUBSCRIBE, Some(&params));
        self.own.send_quietly(link, message).await;
    }

    /// Returns the locked state for recording a message of a session.
    pub(super) fn usable_state(
        &self,
        seat: SharedSessionNumber,
    ) -> Result<MutexGuard<'_, HubState>, UpstreamError> {
        let state = self.state.lock();
        match state.condition {
            HubCondition::Retired => Err(UpstreamError::SessionExpired),
            HubCondition::Sound if state.seats.contains_key(&seat) => Ok(state),
            HubCondition::Sound | HubCondition::Over => Err(connection_ended()),
        }
    }

    pub(super) fn seat(&self, number: SharedSessionNumber) -> Option<Arc<SharedSessionHandle>> {
        self.state.lock().seats.get(&number).cloned()
    }

    /// Stops sending, because the server has forgotten the handshake or does not finish it. The
    /// sessions then set up another connection.
    pub(super) fn retire(&self) {
        {
            let mut state = self.state.lock();
            if state.condition != HubCondition::Sound {
                return;
            }
            state.condition = HubCondition::Retired;
        }
        tracing::info!(
            "upstream {}: the shared connection must be set up again",
            self.name
        );
        self.is_retired.cancel();
    }

    /// Ends the connection for all sessions and reports the loss to each of them.
    pub(super) fn connection_lost(&self, error: &UpstreamError) {
        let (seats, owed) = {
            let mut state = self.state.lock();
            // The condition changes under the same lock as the removal of the sessions. A session
            // that attached afterwards would never be notified of the end.
            state.condition = HubCondition::Over;
            let owed = state.requests.drain();
            (std::mem::take(&mut state.seats), owed)
        };
        self.finish();
        for (number, seat) in seats {
            let unanswered: Vec<RequestId> = owed
                .iter()
                .filter(|taker| taker.seat == number)
                .map(|taker| taker.id.clone())
                .collect();
            seat.end(unanswered, error.clone());
        }
    }

    fn finish(&self) {
        self.state.lock().condition = HubCondition::Over;
        self.is_over.cancel();
        self.n_seats.send_replace(0);
    }

    fn finish_if_unused(&self) -> bool {
        let mut state = self.state.lock();
        let is_unused = state.seats.is_empty();
        if is_unused {
            state.condition = HubCondition::Over;
            self.is_over.cancel();
        }
        is_unused
    }
}

/// Returns the error for messages after the end of a connection.
pub(super) fn connection_ended() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}

async fn wait_for_sessions(
    n_seats: &mut watch::Receiver<usize>,
    is_reached: impl Fn(usize) -> bool,
) {
    // The sender lives as long as the hub, so an error cannot occur.
    let _ = n_seats.wait_for(|n| is_reached(*n)).await;
}
