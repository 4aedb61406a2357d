//! Health checks of upstreams before clients need them: at the start, after a reload with new
//! upstreams, and repeatedly while an upstream does not answer.
//!
//! A check opens a connection of the proxy, asks the server who it is and what it lists, and closes
//! the connection. Sessions are answered from what the checks found out. The connection counts
//! towards the connection limit of the upstream. A check is no session.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::{CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO};
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::{Era, Revision};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamEvents, UpstreamLink};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::list_kind::ListKind;
use super::shared_state::SharedState;
use super::upstream_cache::{CachedList, ListKey, digest_of};
use super::upstream_session::connection::answered_within;
use super::upstream_set::UpstreamEntry;

/// The maximum number of concurrent checks of servers that are reached by URL.
const MAX_REMOTE: usize = 32;

/// The time after which the starts count as settled, also if some upstreams have not answered yet.
const SETTLED_AFTER: Duration = Duration::from_mins(1);

/// The maximum number of pages that are fetched of one list.
const MAX_PAGES: usize = 1_000;

/// The polling interval for due checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause after a check. It grows with each failure.
const PAUSE: Backoff = Backoff::new(Duration::from_secs(15), Duration::from_mins(10));

/// The pause after a check if an error in a session makes another check necessary.
const MIN_PAUSE_IN_DOUBT: Duration = Duration::from_secs(2);

/// The schedule of checks of one upstream.
#[derive(Debug, Default)]
pub(super) struct CheckPlan {
    schedule: Mutex<CheckSchedule>,
    /// Cancelled at the end of the first check.
    first: CancellationToken,
}

#[derive(Debug)]
struct CheckSchedule {
    is_running: bool,
    /// `None` before the first check.
    next: Option<Instant>,
    failures: FailureStreak,
    ended: Option<Instant>,
}

impl Default for CheckSchedule {
    fn default() -> Self {
        Self {
            is_running: false,
            next: None,
            failures: FailureStreak::new(PAUSE),
            ended: None,
        }
    }
}

impl CheckPlan {
    /// Returns whether a check is due, and marks it as running if it is.
    fn begin_if_due(&self, now: Instant) -> bool {
        let mut due = self.schedule.lock();
        let begins = !due.is_running && due.next.is_none_or(|next| next <= now);
        due.is_running |= begins;
        begins
    }

    /// Registers the end of a check. The pause grows with each check until the upstream answers.
    fn finish_check(&self, now: Instant, is_available: bool) {
        let mut due = self.schedule.lock();
        due.is_running = false;
        let random = fastrand::f64();
        let pause = if is_available {
            due.failures.reset();
            PAUSE.delay(1, random)
        } else {
            due.failures.record_failure(random)
        };
        due.next = Some(now + pause);
        due.ended = Some(now);
        self.first.cancel();
    }

    /// Schedules the next check soon.
    pub(super) fn check_soon(&self) {
        let mut due = self.schedule.lock();
        let soon = due.ended.map(|ended| ended + MIN_PAUSE_IN_DOUBT);
        due.next = due.next.zip(soon).map(|(next, soon)| next.min(soon));
    }

    /// Waits for the end of the first check.
    pub(super) async fn first_end(&self) {
        self.first.cancelled().await;
    }

    /// Returns whether the first check has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.first.is_cancelled()
    }
}

/// Checks until `stop` is cancelled whether the upstreams answer. Each upstream that no session
/// has used is checked once. Upstreams that fail are checked again with growing pauses. The
/// results are logged and are part of the states of the upstreams. `on_news` is called when the
/// starts have settled, and for each later check that finds other lists.
pub(super) async fn check_upstreams(
    shared: &SharedState,
    stop: &CancellationToken,
    on_news: impl Fn(),
) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // One start of those that may run at once is left for a session that waits for it.
    let max_starts = (2 * cores).saturating_sub(1).max(1);
    let began = Instant::now();
    shared.starts.begin();
    let mut checks = FuturesUnordered::new();
    let (mut n_starts, mut n_remote) = (0, 0);
    loop {
        let now = Instant::now();
        for entry in &shared.upstreams.load().entries {
            let (n_running, most) = if entry.starts_processes() {
                (&mut n_starts, max_starts)
            } else {
                (&mut n_remote, MAX_REMOTE)
            };
            if *n_running < most && entry.wants_check() && entry.checks.begin_if_due(now) {
                *n_running += 1;
                checks.push(check(shared, Arc::clone(entry)));
            }
        }
        let settles = shared.starts.are_settling()
            && (began.elapsed() >= SETTLED_AFTER || are_all_checked(shared));
        if settles {
            shared.starts.settle();
            on_news();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Some((entry, has_news)) = checks.next(), if !checks.is_empty() => {
                let n_running = if entry.starts_processes() { &mut n_starts } else { &mut n_remote };
                *n_running -= 1;
                let is_available = entry.failure().is_none();
                entry.checks.finish_check(Instant::now(), is_available);
                if has_news && !shared.starts.are_settling() {
                    on_news();
                }
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Returns whether no first check is in progress or due.
fn are_all_checked(shared: &SharedState) -> bool {
    let set = shared.upstreams.load();
    !set.entries.iter().any(|entry| entry.is_starting())
}

/// Checks one upstream. Returns whether its lists differ from what was known.
async fn check(shared: &SharedState, entry: Arc<UpstreamEntry>) -> (Arc<UpstreamEntry>, bool) {
    let principal = Principal::local();
    let most = entry.upstream.options.max_connections;
    let bounds = shared.bounds(most.unwrap_or(usize::MAX));
    // If sessions use all connections, they notice failures by themselves.
    let slot = entry.slots.take(&principal, bounds, Duration::ZERO).await;
    let Ok(_slot) = slot else {
        return (entry, false);
    };
    let started_at = Instant::now();
    let was_down = entry.failure().is_some();
    let limits = shared.limits().clone();
    let limit = limits.handshake_timeout;
    let checked = {
        let asking = introduce(&entry, first_era(&entry), limit);
        tokio::pin!(asking);
        // After this time a server that is not just starting counts as late for fan-outs, but the
        // check continues.
        let in_time = tokio::time::timeout(limits.unite_timeout, &mut asking).await;
        if let Ok(checked) = in_time {
            checked
        } else {
            if !entry.starts_processes() {
                entry.note_late(started_at);
            }
            asking.await
        }
    };
    let name = entry.name();
    let mut has_news = false;
    match checked {
        Ok(mut introduction) => {
            has_news = was_down | introduction.remember(&entry);
            let greeting = introduction.greeting;
            shared.store_knowledge(&entry).await;
            let description = greeting.description();
            let took_ms = started_at.elapsed().as_millis();
            tracing::info!(
                upstream = %name,
                "upstream {name} is available: {description}; handshake took {took_ms} ms"
            );
        }
        // An answer to a session in the meantime is newer evidence than this failure.
        Err(error) if entry.has_answered_since(started_at) => {
            entry.note_request_failure(&error);
        }
        Err(error) => entry.note_failure(&error),
    }
    (entry, has_news)
}

/// Returns the era in which a server is asked first. Discovery finds out both eras with one start; it
/// is not worth a try where nothing is started, or of a server that is known to be legacy only.
fn first_era(entry: &UpstreamEntry) -> Era {
    let is_legacy = !entry.tells_eras_apart() && entry.greeting(Era::Legacy).is_some();
    if is_legacy || !entry.starts_processes() {
        Era::Legacy
    } else {
        Era::Modern
    }
}

/// The greeting of a server for clients of an era, and its lists.
struct Introduction {
    era: Era,
    /// The capabilities that the check declared.
    capabilities: Arc<str>,
    greeting: Greeting,
    lists: Vec<(ListKind, CachedList)>,
}

impl Introduction {
    /// Stores the answers. Returns whether the lists differ from what was known.
    fn remember(&mut self, entry: &UpstreamEntry) -> bool {
        let era = entry.era_of(self.era);
        let asked = (self.era == Era::Legacy).then_some(Revision::NEWEST_LEGACY);
        entry.catalog.note_greeting(era, asked, &self.greeting.0);
        let mut is_other = false;
        for (kind, list) in std::mem::take(&mut self.lists) {
            let of_check = ListKey::of_check(kind, era);
            // It is the list of such a client, too.
            let key = ListKey {
                capabilities: digest_of(Some(&self.capabilities)),
                ..of_check.clone()
            };
            let catalog = &entry.catalog;
            let known = catalog.list(&key).or_else(|| catalog.list(&of_check));
            catalog.remember(of_check, list.clone());
            let list = catalog.remember(key, list);
            is_other |= known.is_none_or(|known| known.digest != list.digest);
        }
        is_other
    }
}

/// Connects to an upstream as a client of an era, asks it who it is and what it lists, and closes the
/// connection. `limit` is the time for the first answer of a server that runs, and for its lists
/// together.
async fn introduce(
    entry: &UpstreamEntry,
    era: Era,
    limit: Duration,
) -> Result<Introduction, UpstreamError> {
    let answers = Arc::new(CheckEvents::default());
    let principal = Principal::local();
    let connecting = (entry.upstream.connector).connect(&principal, answers.clone());
    let connecting = tokio::time::timeout(limit, connecting).await;
    let link = connecting.unwrap_or(Err(UpstreamError::NoAnswer))?;
    // It is set once.
    let _ = answers.link.set(Arc::downgrade(&link));
    // The guard closes the connection also if this future is dropped. A process must not outlive
    // its check.
    let mut asking = Asking {
        legacy: entry.catalog.capabilities(Era::Legacy),
        modern: entry.catalog.capabilities(Era::Modern),
        link: ClosingLink(Some(Arc::clone(&link))),
        answers,
        n_asked: AtomicU64::new(0),
        era,
    };
    let greeted = answered_within(&*link, limit, asking.greet()).await;
    let greeted = greeted.unwrap_or(Err(UpstreamError::Unreachable {
        reason: match link.time_to_start() {
            Some(_) => "its program wrote nothing in its time to start (start_timeout)",
            None => "no answer to the handshake",
        },
    }));
    let introduced = match greeted {
        Ok(greeting) => {
            entry.note_connected();
            // Lists that may need an approval are those of sessions, where they are filtered.
            let lists = if entry.upstream.approvals.is_some() {
                Vec::new()
            } else {
                // A server that does not list in time is available all the same.
                let lists = tokio::time::timeout(limit, asking.lists(&greeting)).await;
                lists.unwrap_or_default()
            };
            Ok(Introduction {
                era: asking.era,
                capabilities: Arc::clone(asking.capabilities()),
                greeting,
                lists,
            })
        }
        Err(error) => Err(error),
    };
    asking.link.close().await;
    introduced
}

/// A connection over which a check asks, in the name of the last client.
struct Asking {
    /// The capabilities of the last client of each era.
    legacy: Arc<str>,
    modern: Arc<str>,
    link: ClosingLink,
    answers: Arc<CheckEvents>,
    n_asked: AtomicU64,
    /// The era of the requests. A server that is known to be legacy only gets no other ones, since
    /// some servers end at the first request that they do not know.
    era: Era,
}

impl Asking {
    fn capabilities(&self) -> &Arc<str> {
        match self.era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }

    /// Asks the server who it is: by discovery, which the bridge answers for older servers, or else
    /// by a handshake.
    async fn greet(&mut self) -> Result<Greeting, UpstreamError> {
        if self.era == Era::Modern {
            let answer = self.ask(method::SERVER_DISCOVER, json!({})).await?;
            if let Some(result) = result_of(&answer) {
                return Ok(Greeting(result.to_owned()));
            }
            self.era = Era::Legacy;
        }
        let params = json!({
            "protocolVersion": Revision::NEWEST_LEGACY,
            "clientInfo": client_info(),
        });
        let params = with_member(&params.to_string(), "capabilities", &self.legacy);
        let answer = self.request(method::INITIALIZE, &params).await?;
        let Some(result) = result_of(&answer) else {
            return Err(UpstreamError::from_refusal(&answer));
        };
        let initialized = Message::notification(method::NOTIFICATIONS_INITIALIZED, None);
        self.send(initialized).await?;
        Ok(Greeting(result.to_owned()))
    }

    /// Returns the lists that the server declares and that it answers with.
    async fn lists(&self, greeting: &Greeting) -> Vec<(ListKind, CachedList)> {
        let mut lists = Vec::new();
        for kind in ListKind::ALL {
            if kind.is_declared_in(&greeting.0)
                && let Some(list) = self.list(kind).await
            {
                lists.push((kind, list));
            }
        }
        lists
    }

    async fn list(&self, kind: ListKind) -> Option<CachedList> {
        let mut list = CachedList::default();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut params = json!({});
            if let Some(cursor) = &cursor {
                params["cursor"] = serde_json::from_str(cursor).ok()?;
            }
            let answer = self.ask(kind.method(), params).await.ok()?;
            let next = list.add_page(kind, result_of(&answer)?);
            if next.is_none() || next == cursor {
                return Some(list);
            }
            cursor = next;
        }
        Some(list)
    }

    /// Sends a request in the form of the era and returns its answer.
    async fn ask(&self, method: &str, params: Value) -> Result<Message, UpstreamError> {
        if self.era == Era::Legacy {
            return self.request(method, &params.to_string()).await;
        }
        let meta = json!({
            PROTOCOL_VERSION: Revision::NEWEST_MODERN,
            CLIENT_INFO: client_info(),
        });
        let meta = with_member(&meta.to_string(), CLIENT_CAPABILITIES, &self.modern);
        let params = with_member(&params.to_string(), "_meta", &meta);
        self.request(method, &params).await
    }

    async fn request(&self, method: &str, params: &str) -> Result<Message, UpstreamError> {
        let id = InternalRequest::HealthCheck.id(self.n_asked.fetch_add(1, Ordering::Relaxed));
        let answer = self.answers.expect(id.clone());
        self.send(Message::request(&id, method, Some(params)))
            .await?;
        answer.await.unwrap_or(Err(UpstreamError::NoAnswer))
    }

    async fn send(&self, message: Message) -> Result<(), UpstreamError> {
        let Some(link) = &self.link.0 else {
            return Err(UpstreamError::NoAnswer);
        };
        if let SendOutcome::UnderWay(exchange) = link.send(message).await? {
            crate::proxy::log_spans::spawn(exchange.run);
        }
        Ok(())
    }
}

fn client_info() -> Value {
    json!({"name": "riglm", "version": env!("CARGO_PKG_VERSION")})
}

pub(super) fn result_of(answer: &Message) -> Option<&str> {
    let envelope = answer.single();
    let envelope = envelope.filter(|envelope| envelope.kind() == MessageKind::Success)?;
    answer.result(envelope)
}

/// The JSON text of the result of a handshake or of discovery.
struct Greeting(String);

impl Greeting {
    /// Returns the name, the version and the protocol revision of the server for log messages.
    fn description(&self) -> String {
        let result = &self.0;
        let text = |within: Option<&str>, key: &str| -> Option<String> {
            serde_json::from_str(member(within?, key)?).ok()
        };
        let meta = member(result, "_meta");
        let server =
            member(result, "serverInfo").or(meta.and_then(|meta| member(meta, SERVER_INFO)));
        let revision = text(Some(result), "protocolVersion").map(|it| format!("revision {it}"));
        let version = text(server, "version");
        let name = text(server, "name").map(|name| match version {
            Some(version) => format!("{name} {version}"),
            None => name,
        });
        let known: Vec<String> = name.into_iter().chain(revision).map(cut).collect();
        if known.is_empty() {
            "unnamed server".into()
        } else {
            known.join(", ")
        }
    }
}

/// Truncates a text that a server sent about itself.
fn cut(text: String) -> String {
    const MAX_CHARS: usize = 100;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

/// A connection that is closed in the background if it is dropped without `close`.
struct ClosingLink(Option<Arc<dyn UpstreamLink>>);

impl ClosingLink {
    async fn close(mut self) {
        if let Some(link) = self.0.take() {
            link.close().await;
        }
    }
}

impl Drop for ClosingLink {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            crate::proxy::log_spans::spawn(async move { link.close().await });
        }
    }
}

/// Receives the answers of a check. It refuses the requests of the server, and ignores all other
/// messages.
#[derive(Debug, Default)]
struct CheckEvents {
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<Result<Message, UpstreamError>>>>,
    link: OnceLock<Weak<dyn UpstreamLink>>,
}

impl CheckEvents {
    fn expect(&self, id: RequestId) -> oneshot::Receiver<Result<Message, UpstreamError>> {
        let (answered, answer) = oneshot::channel();
        self.waiting.lock().insert(id, answered);
        answer
    }

    fn end(&self, id: &RequestId, answer: Result<Message, UpstreamError>) {
        let waiting = self.waiting.lock().remove(id);
        if let Some(waiting) = waiting {
            // The receiver may have given up.
            let _ = waiting.send(answer);
        }
    }
}

#[async_trait]
impl UpstreamEvents for CheckEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((_, id)) = request
            && let Some(link) = self.link.get().and_then(Weak::upgrade)
        {
            let error = RpcError::new(RpcErrorCode::MethodNotFound, "a check answers nothing");
            if let Ok(refusal) = Message::from_text(error.to_json(Some(id))) {
                // The server may wait for the answer before it lists. Its end is noticed elsewhere.
                let _ = link.send(refusal).await;
            }
            return;
        }
        let envelope = message.single().filter(|envelope| envelope.is_response());
        let id = envelope
            .and_then(|envelope| envelope.id().cloned())
            .or(related);
        if let Some(id) = id.filter(|_| envelope.is_some()) {
            self.end(&id, Ok(message));
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        self.end(&request, Err(error));
    }

    async fn on_lost(&self, error: UpstreamError) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waiting in waiting.into_values() {
            let _ = waiting.send(Err(error.clone()));
        }
    }
}
