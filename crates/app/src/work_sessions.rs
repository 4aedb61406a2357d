//! Assignment of requests to work sessions.
//!
//! The declaration of the client comes first: its own key, then `session.id` in its baggage. Next
//! come the trace of the request, if it is known, and the connection, whose requests belong to one
//! of the windows of the client (see [`ClientWindows`]). Each of these has a session key. The work
//! session of a key continues until its pause is too long.
//!
//! Recent keys are resolved from memory. The store is asked when a key is seen for the first time
//! and when another work session begins, so that all processes agree and a restart changes nothing.
//! It is updated periodically while a work session continues. If the store does not answer in time,
//! an identifier is created here and stored later.

mod active_sessions;
mod config;
mod keys;

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::mcp::trace_context::TraceId;
use riglm_domain::privacy::canonical::{KeyedHash, KeyedHasher};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::work_session::{ClientWindows, IdleGap, WorkSession, WorkSessionKey};
use riglm_ports::analytics::WorkSessionRepository;
use tokio::sync::Semaphore;

use self::active_sessions::{ActiveSession, ActiveSessions};
pub use self::config::WorkSessionsConfig;
use self::keys::{ClientKey, SessionKeys};
use riglm_discovery::entropy::EntropySource;

/// Timeout of a request for the answer of the store.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of a background update of the store.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most background updates at a time.
const MAX_TELLING: usize = 16;
/// The longest pause of a work session whose key the client chose.
const MAX_CHOSEN_KEY_GAP: Duration = Duration::from_hours(24);
/// The most clients, and the most traces, in memory.
const MAX_REMEMBERED: usize = 10_000;

/// A request, as far as it identifies its work session.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// The principal of the client.
    pub principal: &'a Principal,
    /// The name that the client declares.
    pub client_name: &'a str,
    /// Keyed hash of the client, as in its sessions.
    pub client: KeyedHash,
    /// The profile of the client.
    pub profile: Option<&'a str>,
    /// Keyed hash of the workspace of the client, if known.
    pub workspace: Option<KeyedHash>,
    /// The hints of the request.
    pub hints: &'a RequestHints,
    /// The session of the transport.
    pub connection: SessionId,
    /// The kind of the request.
    pub kind: RequestKind,
    /// The time of receipt.
    pub now: Timestamp,
}

/// The kind of a request, as far as it matters to its work session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A call of a tool.
    Call,
    /// A search for tools or a declaration of the context. The store finds searches by time alone,
    /// so it is updated at once.
    Search,
    /// A request for a list of tools.
    List,
}

/// The active work sessions.
#[derive(Debug)]
pub struct WorkSessions {
    store: Option<Arc<dyn WorkSessionRepository>>,
    keys: SessionKeys,
    idle_gap: IdleGap,
    entropy: EntropySource,
    state: Mutex<SessionMaps>,
    telling: Arc<Semaphore>,
}

#[derive(Debug)]
struct SessionMaps {
    lanes: ActiveSessions,
    windows: LruCache<ClientKey, KeyedWindows>,
    clients: LruCache<SessionId, ConnectionClient>,
    traces: LruCache<(ClientKey, TraceId), WorkSessionKey>,
}

#[derive(Debug)]
struct ConnectionClient {
    principal: Principal,
    name: Box<str>,
    profile: Option<Box<str>>,
    workspace: Option<KeyedHash>,
    /// The key of these.
    key: ClientKey,
}

impl ConnectionClient {
    fn is_of(&self, request: &WorkRequest<'_>) -> bool {
        self.principal == *request.principal
            && *self.name == *request.client_name
            && self.profile.as_deref() == request.profile
            && self.workspace == request.workspace
    }
}

/// The windows of a client with their session keys. Each request asks for keys, and a hash takes
/// longer than finding it here.
#[derive(Debug, Default)]
struct KeyedWindows {
    windows: ClientWindows,
    keys: RefCell<HashMap<usize, WorkSessionKey>>,
}

/// A session key with the longest pause of its work session.
#[derive(Clone, Copy, Debug)]
struct KeyWithGap {
    key: WorkSessionKey,
    idle_gap: IdleGap,
}

impl WorkSessions {
    /// Creates work sessions, persistent with a store or else in memory.
    #[must_use]
    pub fn new(
        store: Option<Arc<dyn WorkSessionRepository>>,
        hasher: KeyedHasher,
        idle_gap: IdleGap,
    ) -> Self {
        let n = NonZeroUsize::new(MAX_REMEMBERED).unwrap_or(NonZeroUsize::MIN);
        Self {
            store,
            keys: SessionKeys::new(hasher),
            idle_gap,
            entropy: EntropySource::new(),
            state: Mutex::new(SessionMaps {
                lanes: ActiveSessions::default(),
                windows: LruCache::new(n),
                clients: LruCache::new(n),
                traces: LruCache::new(n),
            }),
            telling: Arc::new(Semaphore::new(MAX_TELLING)),
        }
    }

    /// Returns the work session of a request; it is a new one after too long a pause. Never fails,
    /// and waits for the store for half a second at most.
    pub async fn resolve(self: &Arc<Self>, request: &WorkRequest<'_>) -> WorkSessionId {
        let now = request.now;
        let place = {
            let mut state = self.state.lock();
            let place = self.find_key(&mut state, request);
            if let Some(lane) = state.lanes.going_on(place.key, now, place.idle_gap) {
                let (id, is_due) = lane.active(now, request.kind);
                drop(state);
                if is_due {
                    self.update_store(place);
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
        let mut state = self.state.lock();
        if known.is_none()
            && let Some(lane) = state.lanes.going_on(place.key, now, place.idle_gap)
        {
            // Another request was resolved first.
            return lane.active(now, request.kind).0;
        }
        let lane = match known {
            Some(known) => ActiveSession::from_store(known, now),
            None => ActiveSession::new_unstored(candidate, now),
        };
        state.lanes.put(lane)
    }

    /// Releases the windows of a closed connection, so that another one may continue its work
    /// session.
    pub fn on_disconnect(&self, connection: SessionId) {
        let mut state = self.state.lock();
        let SessionMaps {
            windows, clients, ..
        } = &mut *state;
        let client = clients.pop(&connection);
        if let Some(known) = client.and_then(|client| windows.get_mut(&client.key)) {
            known.windows.remove_connection(connection);
        }
    }

    fn find_key(&self, state: &mut SessionMaps, request: &WorkRequest<'_>) -> KeyWithGap {
        let client = self.client_key(state, request);
        let hints = request.hints;
        if let Some(key) = self.keys.chosen_key(&client, hints) {
            let idle_gap = MAX_CHOSEN_KEY_GAP.max(self.idle_gap.most()).into();
            return store_trace(state, client, request, KeyWithGap { key, idle_gap });
        }
        let idle_gap = self.idle_gap;
        let joined = hints.trace.and_then(|trace| {
            let key = *state.traces.get(&(client, trace))?;
            state.lanes.going_on(key, request.now, idle_gap)?;
            Some(key)
        });
        if let Some(key) = joined {
            return KeyWithGap { key, idle_gap };
        }
        let SessionMaps { lanes, windows, .. } = &mut *state;
        let KeyedWindows { windows, keys } =
            windows.get_or_insert_mut(client, KeyedWindows::default);
        let key_of = |number| {
            let mut keys = keys.borrow_mut();
            let key = keys.entry(number);
            *key.or_insert_with(|| self.keys.window(&client, number))
        };
        let goes_on = |number| lanes.goes_on(key_of(number), request.now, idle_gap);
        let number = windows.assign_window(
            request.connection,
            request.kind == RequestKind::Call,
            request.now,
            goes_on,
        );
        let key = key_of(number);
        store_trace(state, client, request, KeyWithGap { key, idle_gap })
    }

    /// Returns the key of the client of a request. It is stored with the connection: at the end of the
    /// connection only its id is known.
    fn client_key(&self, state: &mut SessionMaps, request: &WorkRequest<'_>) -> ClientKey {
        let known = state.clients.get(&request.connection);
        if let Some(known) = known.filter(|known| known.is_of(request)) {
            return known.key;
        }
        let key = self.keys.client(request);
        let client = ConnectionClient {
            principal: request.principal.clone(),
            name: request.client_name.into(),
            profile: request.profile.map(Into::into),
            workspace: request.workspace,
            key,
        };
        state.clients.put(request.connection, client);
        key
    }

    /// Asks the store; `None` if it fails or times out.
    async fn ask(&self, candidate: &WorkSession, idle_gap: IdleGap) -> Option<WorkSession> {
        let store = self.store.as_ref()?;
        let asked = store.resolve_work_session(candidate, idle_gap);
        match tokio::time::timeout(STORE_TIMEOUT, asked).await {
            Ok(Ok(known)) => Some(known),
            Ok(Err(error)) => {
                tracing::debug!("starting a work session without the store: {error}");
                None
            }
            Err(_) => {
                tracing::debug!("starting a work session without the store: timeout");
                None
            }
        }
    }

    /// Updates the store in the background: the work session of a key continues.
    fn update_store(self: &Arc<Self>, place: KeyWithGap) {
        let Some(store) = self.store.clone() else {
            return;
        };
        // With too many updates running, the next request does it.
        let Ok(permit) = Arc::clone(&self.telling).try_acquire_owned() else {
            return;
        };
        let Some(candidate) = self.state.lock().lanes.begin_update(place.key) else {
            return;
        };
        let itself = Arc::clone(self);
        tokio::spawn(async move {
            // The store has an older time of the last request, so it gets a longer limit for the
            // pause. Otherwise it could begin another work session for one that continues here.
            let idle_gap = place
                .idle_gap
                .most()
                .saturating_add(active_sessions::UPDATE_INTERVAL);
            let told = store.resolve_work_session(&candidate, idle_gap.into());
            let told = tokio::time::timeout(UPDATE_TIMEOUT, told).await;
            let known = told.ok().and_then(Result::ok);
            itself
                .state
                .lock()
                .lanes
                .finish_update(place.key, candidate.id, known);
            drop(permit);
        });
    }
}

/// Stores the session key of the trace of a request.
fn store_trace(
    state: &mut SessionMaps,
    client: ClientKey,
    request: &WorkRequest<'_>,
    place: KeyWithGap,
) -> KeyWithGap {
    if let Some(trace) = request.hints.trace {
        state.traces.put((client, trace), place.key);
    }
    place
}

#[cfg(test)]
mod tests;
