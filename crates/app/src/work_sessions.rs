//! Which work session a request belongs to.
//!
//! What the client says itself comes first: its own key, then `session.id` of its baggage. Then
//! come what is known of the trace that it names, and the connection, whose requests belong to one
//! of the windows of the client (see [`Windows`]). Each of these has a key; the work session of a
//! key goes on until it was silent for too long.
//!
//! Keys that were seen lately are answered from memory. The store is asked when one is seen for the
//! first time and when another work session begins, so that all processes agree and a restart
//! changes nothing, and it is told now and then that one goes on. A store that does not answer in
//! time is done without: an identifier is made here, and told later.

mod config;
mod keys;
mod lanes;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use riglm_domain::canonical::{KeyedHash, KeyedHasher};
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::principal::Principal;
use riglm_domain::request_hints::RequestHints;
use riglm_domain::trace_context::TraceId;
use riglm_domain::work_session::{IdleGap, Windows, WorkSession, WorkSessionKey};
use riglm_ports::analytics::WorkSessionRepository;
use tokio::sync::Semaphore;

pub use self::config::WorkSessionsConfig;
use self::keys::{ClientKey, Keys};
use self::lanes::{Lane, Lanes};
use crate::tracking::EntropySource;

/// The longest that a request waits for the store.
const ASK_WITHIN: Duration = Duration::from_millis(500);
/// The longest that the store may take to be told, which nobody waits for.
const TELL_WITHIN: Duration = Duration::from_secs(10);
/// The most work sessions that the store is told of at a time.
const MAX_TELLING: usize = 16;
/// How long a key that a client chose itself may be silent.
const CHOSEN_GAP: Duration = Duration::from_hours(24);
/// The most clients, and the most traces, that are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// A request, as far as it tells what it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// Who is calling.
    pub principal: &'a Principal,
    /// The name that the client gives itself.
    pub client_name: &'a str,
    /// Keyed hash of the client, as in its sessions.
    pub client: KeyedHash,
    /// The profile that the client uses.
    pub profile: Option<&'a str>,
    /// Keyed hash of where the client works, where that is known.
    pub workspace: Option<KeyedHash>,
    /// What the request says of itself.
    pub hints: &'a RequestHints,
    /// The session of the transport.
    pub connection: SessionId,
    /// What it wants.
    pub kind: RequestKind,
    /// When it was received.
    pub now: Timestamp,
}

/// What a request wants, as far as that matters to its work session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// To call a tool.
    Call,
    /// To search for tools, or to say what is being done. The store has searches by their moment
    /// alone, so it is told at once that the work session goes on.
    Search,
    /// A list of tools.
    List,
}

/// The work sessions that are going on.
#[derive(Debug)]
pub struct WorkSessions {
    store: Option<Arc<dyn WorkSessionRepository>>,
    keys: Keys,
    idle_gap: IdleGap,
    entropy: EntropySource,
    state: Mutex<State>,
    telling: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    lanes: Lanes,
    windows: LruCache<ClientKey, Windows>,
    clients: LruCache<SessionId, ClientKey>,
    traces: LruCache<(ClientKey, TraceId), WorkSessionKey>,
}

/// What a key is made of, and how long it may be silent.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: WorkSessionKey,
    idle_gap: IdleGap,
}

impl WorkSessions {
    /// Returns work sessions that are kept in a store, or in memory alone where there is none.
    #[must_use]
    pub fn new(
        store: Option<Arc<dyn WorkSessionRepository>>,
        hasher: KeyedHasher,
        idle_gap: IdleGap,
    ) -> Self {
        let n = NonZeroUsize::new(MAX_REMEMBERED).unwrap_or(NonZeroUsize::MIN);
        Self {
            store,
            keys: Keys::new(hasher),
            idle_gap,
            entropy: EntropySource::new(),
            state: Mutex::new(State {
                lanes: Lanes::default(),
                windows: LruCache::new(n),
                clients: LruCache::new(n),
                traces: LruCache::new(n),
            }),
            telling: Arc::new(Semaphore::new(MAX_TELLING)),
        }
    }

    /// Returns the work session that a request belongs to, which is another one if it was silent
    /// for too long. Never fails, and waits for the store for half a second at most.
    pub async fn resolve(self: &Arc<Self>, request: &WorkRequest<'_>) -> WorkSessionId {
        let now = request.now;
        let place = {
            let mut state = self.state();
            let place = self.place(&mut state, request);
            if let Some(lane) = state.lanes.going_on(place.key, now, place.idle_gap) {
                let (id, is_due) = lane.active(now, request.kind);
                drop(state);
                if is_due {
                    self.tell(place);
                }
                return id;
            }
            place
        };
        let candidate = WorkSession {
            id: WorkSessionId::new(now, self.entropy.next()),
            key: place.key,
            principal: request.principal.clone(),
            client: request.client,
            started_at: now,
            last_active_at: now,
        };
        let known = self.ask(&candidate, place.idle_gap).await;
        let mut state = self.state();
        if known.is_none()
            && let Some(lane) = state.lanes.going_on(place.key, now, place.idle_gap)
        {
            // Another request was first.
            return lane.active(now, request.kind).0;
        }
        let lane = match known {
            Some(known) => Lane::known(known, now),
            None => Lane::unknown(candidate, now),
        };
        state.lanes.put(lane)
    }

    /// Notes that a connection is gone: another one may go on with what it did.
    pub fn disconnected(&self, connection: SessionId) {
        let mut state = self.state();
        let State {
            windows, clients, ..
        } = &mut *state;
        let client = clients.pop(&connection);
        if let Some(windows) = client.and_then(|client| windows.get_mut(&client)) {
            windows.gone(connection);
        }
    }

    /// Finds the key of a request.
    fn place(&self, state: &mut State, request: &WorkRequest<'_>) -> Place {
        let client = self.keys.client(request);
        let hints = request.hints;
        if let Some(key) = self.keys.chosen(&client, hints) {
            let idle_gap = CHOSEN_GAP.max(self.idle_gap.most()).into();
            return traced(state, client, request, Place { key, idle_gap });
        }
        let idle_gap = self.idle_gap;
        let joined = hints.trace.and_then(|trace| {
            let key = *state.traces.get(&(client, trace))?;
            state.lanes.going_on(key, request.now, idle_gap)?;
            Some(key)
        });
        if let Some(key) = joined {
            return Place { key, idle_gap };
        }
        let State {
            lanes,
            windows,
            clients,
            ..
        } = &mut *state;
        clients.put(request.connection, client);
        let windows = windows.get_or_insert_mut(client, Windows::default);
        let goes_on = |number| {
            let key = self.keys.window(&client, number);
            lanes.goes_on(key, request.now, idle_gap)
        };
        let number = windows.place(
            request.connection,
            request.kind == RequestKind::Call,
            request.now,
            goes_on,
        );
        let key = self.keys.window(&client, number);
        traced(state, client, request, Place { key, idle_gap })
    }

    /// Asks the store; `None` if it does not answer in time.
    async fn ask(&self, candidate: &WorkSession, idle_gap: IdleGap) -> Option<WorkSession> {
        let store = self.store.as_ref()?;
        let asked = store.resolve_work_session(candidate, idle_gap);
        match tokio::time::timeout(ASK_WITHIN, asked).await {
            Ok(Ok(known)) => Some(known),
            Ok(Err(error)) => {
                tracing::debug!("a work session begins without the store: {error}");
                None
            }
            Err(_) => {
                tracing::debug!("a work session begins without the store, which is slow");
                None
            }
        }
    }

    /// Tells the store, in the background, that the work session of a key goes on.
    fn tell(self: &Arc<Self>, place: Place) {
        let Some(store) = self.store.clone() else {
            return;
        };
        // Where too many are being told of already, the next request tells.
        let Ok(permit) = Arc::clone(&self.telling).try_acquire_owned() else {
            return;
        };
        let Some(candidate) = self.state().lanes.begin_telling(place.key) else {
            return;
        };
        let itself = Arc::clone(self);
        tokio::spawn(async move {
            // What memory knows to go on does so in the store, which was told last a while ago.
            let idle_gap = place.idle_gap.most().saturating_add(lanes::TELL_EVERY);
            let told = store.resolve_work_session(&candidate, idle_gap.into());
            let told = tokio::time::timeout(TELL_WITHIN, told).await;
            let known = told.ok().and_then(Result::ok);
            itself.state().lanes.told(place.key, candidate.id, known);
            drop(permit);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes where the requests of a trace belong.
fn traced(state: &mut State, client: ClientKey, request: &WorkRequest<'_>, place: Place) -> Place {
    if let Some(trace) = request.hints.trace {
        state.traces.put((client, trace), place.key);
    }
    place
}

#[cfg(test)]
mod tests;
