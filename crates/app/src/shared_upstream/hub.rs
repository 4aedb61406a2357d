//! One shared connection and everything that hangs on it: its sessions, their requests, their
//! subscriptions, the handshake.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use riglm_domain::message::RequestId;
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::incoming::HubEvents;
use super::requests::{Cancelled, Requests, SeatNumber};
use super::seat::Seat;
use super::subscriptions::Subscriptions;

/// How long a connection that no session uses is kept for the next one.
const LINGER: Duration = Duration::from_mins(1);

/// How many answers to requests of the server may be on their way to it.
const MAX_REPLIES: usize = 64;

/// The connection, once it is made.
type Opening = Shared<BoxFuture<'static, Result<Arc<dyn UpstreamLink>, UpstreamError>>>;

/// One shared connection. It is made once; what comes after its end is another hub.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) name: Box<str>,
    pub(super) tasks: TaskTracker,
    /// Held while what all sessions share is decided and sent, so that the server sees it in the
    /// order of the decisions.
    pub(super) in_order: tokio::sync::Mutex<()>,
    pub(super) replies: Arc<Semaphore>,
    state: Mutex<State>,
    opening: Opening,
    n_seats: watch::Sender<usize>,
    is_retired: CancellationToken,
    is_over: CancellationToken,
}

/// Whether messages can be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Condition {
    #[default]
    Sound,
    /// What was sent may still be answered, but nothing more is sent.
    Retired,
    Over,
}

/// What is known of the handshake of earlier revisions.
#[derive(Debug, Default)]
pub(super) enum Handshake {
    /// Nobody asked for one.
    #[default]
    None,
    /// It is in flight, under this number.
    Asked(u64, Instant),
    /// Its result.
    Done(Box<str>),
}

/// What a hub remembers between messages.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) seats: BTreeMap<SeatNumber, Arc<Seat>>,
    pub(super) requests: Requests,
    pub(super) subscriptions: Subscriptions,
    pub(super) handshake: Handshake,
    /// Whether the server was told that the handshake is complete.
    pub(super) is_initialized: bool,
    last_seat: SeatNumber,
    condition: Condition,
}

/// What a session that left has to be given up for it.
#[derive(Debug)]
pub(super) struct Leftover {
    /// Its requests in flight.
    pub(super) requests: Vec<u64>,
    /// The resources that nobody else is subscribed to.
    pub(super) resources: Vec<Box<str>>,
}

impl Hub {
    /// Returns a hub whose connection is made as soon as somebody waits for it.
    pub(super) fn new(
        connector: Arc<dyn UpstreamConnector>,
        principal: Principal,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak: &Weak<Self>| {
            let hub = Weak::clone(weak);
            let name = connector.name().as_str().into();
            let opening = async move {
                let events = Arc::new(HubEvents::new(Weak::clone(&hub)));
                let opened = connector.connect(&principal, events).await;
                if opened.is_err()
                    && let Some(hub) = hub.upgrade()
                {
                    // Whoever comes next makes another attempt.
                    hub.finish();
                }
                opened
            };
            Self {
                name,
                tasks: tasks.clone(),
                in_order: tokio::sync::Mutex::default(),
                replies: Arc::new(Semaphore::new(MAX_REPLIES)),
                state: Mutex::default(),
                opening: opening.boxed().shared(),
                n_seats: watch::Sender::new(0),
                is_retired: CancellationToken::new(),
                is_over: CancellationToken::new(),
            }
        })
    }

    /// Returns the connection, and makes it first if there is none.
    pub(super) async fn opened(&self) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        self.opening.clone().await
    }

    /// Returns whether the transport says on whose behalf a message comes.
    pub(super) fn has_streams(&self) -> bool {
        let opened = self.opening.peek();
        opened.is_some_and(|opened| opened.as_ref().is_ok_and(|link| link.has_streams()))
    }

    /// Makes the connection, and closes it when no session has used it for a while, or at once when
    /// nobody will come any more. Returns when it is over.
    pub(super) async fn live(self: &Arc<Self>, no_more: &CancellationToken) {
        let Ok(link) = self.opened().await else {
            return;
        };
        let mut n_seats = self.n_seats.subscribe();
        loop {
            tokio::select! {
                () = self.is_over.cancelled() => return,
                () = until(&mut n_seats, |n| n == 0) => {}
            }
            tokio::select! {
                () = self.is_over.cancelled() => return,
                () = until(&mut n_seats, |n| n > 0) => continue,
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

    /// Returns what is cancelled when the connection is over.
    pub(super) fn over(&self) -> &CancellationToken {
        &self.is_over
    }

    /// Returns whether sessions may still join.
    pub(super) fn takes_sessions(&self) -> bool {
        self.state().condition == Condition::Sound
    }

    /// Gives a session a seat, and what ends all reports to it; `None` when the connection takes no
    /// more sessions.
    pub(super) fn attach(
        &self,
        events: &Arc<dyn UpstreamEvents>,
    ) -> Option<(SeatNumber, CancellationToken)> {
        let mut state = self.state();
        if state.condition != Condition::Sound {
            return None;
        }
        state.last_seat += 1;
        let number = state.last_seat;
        let seat = Seat::new(Arc::clone(events), &self.tasks);
        let left = seat.left();
        state.seats.insert(number, Arc::new(seat));
        self.n_seats.send_replace(state.seats.len());
        Some((number, left))
    }

    /// Takes a session out, with all that is its own; `None` if it is out already.
    pub(super) fn detach(&self, number: SeatNumber) -> Option<(Arc<Seat>, Leftover)> {
        let mut state = self.state();
        let seat = state.seats.remove(&number)?;
        let consequences = state.requests.leave(number);
        let leftover = Leftover {
            resources: state.subscriptions.leave_all(number),
            requests: consequences.iter().filter_map(Cancelled::number).collect(),
        };
        self.n_seats.send_replace(state.seats.len());
        drop(state);
        if consequences.contains(&Cancelled::HandshakeAbandoned) {
            self.retire();
        }
        Some((seat, leftover))
    }

    /// Returns the state for a message of a session to be noted in.
    pub(super) fn usable(&self, seat: SeatNumber) -> Result<MutexGuard<'_, State>, UpstreamError> {
        let state = self.state();
        match state.condition {
            Condition::Retired => Err(UpstreamError::SessionExpired),
            Condition::Sound if state.seats.contains_key(&seat) => Ok(state),
            Condition::Sound | Condition::Over => Err(ended()),
        }
    }

    /// Returns a session's seat, while it has one.
    pub(super) fn seat(&self, number: SeatNumber) -> Option<Arc<Seat>> {
        self.state().seats.get(&number).cloned()
    }

    /// Sends nothing more, since the server has forgotten the handshake or never ends it: the
    /// sessions will set up another connection.
    pub(super) fn retire(&self) {
        {
            let mut state = self.state();
            if state.condition != Condition::Sound {
                return;
            }
            state.condition = Condition::Retired;
        }
        tracing::info!("upstream {} has to be set up again", self.name);
        self.is_retired.cancel();
    }

    /// Tells every session that the connection was lost.
    pub(super) fn lose(&self, error: &UpstreamError) {
        let (seats, owed) = {
            let mut state = self.state();
            // With the seats: one that is taken after this would never hear of the end.
            state.condition = Condition::Over;
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self) {
        self.state().condition = Condition::Over;
        self.is_over.cancel();
        self.n_seats.send_replace(0);
    }

    fn finish_if_unused(&self) -> bool {
        let mut state = self.state();
        let is_unused = state.seats.is_empty();
        if is_unused {
            state.condition = Condition::Over;
            self.is_over.cancel();
        }
        is_unused
    }
}

/// Returns the error for what comes after the end of a connection.
pub(super) fn ended() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}

async fn until(n_seats: &mut watch::Receiver<usize>, is_reached: impl Fn(usize) -> bool) {
    // The sender lives as long as the hub.
    let _ = n_seats.wait_for(|n| is_reached(*n)).await;
}
