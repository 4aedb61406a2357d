//! The aggregator: presents several upstreams as one server.
//!
//! Each upstream of a session has its own relay, which treats it as the only one. The aggregator
//! routes a message of the client to one relay (`route`), or to all of them (fan-out). It merges
//! the answers (handshake, `list`, `listen`) and keeps messages that upstreams send by themselves
//! apart (`from_upstream`). A request for one upstream keeps the id of the client. Fan-outs and
//! requests of upstreams to the client get ids of the proxy.

mod all_upstreams;
pub(super) mod catalog;
mod changes;
mod fan_out;
mod from_client;
mod from_upstream;
pub(super) mod initialize;
mod list;
pub(super) mod list_kind;
mod listen;
pub(super) mod merged_lists;
mod route;
mod search;
mod shown_lists;
pub(super) mod template;
pub(super) mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use self::changes::CalmPeriod;
use self::list_kind::{ChangeKind, ListKind};
use self::listen::ListenStream;
use self::merged_lists::AggregateList;
use self::shown_lists::SeenList;
use super::permits::{ClientPresence, PrincipalPermit, RequestPermit};

/// The prefix of ids of fan-out requests and of requests that the session forwards to the client.
const OWN_IDS: &str = "riglm:u:";
/// The maximum number of lists of one kind that a client may page through at once.
const MAX_LISTS: usize = 4;
/// The maximum size of the older of these lists in bytes.
const MAX_OLD_BYTES: usize = 8 << 20;
/// The maximum number of tasks whose upstream is remembered.
const MAX_TASKS: usize = 4_096;
/// The maximum number of requests of one upstream that wait for the client. When it is reached, the
/// oldest request is dropped.
const MAX_FROM_MEMBER: usize = 256;

/// The state of the aggregator of one session.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    state: Mutex<AggregatorState>,
    next: AtomicU64,
    has_fewer: Notify,
}

#[derive(Debug, Default)]
struct AggregatorState {
    /// The requests of the client that are not answered yet.
    in_flight: HashMap<RequestId, InFlightRequest>,
    /// The permits of requests that the session handles itself.
    standings: HashMap<RequestId, RequestPermit>,
    /// The requests that the session sent to upstreams.
    asks: HashMap<RequestId, FanOutRequest>,
    /// The requests of upstreams, by the id that the client received.
    from_members: HashMap<RequestId, RequestFromUpstream>,
    /// The tasks and the upstream sessions that work on them, oldest first.
    tasks: VecDeque<(String, u64)>,
    /// The notification streams of the client.
    listens: HashMap<RequestId, Arc<ListenStream>>,
    /// The last lists that the client saw, newest first.
    lists: HashMap<ListKind, VecDeque<Arc<AggregateList>>>,
    /// The content of each list when the client last requested it.
    seen: HashMap<ListKind, SeenList>,
    /// The upstreams that are missing in the last answer for each list.
    missing: HashMap<ListKind, Vec<UpstreamName>>,
    /// The lists that may have changed, with the upstream sessions whose lists must be fetched
    /// again.
    changed: BTreeMap<ChangeKind, BTreeSet<u64>>,
    /// The changes to report in any case, because the client may have seen lists that are not
    /// tracked here.
    told_anyhow: BTreeSet<ChangeKind>,
    /// The number of changes of each kind so far.
    n_changes: HashMap<ChangeKind, u64>,
    is_telling: bool,
    /// The upstream sessions whose changed lists are fetched later.
    put_off: BTreeMap<ChangeKind, BTreeSet<u64>>,
    /// The calm periods: within one, the list of an upstream session is not fetched again.
    calm: HashMap<(ChangeKind, u64), CalmPeriod>,
    /// The time when the tools of all upstreams were last known, and for how many milliseconds.
    gathered: Option<(Instant, u64)>,
}

/// The handler of a request of the client.
#[derive(Clone, Debug)]
enum InFlightRequest {
    /// One upstream session.
    Member { number: u64, is_call: bool },
    /// The session itself. The token cancels the work.
    Here(CancellationToken),
}

/// A request that the session sent to an upstream.
#[derive(Debug)]
struct FanOutRequest {
    answer: oneshot::Sender<Message>,
    /// The request of the client for which it was made.
    behalf: Option<RequestId>,
    /// The notification stream to which it belongs.
    listen: Option<Arc<ListenStream>>,
}

/// A request that an upstream sent to the client.
#[derive(Clone, Debug)]
struct RequestFromUpstream {
    number: u64,
    /// The id that the upstream assigned.
    id: RequestId,
    /// The progress token of the upstream. The client reports progress under the id that it
    /// received.
    progress_token: Option<RequestId>,
    asked: Instant,
}

/// Returns whether an id was created by a session.
pub(super) fn is_own(id: &RequestId) -> bool {
    matches!(id, RequestId::Text(text) if text.starts_with(OWN_IDS))
}

impl Aggregator {
    /// Returns a new id with the prefix of the aggregator.
    fn own_id(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId::Text(format!("{OWN_IDS}{number}").into())
    }

    /// Returns the time when all upstreams last listed their tools, and the time to live of their
    /// lists in milliseconds.
    fn last_gathered(&self) -> Option<(Instant, u64)> {
        self.state.lock().gathered
    }

    /// Stores that all upstreams have listed their tools now.
    fn note_gathered(&self, ttl_ms: u64) {
        self.state.lock().gathered = Some((Instant::now(), ttl_ms));
    }

    /// Marks the known tools as possibly incomplete.
    fn forget_gathered(&self) {
        self.state.lock().gathered = None;
    }

    /// Returns whether the session itself works on no request. Requests of relays are not counted.
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        let is_here = |request: &InFlightRequest| matches!(request, InFlightRequest::Here(_));
        !state.in_flight.values().any(is_here)
    }

    /// Removes a request that ended without an answer.
    pub(super) fn forget(&self, id: &RequestId) {
        let mut state = self.state.lock();
        // Dropping the sender tells the waiting fan-out that no answer will come.
        let ask = state.asks.remove(id);
        let is_known = state.in_flight.remove(id).is_some();
        drop((state, ask));
        if is_known {
            self.has_fewer.notify_waiters();
        }
    }

    /// Registers the presence of the client for a request that the session handles itself. Returns
    /// the ids of the fan-out requests made for it.
    pub(super) fn note_presence(
        &self,
        id: &RequestId,
        presence: ClientPresence,
        background: impl FnOnce() -> Option<PrincipalPermit>,
    ) -> Vec<RequestId> {
        let parts = {
            let mut state = self.state.lock();
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

    /// Waits at most `limit` until the session handles no request that ends by itself and whose
    /// client is present.
    pub(super) async fn drain(&self, limit: Duration) {
        let ended = async {
            loop {
                let fewer = self.has_fewer.notified();
                let is_over = {
                    let state = self.state.lock();
                    let lasts = |id: &RequestId| {
                        let standing = state.standings.get(id);
                        state.listens.contains_key(id)
                            || standing.is_some_and(RequestPermit::is_left)
                    };
                    let is_here =
                        |request: &InFlightRequest| matches!(request, InFlightRequest::Here(_));
                    let mut all = state.in_flight.iter();
                    !all.any(|(id, request)| is_here(request) && !lasts(id))
                };
                if is_over {
                    return;
                }
                fewer.await;
            }
        };
        // The end of the session cuts off the remaining requests.
        let _ = tokio::time::timeout(limit, ended).await;
    }
}

impl AggregatorState {
    /// Returns whether the limit of requests in flight is reached. Requests in the background do
    /// not count.
    fn is_full(&self, limit: usize) -> bool {
        let n_requests = self.in_flight.len();
        let standings = self.standings.values();
        n_requests >= limit
            && n_requests - standings.filter(|of| of.is_in_background()).count() >= limit
    }

    /// Returns the last list of a kind that the client saw.
    fn list(&self, kind: ListKind) -> Option<Arc<AggregateList>> {
        self.lists.get(&kind)?.front().cloned()
    }

    /// Stores a list that the client is shown. Older lists stay for a client that pages through
    /// them. Lists of one page need not stay. The size is limited, because an upstream may send a
    /// different list each time.
    fn note_list(&mut self, kind: ListKind, list: &Arc<AggregateList>, page_entries: usize) {
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

    /// Stores a request of an upstream. An entry with the same id belongs to a connection that has
    /// ended, because ids are unique per connection.
    fn note_upstream_request(&mut self, own: RequestId, asked: RequestFromUpstream) {
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
            tracing::warn!(
                "dropped the oldest request of an upstream: too many requests wait for the client"
            );
            oldest.and_then(|oldest| self.from_members.remove(&oldest));
        }
        self.from_members.insert(own, asked);
    }

    /// Stores the upstream session that works on a task.
    fn note_task(&mut self, task: String, number: u64) {
        self.tasks.retain(|(known, _)| *known != task);
        if self.tasks.len() >= MAX_TASKS {
            self.tasks.pop_front();
        }
        self.tasks.push_back((task, number));
    }

    /// Returns the upstream session that works on a task.
    fn owner_of_task(&self, task: &str) -> Option<u64> {
        let mut tasks = self.tasks.iter();
        tasks
            .find(|(known, _)| known == task)
            .map(|(_, number)| *number)
    }
}
