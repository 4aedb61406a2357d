//! Health checks of upstreams before clients need them: at the start, after a reload with new
//! upstreams, and repeatedly while an upstream does not answer.
//!
//! A check opens a connection of the proxy, makes a handshake without capabilities and closes it.
//! The connection counts towards the connection limit of the upstream. A check lists nothing and is
//! no session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::internal_id::SingleRequest;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamEvents, UpstreamLink};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::shared_state::SharedState;
use super::upstream_set::UpstreamEntry;

/// The maximum number of concurrent checks. Each check may start a process.
const MAX_AT_ONCE: usize = 8;

/// The polling interval for due checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause after a check. It grows with each failure.
const PAUSE: Backoff = Backoff::new(Duration::from_secs(15), Duration::from_mins(10));

/// The pause after a check if an error in a session makes another check necessary.
const MIN_PAUSE_IN_DOUBT: Duration = Duration::from_secs(2);

/// The JSON text of the `initialize` result of a server.
struct HandshakeResult(String);

/// The schedule of checks of one upstream.
#[derive(Debug, Default)]
pub(super) struct CheckPlan(Mutex<CheckSchedule>);

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
        let mut due = self.0.lock();
        let begins = !due.is_running && due.next.is_none_or(|next| next <= now);
        due.is_running |= begins;
        begins
    }

    /// Registers the end of a check. The pause grows with each check until the upstream answers.
    fn finish_check(&self, now: Instant, is_available: bool) {
        let mut due = self.0.lock();
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
    }

    /// Schedules the next check soon.
    pub(super) fn check_soon(&self) {
        let mut due = self.0.lock();
        let soon = due.ended.map(|ended| ended + MIN_PAUSE_IN_DOUBT);
        due.next = due.next.zip(soon).map(|(next, soon)| next.min(soon));
    }
}

/// Checks until `stop` is cancelled whether the upstreams answer. Each upstream that no session
/// has used is checked once. Upstreams that fail are checked again with growing pauses. The
/// results are logged and are part of the states of the upstreams.
pub(super) async fn check_upstreams(shared: &SharedState, stop: &CancellationToken) {
    let mut checks = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        for entry in &shared.upstreams.load().entries {
            let has_room = checks.len() < MAX_AT_ONCE;
            if has_room && entry.wants_check() && entry.checks.begin_if_due(now) {
                checks.push(check(shared, Arc::clone(entry)));
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Some(entry) = checks.next(), if !checks.is_empty() => {
                let is_available = entry.failure().is_none();
                entry.checks.finish_check(Instant::now(), is_available);
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn check(shared: &SharedState, entry: Arc<UpstreamEntry>) -> Arc<UpstreamEntry> {
    let principal = Principal::local();
    let most = entry.upstream.options.max_connections;
    let bounds = shared.bounds(most.unwrap_or(usize::MAX));
    // If sessions use all connections, they notice failures by themselves.
    let slot = entry.slots.take(&principal, bounds, Duration::ZERO).await;
    let Ok(_slot) = slot else { return entry };
    let started_at = Instant::now();
    let limits = shared.limits();
    let checked = {
        let checking = handshake(&entry, &principal, limits.handshake_timeout);
        tokio::pin!(checking);
        // After this time the upstream counts as late for fan-outs, but the check continues.
        let in_time = tokio::time::timeout(limits.unite_timeout, &mut checking).await;
        if let Ok(checked) = in_time {
            checked
        } else {
            entry.note_late(started_at);
            checking.await
        }
    };
    let name = entry.name();
    match checked {
        Ok(greeting) => {
            entry.note_connected();
            // Stored for later handshakes of sessions, which then need not wait for this
            // upstream.
            entry.catalog.initialize_result(&greeting.0);
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
    entry
}

/// Connects to an upstream, makes a handshake and closes the connection.
async fn handshake(
    entry: &UpstreamEntry,
    principal: &Principal,
    limit: Duration,
) -> Result<HandshakeResult, UpstreamError> {
    let (answered, answer) = oneshot::channel();
    let events = Arc::new(HandshakeEvents(Mutex::new(Some(answered))));
    let connecting = entry.upstream.connector.connect(principal, events);
    let connecting = tokio::time::timeout(limit, connecting).await;
    let link = connecting.unwrap_or(Err(UpstreamError::NoAnswer))?;
    // The guard closes the connection also if this future is dropped. A process must not outlive
    // its check.
    let link = ClosingLink(Some(link));
    let asked = tokio::time::timeout(limit, make_handshake(&link, answer)).await;
    let greeting = asked.unwrap_or(Err(UpstreamError::Unreachable {
        reason: "no answer to the handshake",
    }));
    link.close().await;
    greeting
}

async fn make_handshake(
    link: &ClosingLink,
    answer: oneshot::Receiver<Result<Message, UpstreamError>>,
) -> Result<HandshakeResult, UpstreamError> {
    let Some(link) = &link.0 else {
        return Err(UpstreamError::NoAnswer);
    };
    let id = SingleRequest::HealthCheck.id();
    let params = json!({
        "protocolVersion": Revision::NEWEST_LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "riglm", "version": env!("CARGO_PKG_VERSION")},
    });
    let initialize = Message::request(&id, method::INITIALIZE, Some(&params.to_string()));
    let exchange = match link.send(initialize).await? {
        SendOutcome::Delivered => None,
        SendOutcome::UnderWay(exchange) => Some(exchange),
    };
    let answered = async {
        let answer = answer.await.unwrap_or(Err(UpstreamError::NoAnswer))?;
        let envelope = answer.single();
        let result = (envelope.filter(|envelope| envelope.kind() == MessageKind::Success))
            .and_then(|envelope| answer.result(envelope));
        let Some(result) = result else {
            return Err(UpstreamError::from_refusal(&answer));
        };
        let greeting = HandshakeResult(result.to_owned());
        let initialized = Message::notification(method::NOTIFICATIONS_INITIALIZED, None);
        if let SendOutcome::UnderWay(exchange) = link.send(initialized).await? {
            exchange.run.await;
        }
        Ok(greeting)
    };
    tokio::pin!(answered);
    if let Some(exchange) = exchange {
        tokio::select! {
            biased;
            greeting = &mut answered => return greeting,
            () = exchange.run => {}
        }
    }
    answered.await
}

impl HandshakeResult {
    /// Returns the name, the version and the protocol revision of the server for log messages.
    fn description(&self) -> String {
        let result = &self.0;
        let text = |within: Option<&str>, key: &str| -> Option<String> {
            serde_json::from_str(member(within?, key)?).ok()
        };
        let server = member(result, "serverInfo");
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

/// Receives the answer to the handshake. A check ignores all other messages of the server.
#[derive(Debug)]
struct HandshakeEvents(Mutex<Option<oneshot::Sender<Result<Message, UpstreamError>>>>);

impl HandshakeEvents {
    fn end(&self, answer: Result<Message, UpstreamError>) {
        let waiting = self.0.lock().take();
        if let Some(waiting) = waiting {
            // The receiver may have given up.
            let _ = waiting.send(answer);
        }
    }
}

#[async_trait]
impl UpstreamEvents for HandshakeEvents {
    async fn on_message(&self, message: Message, _related: Option<RequestId>) {
        let is_answer = message.single().is_some_and(|envelope| {
            matches!(envelope.kind(), MessageKind::Success | MessageKind::Failure)
        });
        if is_answer {
            self.end(Ok(message));
        }
    }

    async fn on_unanswered(&self, _request: RequestId, error: UpstreamError) {
        self.end(Err(error));
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.end(Err(error));
    }
}
