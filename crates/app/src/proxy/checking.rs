//! Checks which upstreams answer, before a client asks: at the start, when the configuration brings other
//! ones, and again as long as one does not answer.
//!
//! A check is a connection of the proxy's own: a handshake without capabilities, and its end. It takes
//! a place among the connections of the upstream as any other does, lists nothing, and is no session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use riglm_domain::edit::member;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{Sent, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::registry::Proxy;
use super::upstream_set::UpstreamEntry;

/// How many upstreams are checked at the same time: each may be the start of a process.
const MAX_AT_ONCE: usize = 8;

/// How often it is looked whether a check is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause after the first check of an upstream; each one that follows is twice as long.
const MIN_PAUSE: Duration = Duration::from_secs(15);

/// The pause after a check where what a session met makes another one necessary.
const MIN_PAUSE_IN_DOUBT: Duration = Duration::from_secs(2);

/// The longest pause between two checks of an upstream that does not answer.
const MAX_PAUSE: Duration = Duration::from_mins(10);

/// The handshake of a check.
const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"riglm:check","method":"initialize","params":{"#,
    r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"riglm","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}}"#
);

/// What follows a handshake that was answered.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// How a server answered the handshake: the JSON text of its result.
struct Greeting(String);

/// When an upstream is checked next.
#[derive(Debug, Default)]
pub(super) struct CheckPlan(Mutex<Due>);

#[derive(Debug, Default)]
struct Due {
    is_running: bool,
    /// `None` before the first check.
    next: Option<Instant>,
    pause: Duration,
    ended: Option<Instant>,
}

impl CheckPlan {
    /// Returns whether a check is due, and notes it as running if it is.
    fn begins(&self, now: Instant) -> bool {
        let mut due = self.lock();
        let begins = !due.is_running && due.next.is_none_or(|next| next <= now);
        due.is_running |= begins;
        begins
    }

    /// Notes that a check ended. As long as the upstream does not answer, each one that follows waits
    /// twice as long.
    fn ended(&self, now: Instant, is_available: bool) {
        let mut due = self.lock();
        due.is_running = false;
        due.pause = if is_available {
            MIN_PAUSE
        } else {
            (due.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE)
        };
        due.next = Some(now + due.pause);
        due.ended = Some(now);
    }

    /// Has the next check come soon.
    pub(super) fn hasten(&self) {
        let mut due = self.lock();
        let soon = due.ended.map(|ended| ended + MIN_PAUSE_IN_DOUBT);
        due.next = due.next.zip(soon).map(|(next, soon)| next.min(soon));
    }

    fn lock(&self) -> MutexGuard<'_, Due> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Checks which upstreams answer, until `stop` is cancelled: each once that no session has used,
    /// and those that failed again and again, with growing pauses. The results are logged and are part of
    /// [`Proxy::upstream_states`].
    pub async fn check_upstreams(&self, stop: &CancellationToken) {
        let mut checks = FuturesUnordered::new();
        loop {
            let now = Instant::now();
            for entry in &self.shared.upstreams.load().entries {
                let has_room = checks.len() < MAX_AT_ONCE;
                if has_room && entry.wants_check() && entry.checks.begins(now) {
                    checks.push(self.check(Arc::clone(entry)));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Some(entry) = checks.next(), if !checks.is_empty() => {
                    let is_available = entry.failure().is_none();
                    entry.checks.ended(Instant::now(), is_available);
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn check(&self, entry: Arc<UpstreamEntry>) -> Arc<UpstreamEntry> {
        let principal = Principal::local();
        let most = entry.upstream.options.max_connections;
        let bounds = self.shared.bounds(most.unwrap_or(usize::MAX));
        // Where sessions have all places, they find out by themselves.
        let slot = entry.slots.take(&principal, bounds, Duration::ZERO).await;
        let Ok(_slot) = slot else { return entry };
        let started_at = Instant::now();
        let limits = self.shared.limits();
        let checked = {
            let checking = handshake(&entry, &principal, limits.handshake_timeout);
            tokio::pin!(checking);
            let in_time = tokio::time::timeout(limits.unite_timeout, &mut checking).await;
            if let Ok(checked) = in_time {
                checked
            } else {
                entry.is_late(started_at);
                checking.await
            }
        };
        let name = entry.name();
        match checked {
            Ok(greeting) => {
                entry.succeeded();
                // Handshakes of sessions need not wait for what is known.
                entry.catalog.hello(&greeting.0);
                let description = greeting.description();
                let took_ms = started_at.elapsed().as_millis();
                tracing::info!(
                    upstream = %name,
                    "upstream {name} answers: {description}, after {took_ms} ms"
                );
            }
            // What sessions found out meanwhile counts more.
            Err(error) if entry.has_answered_since(started_at) => entry.troubled(&error),
            Err(error) => entry.failed(&error),
        }
        entry
    }
}

/// Connects to an upstream, shakes hands, and ends the connection.
async fn handshake(
    entry: &UpstreamEntry,
    principal: &Principal,
    limit: Duration,
) -> Result<Greeting, UpstreamError> {
    let (answered, answer) = oneshot::channel();
    let events = Arc::new(Events(Mutex::new(Some(answered))));
    let connecting = entry.upstream.connector.connect(principal, events);
    let connecting = tokio::time::timeout(limit, connecting).await;
    let link = connecting.unwrap_or(Err(UpstreamError::NoAnswer))?;
    // Closed also where this is given up: a process must not outlive its check.
    let link = Closing(Some(link));
    let asked = tokio::time::timeout(limit, ask(&link, answer)).await;
    let greeting = asked.unwrap_or(Err(UpstreamError::Unreachable {
        reason: "it has not answered the handshake",
    }));
    link.close().await;
    greeting
}

async fn ask(
    link: &Closing,
    answer: oneshot::Receiver<Result<Message, UpstreamError>>,
) -> Result<Greeting, UpstreamError> {
    let Some(link) = &link.0 else {
        return Err(UpstreamError::NoAnswer);
    };
    let initialize = Message::from_text(INITIALIZE.into()).expect("the handshake is a message");
    let exchange = match link.send(initialize).await? {
        Sent::Delivered => None,
        Sent::UnderWay(exchange) => Some(exchange),
    };
    let answered = async {
        let answer = answer.await.unwrap_or(Err(UpstreamError::NoAnswer))?;
        let envelope = answer.single();
        let result = (envelope.filter(|envelope| envelope.kind() == Kind::Success))
            .and_then(|envelope| answer.result(envelope));
        let Some(result) = result else {
            return Err(UpstreamError::refused(&answer));
        };
        let greeting = Greeting(result.to_owned());
        let initialized =
            Message::from_text(INITIALIZED.into()).expect("the notification is a message");
        if let Sent::UnderWay(exchange) = link.send(initialized).await? {
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

impl Greeting {
    /// Returns the name, the version and the protocol revision of the server, as far as it said them, for
    /// people.
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
            "a server that does not say its name".into()
        } else {
            known.join(", ")
        }
    }
}

/// Returns the beginning of what a server says of itself.
fn cut(text: String) -> String {
    const MAX_CHARS: usize = 100;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

/// A connection that is closed, in the background where nobody waits for it.
struct Closing(Option<Arc<dyn UpstreamLink>>);

impl Closing {
    async fn close(mut self) {
        if let Some(link) = self.0.take() {
            link.close().await;
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            tokio::spawn(async move { link.close().await });
        }
    }
}

/// Waits for the answer to the handshake; nothing else that a server says matters to a check.
#[derive(Debug)]
struct Events(Mutex<Option<oneshot::Sender<Result<Message, UpstreamError>>>>);

impl Events {
    fn end(&self, answer: Result<Message, UpstreamError>) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waiting) = waiting {
            // Who waited may have given up.
            let _ = waiting.send(answer);
        }
    }
}

#[async_trait]
impl UpstreamEvents for Events {
    async fn received(&self, message: Message, _related: Option<RequestId>) {
        let is_answer = message
            .single()
            .is_some_and(|envelope| matches!(envelope.kind(), Kind::Success | Kind::Failure));
        if is_answer {
            self.end(Ok(message));
        }
    }

    async fn unanswered(&self, _request: RequestId, error: UpstreamError) {
        self.end(Err(error));
    }

    async fn lost(&self, error: UpstreamError) {
        self.end(Err(error));
    }
}
