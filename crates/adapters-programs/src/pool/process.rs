//! A process that one connection after the other may use, and the state in which it is.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::is_modern_request;
use riglm_domain::mcp::method;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamEvents};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::{Events, Link};

/// The purpose of a message, as far as it tells which processes can take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A question that any process can answer.
    #[default]
    Probe,
    /// A handshake of a client with capabilities of this digest.
    Handshake(u64),
    /// A request of a revision without handshake.
    Modern,
    Other,
}

impl Purpose {
    pub(super) fn of(message: &Message) -> Self {
        let method = message.single().and_then(|envelope| envelope.method());
        match method {
            _ if message.has_method(method::INITIALIZE) => Self::handshake(message),
            Some(method::SERVER_DISCOVER | method::PING) => Self::Probe,
            _ if is_modern_request(message) => Self::Modern,
            _ => Self::Other,
        }
    }

    /// Servers may decide by the capabilities of their first client what they list.
    fn handshake(message: &Message) -> Self {
        let params = message.single().and_then(|part| message.params(part));
        let capabilities = params.and_then(|params| member(params, "capabilities"));
        let mut hasher = DefaultHasher::new();
        capabilities.unwrap_or("{}").hash(&mut hasher);
        Self::Handshake(hasher.finish())
    }
}

/// Whether a process can take the message of another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// It had a handshake, and the message is another one.
    HandshakeAgain,
    No,
}

/// The receiver of a connection.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) events: Events,
    /// Cancelled when the connection is closed or dropped.
    pub(super) left: CancellationToken,
}

impl Holder {
    /// Makes a report, unless the connection is closed before its end.
    async fn report(&self, report: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.left.cancelled() => {}
            () = report => {}
        }
    }
}

/// The messages of a clean process so far.
#[derive(Debug, Default)]
struct History {
    /// The purpose of its messages. A probe leaves no trace.
    past: Purpose,
    /// The principal of its connections; `None` if it was only the one of health checks.
    principal: Option<Principal>,
    /// The requests without an answer.
    in_flight: HashMap<RequestId, Purpose>,
    /// Those of them that ask for tools.
    tool_lists: HashSet<RequestId>,
    /// The handshake of another connection that the process has not answered yet.
    handshake: Option<AnotherHandshake>,
    answered: Option<Instant>,
}

/// A handshake after a handshake.
#[derive(Debug)]
struct AnotherHandshake {
    id: RequestId,
    /// The receiver of all messages from its answer on.
    holder: Arc<Holder>,
    /// Gets whether the process took it.
    outcome: oneshot::Sender<bool>,
}

/// The tools of a server that it declares to change nothing (`readOnlyHint`). A process stays clean
/// after calls of them.
#[derive(Debug, Default)]
pub(super) struct ReadOnlyTools(Mutex<HashSet<String>>);

impl ReadOnlyTools {
    /// Registers the tools in a result, a page of the list.
    fn learn(&self, result: &str) {
        let tools = member(result, "tools").map(serde_json::from_str::<Vec<ListedTool>>);
        let mut known = self.0.lock();
        for tool in tools.and_then(Result::ok).unwrap_or_default() {
            if tool.annotations.unwrap_or_default().read_only_hint == Some(true) {
                known.insert(tool.name);
            } else {
                known.remove(&tool.name);
            }
        }
    }

    /// Returns whether a message is a call of such a tool, and starts no task.
    fn has(&self, message: &Message) -> bool {
        let params = message.single().and_then(|part| message.params(part));
        params.is_some_and(|params| {
            let name = member(params, "name").and_then(unescape);
            member(params, "task").is_none()
                && name.is_some_and(|name| self.0.lock().contains(&*name))
        })
    }
}

#[derive(Deserialize)]
struct ListedTool {
    name: String,
    annotations: Option<Annotations>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "readOnlyHint")]
    read_only_hint: Option<bool>,
}

/// A process of the pool. It is *clean* while it got nothing that a server keeps for its client, and
/// has asked nothing itself.
#[derive(Debug)]
pub(super) struct Process {
    link: OnceLock<Link>,
    holder: ArcSwapOption<Holder>,
    is_clean: AtomicBool,
    is_lost: AtomicBool,
    history: Mutex<History>,
    read_only: Arc<ReadOnlyTools>,
    /// The number of processes. A change of anything for which others wait is reported by it, too.
    live: watch::Sender<usize>,
}

impl Process {
    /// Returns a process that is not started yet. It counts from now on.
    pub(super) fn new(live: &watch::Sender<usize>, read_only: &Arc<ReadOnlyTools>) -> Self {
        live.send_modify(|n| *n += 1);
        Self {
            link: OnceLock::new(),
            holder: ArcSwapOption::empty(),
            is_clean: AtomicBool::new(true),
            is_lost: AtomicBool::new(false),
            history: Mutex::default(),
            read_only: Arc::clone(read_only),
            live: live.clone(),
        }
    }

    /// Sets the connection to the started process.
    pub(super) fn take_link(&self, link: Link) {
        // It is started once, so an error cannot occur.
        let _ = self.link.set(link);
    }

    pub(super) fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    /// Gives the process to a connection of `principal`.
    pub(super) fn give_to(&self, holder: Arc<Holder>, principal: &Principal) {
        if *principal != Principal::local() {
            self.history.lock().principal = Some(principal.clone());
        }
        self.holder.store(Some(holder));
    }

    /// Takes the process away from its connection.
    pub(super) fn take_back(&self) {
        self.history.lock().handshake = None;
        self.holder.store(None);
    }

    /// Returns whether another connection may use the process: it is clean, and nothing is in
    /// flight.
    pub(super) fn can_be_handed_over(&self) -> bool {
        let is_usable =
            self.is_clean.load(Ordering::Acquire) && !self.is_lost.load(Ordering::Acquire);
        is_usable && self.history.lock().in_flight.is_empty()
    }

    /// Returns whether the process can take a message of another connection.
    pub(super) fn fit(&self, purpose: Purpose, principal: &Principal) -> Fit {
        if !self.can_be_handed_over() {
            return Fit::No;
        }
        let history = self.history.lock();
        let user = history.principal.as_ref();
        match (history.past, purpose) {
            _ if user.is_some_and(|user| user != principal) => Fit::No,
            (_, Purpose::Probe) | (Purpose::Probe, _) | (Purpose::Modern, Purpose::Modern) => {
                Fit::Yes
            }
            (Purpose::Handshake(past), Purpose::Handshake(new)) if past == new => {
                Fit::HandshakeAgain
            }
            _ => Fit::No,
        }
    }

    /// Returns whether the process had a handshake.
    pub(super) fn had_handshake(&self) -> bool {
        matches!(self.history.lock().past, Purpose::Handshake(_))
    }

    /// Returns whether the process got nothing that restricts which connection may use it.
    pub(super) fn fits_all(&self) -> bool {
        let history = self.history.lock();
        history.past == Purpose::Probe && history.principal.is_none()
    }

    /// Returns whether the process will not fit a handshake: it got requests without one, or another
    /// one.
    pub(super) fn excludes(&self, handshake: Purpose) -> bool {
        let history = self.history.lock();
        let others = history.in_flight.values().chain([&history.past]);
        let mut others =
            others.filter(|purpose| !matches!(purpose, Purpose::Probe | Purpose::Other));
        others.any(|purpose| *purpose != handshake)
    }

    /// Returns whether a connection uses the process and may still give it back.
    pub(super) fn may_come_back(&self) -> bool {
        self.holder.load().is_some()
            && self.is_clean.load(Ordering::Acquire)
            && !self.is_lost.load(Ordering::Acquire)
    }

    /// Returns the time of the first answer.
    pub(super) fn first_answer(&self) -> Option<Instant> {
        self.history.lock().answered
    }

    /// Sends a message. Returns whether it made a clean process unclean, too.
    pub(super) async fn send(
        &self,
        message: Message,
        on_unclean: impl FnOnce() + Send,
    ) -> Result<SendOutcome, UpstreamError> {
        if self.is_clean.load(Ordering::Acquire) && !self.stays_clean(&message) {
            self.set_unclean();
            on_unclean();
        }
        match self.link.get() {
            Some(link) => link.send(message).await,
            None => Err(link_closed()),
        }
    }

    /// Sends a handshake to a process that had one. Its messages are dropped until it has answered,
    /// and go to `holder` if it takes the handshake.
    pub(super) async fn send_handshake(
        &self,
        initialize: Message,
        holder: Arc<Holder>,
    ) -> oneshot::Receiver<bool> {
        let (outcome, is_taken) = oneshot::channel();
        self.holder.store(None);
        if let Some(id) = initialize.request_ids().next().cloned() {
            self.history.lock().handshake = Some(AnotherHandshake {
                id,
                holder,
                outcome,
            });
        }
        if self.send(initialize, || ()).await.is_err() {
            self.give_up_handshake();
        }
        is_taken
    }

    /// Stops waiting for the answer to a handshake.
    pub(super) fn give_up_handshake(&self) {
        self.history.lock().handshake = None;
    }

    /// Registers a message to the process. Returns false if a server may keep something of it.
    fn stays_clean(&self, message: &Message) -> bool {
        let Some(envelope) = message.single() else {
            return false;
        };
        let method = envelope.method().unwrap_or_default();
        if envelope.kind() == MessageKind::Notification {
            return method == method::NOTIFICATIONS_INITIALIZED;
        }
        let Some((_, id)) = envelope.as_request() else {
            return false;
        };
        let is_call = method == method::TOOLS_CALL && self.read_only.has(message);
        let is_look = method.ends_with("/list") || is_call;
        let mut history = self.history.lock();
        if is_call {
            // Only checks suit everybody.
            history.principal.get_or_insert_with(Principal::local);
        }
        if method == method::TOOLS_LIST {
            history.tool_lists.insert(id.clone());
        }
        let purpose = Purpose::of(message);
        let is_known_way = match (history.past, purpose) {
            (_, Purpose::Probe) | (Purpose::Probe, Purpose::Handshake(_)) => true,
            (Purpose::Handshake(past), Purpose::Handshake(new)) => past == new,
            (Purpose::Probe | Purpose::Modern, Purpose::Modern) => {
                history.past = Purpose::Modern;
                is_look
            }
            (Purpose::Handshake(_), Purpose::Other) => is_look,
            _ => false,
        };
        history.in_flight.insert(id.clone(), purpose);
        is_known_way
    }

    fn set_unclean(&self) {
        self.is_clean.store(false, Ordering::Release);
        *self.history.lock() = History::default();
        self.live.send_modify(|_| {});
    }

    /// Registers a message of a clean process. Returns false if the message belongs to a handshake
    /// that the process refused.
    fn note_received(&self, message: &Message) -> bool {
        let Some(envelope) = message.single() else {
            self.set_unclean();
            return true;
        };
        let is_success = envelope.kind() == MessageKind::Success;
        match envelope.kind() {
            MessageKind::Notification => return true,
            MessageKind::Request => {
                self.set_unclean();
                return true;
            }
            MessageKind::Success | MessageKind::Failure => {}
        }
        let mut history = self.history.lock();
        if history.answered.is_none() {
            history.answered = Some(Instant::now());
            self.live.send_modify(|_| {});
        }
        let Some(id) = envelope.id() else {
            return true;
        };
        let result = message.result(envelope).unwrap_or_default();
        if history.tool_lists.remove(id) {
            self.read_only.learn(result);
        }
        let kind = member(result, "resultType");
        if kind.is_some_and(|kind| kind != r#""complete""#) {
            // The server keeps the request until its next round.
            drop(history);
            self.set_unclean();
            return true;
        }
        if let Some(handshake @ Purpose::Handshake(_)) = history.in_flight.remove(id)
            && is_success
        {
            history.past = handshake;
        }
        let Some(handshake) = history.handshake.take_if(|handshake| handshake.id == *id) else {
            return true;
        };
        if is_success {
            self.holder.store(Some(handshake.holder));
        }
        // The receiver may have given up.
        let _ = handshake.outcome.send(is_success);
        is_success
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.live.send_modify(|n| *n -= 1);
    }
}

/// The owner of processes, which is told of those that end by themselves.
pub(super) trait ProcessOwner: Send + Sync + fmt::Debug {
    /// Removes a process that has ended by itself.
    fn forget(self: Arc<Self>, process: &Arc<Process>);
}

/// Returns the error for messages over a closed connection.
pub(super) fn link_closed() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection is closed".into(),
    }
}

/// Passes the messages of a process to the connection that uses it. Messages of a process that no
/// connection uses are dropped.
#[derive(Debug)]
pub(super) struct ProcessEvents {
    pub(super) process: Weak<Process>,
    pub(super) pool: Weak<dyn ProcessOwner>,
}

#[async_trait]
impl UpstreamEvents for ProcessEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let Some(process) = self.process.upgrade() else {
            return;
        };
        // First, because with its last answer the process may go to another connection.
        let holder = process.holder.load_full();
        if process.is_clean.load(Ordering::Acquire) && !process.note_received(&message) {
            return;
        }
        if let Some(holder) = holder.or_else(|| process.holder.load_full()) {
            holder
                .report(holder.events.on_message(message, related))
                .await;
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        let Some(process) = self.process.upgrade() else {
            return;
        };
        process.history.lock().in_flight.remove(&request);
        if let Some(holder) = process.holder.load_full() {
            holder
                .report(holder.events.on_unanswered(request, error))
                .await;
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        let Some(process) = self.process.upgrade() else {
            return;
        };
        process.is_lost.store(true, Ordering::Release);
        process.give_up_handshake();
        let holder = process.holder.load_full();
        if let Some(pool) = self.pool.upgrade() {
            pool.forget(&process);
        }
        if let Some(holder) = holder {
            holder.report(holder.events.on_lost(error)).await;
        }
    }
}
