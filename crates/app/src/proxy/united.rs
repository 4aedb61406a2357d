//! Several upstreams as one server.
//!
//! Each upstream of a session has a relay of its own, which speaks with it as if it were the only
//! one. What is here decides which of them a message of the client is for (`route`), asks all of
//! them where all are meant (`ask`), joins what they answer (`hello`, `list`, `listen`), and keeps
//! apart what they say on their own account (`from_member`). Ids that the client chose reach the
//! upstream unchanged, since each request goes to one of them; where it goes to several, and for
//! what the upstreams ask the client, ids of the proxy's own stand in.

mod ask;
pub(super) mod catalog;
mod changes;
pub(super) mod directory;
mod for_all;
mod from_client;
mod from_member;
pub(super) mod hello;
mod list;
pub(super) mod list_kind;
mod listen;
mod route;
mod search;
mod seen;
pub(super) mod template;
pub(super) mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::changes::Calm;
use self::directory::UnitedList;
use self::list_kind::{ChangeKind, ListKind};
use self::listen::Listen;
use self::seen::SeenList;
use super::places::{Place, Presence, Standing};

/// What the ids begin with of what the session asks for, and of what it passes on to the client.
const OWN_IDS: &str = "riglm:u:";
/// How many lists of one kind a client may be paging through.
const MAX_LISTS: usize = 4;
/// How many bytes the older ones of these may have.
const MAX_OLD_BYTES: usize = 8 << 20;
/// The most tasks whose owner is remembered.
const MAX_TASKS: usize = 4_096;
/// The most requests of one upstream that wait for the client at once. What the client leaves
/// unanswered is forgotten when others come.
const MAX_FROM_MEMBER: usize = 256;

/// What a session keeps to present several upstreams as one.
#[derive(Debug, Default)]
pub(super) struct United {
    state: Mutex<State>,
    next: AtomicU64,
    has_fewer: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Requests of the client that are not answered yet.
    in_flight: HashMap<RequestId, InFlight>,
    /// The places of those that the session itself works on.
    standings: HashMap<RequestId, Standing>,
    /// Requests that the session itself made of members.
    asks: HashMap<RequestId, Ask>,
    /// Requests of members, by the id under which the client got them.
    from_members: HashMap<RequestId, FromMember>,
    /// The members that work on tasks, oldest first.
    tasks: VecDeque<(String, u64)>,
    /// Streams of notifications of the client.
    listens: HashMap<RequestId, Arc<Listen>>,
    /// The lists that the client saw last, the newest first.
    lists: HashMap<ListKind, VecDeque<Arc<UnitedList>>>,
    /// What the client saw of each list when it asked last.
    seen: HashMap<ListKind, SeenList>,
    /// The upstreams that the last answer to each list left out.
    missing: HashMap<ListKind, Vec<UpstreamName>>,
    /// Lists that may have changed, with the members that have to be asked for them again.
    changed: BTreeMap<ChangeKind, BTreeSet<u64>>,
    /// Changes that are told whatever the client saw: it may have seen lists of which nothing is noted
    /// here.
    told_anyhow: BTreeSet<ChangeKind>,
    /// How often that was noted.
    n_changes: HashMap<ChangeKind, u64>,
    is_telling: bool,
    /// Members that are asked later for lists that may have changed.
    put_off: BTreeMap<ChangeKind, BTreeSet<u64>>,
    /// Until when members are not asked again for lists that they say have changed.
    calm: HashMap<(ChangeKind, u64), Calm>,
    /// When the tools of all upstreams were known last, and for how many milliseconds.
    gathered: Option<(Instant, u64)>,
}

/// Who works on a request of the client.
#[derive(Clone, Debug)]
enum InFlight {
    /// One member.
    Member { number: u64, is_call: bool },
    /// The session itself, until this is cancelled.
    Here(CancellationToken),
}

/// A request that the session made of a member.
#[derive(Debug)]
struct Ask {
    answer: oneshot::Sender<Message>,
    /// The request of the client that it was made for.
    behalf: Option<RequestId>,
    /// The stream of notifications that it is a part of.
    listen: Option<Arc<Listen>>,
}

/// A request that a member made of the client.
#[derive(Clone, Debug)]
struct FromMember {
    number: u64,
    /// The id that the member gave it.
    id: RequestId,
    /// The token under which the member wants to hear of its progress; the client reports it under
    /// the id that it got.
    progress_token: Option<RequestId>,
    asked: Instant,
}

/// Returns whether an id was made by a session.
pub(super) fn is_own(id: &RequestId) -> bool {
    matches!(id, RequestId::Text(text) if text.starts_with(OWN_IDS))
}

impl United {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new id of the proxy's own.
    fn own_id(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId::Text(format!("{OWN_IDS}{number}").into())
    }

    /// Returns when all upstreams were last asked for their tools, and for how long their lists stay
    /// as they are, in milliseconds.
    fn gathered(&self) -> Option<(Instant, u64)> {
        self.state().gathered
    }

    /// Notes that all upstreams answered with their tools just now.
    fn note_gathered(&self, ttl_ms: u64) {
        self.state().gathered = Some((Instant::now(), ttl_ms));
    }

    /// Notes that what is known of the tools may no longer be all of them.
    fn forget_gathered(&self) {
        self.state().gathered = None;
    }

    /// Returns whether nothing is in flight here. What members work on is not counted.
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.state();
        let is_here = |request: &InFlight| matches!(request, InFlight::Here(_));
        !state.in_flight.values().any(is_here)
    }

    /// Forgets a request that has ended without an answer.
    pub(super) fn forget(&self, id: &RequestId) {
        let mut state = self.state();
        // Who made it here learns that nothing comes any more.
        let ask = state.asks.remove(id);
        let is_known = state.in_flight.remove(id).is_some();
        drop((state, ask));
        if is_known {
            self.has_fewer.notify_waiters();
        }
    }

    /// Notes whether the client waits for the answer to a request, if the session itself works on it.
    /// Returns the requests that it made of members for that.
    pub(super) fn note_presence(
        &self,
        id: &RequestId,
        presence: Presence,
        background: impl FnOnce() -> Option<Place>,
    ) -> Vec<RequestId> {
        let parts = {
            let mut state = self.state();
            if let Some(standing) = state.standings.get_mut(id) {
                standing.note(presence, background);
            }
            let asks = state.asks.iter();
            let parts = asks.filter(|(_, ask)| ask.behalf.as_ref() == Some(id));
            parts.map(|(part, _)| part.clone()).collect()
        };
        self.has_fewer.notify_waiters();
        parts
    }

    /// Waits until nothing is in flight here that ends by itself and that the client waits for, at
    /// most `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        let ended = async {
            loop {
                let fewer = self.has_fewer.notified();
                let is_over = {
                    let state = self.state();
                    let lasts = |id: &RequestId| {
                        let standing = state.standings.get(id);
                        state.listens.contains_key(id) || standing.is_some_and(Standing::is_left)
                    };
                    let is_here = |request: &InFlight| matches!(request, InFlight::Here(_));
                    let mut all = state.in_flight.iter();
                    !all.any(|(id, request)| is_here(request) && !lasts(id))
                };
                if is_over {
                    return;
                }
                fewer.await;
            }
        };
        // What is left then is cut off by the end of the session.
        let _ = tokio::time::timeout(limit, ended).await;
    }
}

impl State {
    /// Returns whether so many requests are in flight. Those in the background have places of their
    /// own.
    fn is_full(&self, limit: usize) -> bool {
        let n_requests = self.in_flight.len();
        let standings = self.standings.values();
        n_requests >= limit
            && n_requests - standings.filter(|of| of.is_in_background()).count() >= limit
    }

    /// Returns the list of a kind that the client saw last.
    fn list(&self, kind: ListKind) -> Option<Arc<UnitedList>> {
        self.lists.get(&kind)?.front().cloned()
    }

    /// Remembers a list that the client is shown. Older ones stay for a client that pages through
    /// them, so that those with one page need not; an upstream that lists something else each time
    /// must not fill the memory with what it said.
    fn note_list(&mut self, kind: ListKind, list: &Arc<UnitedList>, page_entries: usize) {
        let lists = self.lists.entry(kind).or_default();
        let mut n_bytes = 0;
        lists.retain(|known| {
            n_bytes += known.n_bytes();
            let has_pages = known.len() > page_entries;
            has_pages && n_bytes <= MAX_OLD_BYTES && !Arc::ptr_eq(known, list)
        });
        lists.push_front(Arc::clone(list));
        lists.truncate(MAX_LISTS);
    }

    /// Remembers a request of a member. Another one under the same id is of a connection that is
    /// gone, since ids are unique on each.
    fn note_from_member(&mut self, own: RequestId, asked: FromMember) {
        let number = asked.number;
        self.from_members
            .retain(|_, known| known.number != number || known.id != asked.id);
        let of_member = || {
            self.from_members
                .iter()
                .filter(|(_, known)| known.number == number)
        };
        if of_member().count() >= MAX_FROM_MEMBER {
            let oldest = of_member().min_by_key(|(_, known)| known.asked);
            let oldest = oldest.map(|(own, _)| own.clone());
            tracing::warn!("a request of an upstream is forgotten: too many wait for the client");
            oldest.and_then(|oldest| self.from_members.remove(&oldest));
        }
        self.from_members.insert(own, asked);
    }

    /// Remembers which member works on a task.
    fn note_task(&mut self, task: String, number: u64) {
        self.tasks.retain(|(known, _)| *known != task);
        if self.tasks.len() >= MAX_TASKS {
            self.tasks.pop_front();
        }
        self.tasks.push_back((task, number));
    }

    /// Returns the member that works on a task.
    fn owner_of_task(&self, task: &str) -> Option<u64> {
        let mut tasks = self.tasks.iter();
        tasks
            .find(|(known, _)| known == task)
            .map(|(_, number)| *number)
    }
}
