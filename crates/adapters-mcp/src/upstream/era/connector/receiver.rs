//! The event receiver of one connection.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::oneshot;

use super::super::detection::{
    Answer, AnsweredRequest, contradicts_modern, discover_id, is_unmodern_failure, ping_id,
};
use super::era_switch::{EraSwitch, Mode};
use super::initialize::Refusal;

/// The maximum number of `server/discover` requests of the client that are watched.
const MAX_WATCHED: usize = 16;

/// The event receiver of one connection. The reference to the session is weak, so that it does not
/// keep the session alive.
#[derive(Debug)]
pub(super) struct Receiver {
    junction: Weak<EraSwitch>,
    link: OnceLock<Weak<dyn UpstreamLink>>,
    watched: Mutex<WatchedRequests>,
    // The number of watched requests, so that messages need no lock while it is zero.
    n_watched: AtomicUsize,
    is_over: AtomicBool,
    is_retired: AtomicBool,
}

/// The requests whose answers are watched.
#[derive(Debug, Default)]
struct WatchedRequests {
    asked: HashMap<RequestId, oneshot::Sender<Answer>>,
    initialize: Option<(RequestId, Message)>,
    discover: HashSet<RequestId>,
}

impl WatchedRequests {
    fn len(&self) -> usize {
        self.asked.len() + usize::from(self.initialize.is_some()) + self.discover.len()
    }
}

/// The use of the answer to a watched request.
enum AnswerUse {
    Bridge(oneshot::Sender<Answer>),
    Handshake(Message),
    Discovery,
}

impl Receiver {
    /// Returns the receiver for a connection that is not open yet.
    pub(super) fn new(junction: Weak<EraSwitch>) -> Self {
        Self {
            junction,
            link: OnceLock::new(),
            watched: Mutex::default(),
            n_watched: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
        }
    }

    /// Sets the connection.
    pub(super) fn receives_from(&self, link: &Arc<dyn UpstreamLink>) {
        // It is set only once, so an error cannot occur.
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Returns whether the connection was lost or discarded.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Stops all reports.
    pub(super) fn retire(&self) {
        self.is_over.store(true, Ordering::Release);
        self.is_retired.store(true, Ordering::Release);
    }

    /// Diverts the answer to this request from the client to the returned receiver.
    pub(super) fn expect(&self, id: RequestId) -> oneshot::Receiver<Answer> {
        let (answered, answer) = oneshot::channel();
        self.watch(|watched| {
            watched.asked.insert(id, answered);
        });
        answer
    }

    /// Stops diverting the answer to this request.
    pub(super) fn expect_no_more(&self, id: &RequestId) {
        self.watch(|watched| {
            watched.asked.remove(id);
        });
    }

    /// Watches for the answer to a handshake. A handshake in a batch is not watched.
    pub(super) fn watch_initialize(&self, message: &Message) {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((method::INITIALIZE, id)) = request {
            self.watch(|watched| watched.initialize = Some((id.clone(), message.clone())));
        }
    }

    /// Returns the unanswered handshake and stops watching for its answer.
    pub(super) fn take_initialize(&self) -> Option<Message> {
        let mut taken = None;
        self.watch(|watched| taken = watched.initialize.take());
        taken.map(|(_, message)| message)
    }

    /// Watches for the answer if the message is a `server/discover` request.
    pub(super) fn watch_discover(&self, message: &Message) {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((method::SERVER_DISCOVER, id)) = request {
            self.watch(|watched| {
                if watched.discover.len() >= MAX_WATCHED {
                    watched.discover.clear(); // Their answers pass unseen.
                }
                watched.discover.insert(id.clone());
            });
        }
    }

    fn watch(&self, change: impl FnOnce(&mut WatchedRequests)) {
        let mut watched = self.watched.lock();
        change(&mut watched);
        self.n_watched.store(watched.len(), Ordering::Release);
    }

    /// Removes a watched request and returns the use of its answer.
    fn take(&self, id: &RequestId) -> Option<AnswerUse> {
        if self.n_watched.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut taken = None;
        self.watch(|watched| {
            taken = if let Some(asked) = watched.asked.remove(id) {
                Some(AnswerUse::Bridge(asked))
            } else if watched.discover.remove(id) {
                Some(AnswerUse::Discovery)
            } else {
                let found = watched.initialize.take_if(|(waiting, _)| waiting == id);
                found.map(|(_, message)| AnswerUse::Handshake(message))
            };
        });
        taken
    }

    /// Returns the session, unless this connection no longer concerns it.
    fn junction(&self) -> Option<Arc<EraSwitch>> {
        if self.is_retired.load(Ordering::Acquire) {
            return None;
        }
        self.junction.upgrade()
    }

    fn is_initializing(&self) -> bool {
        self.n_watched.load(Ordering::Acquire) > 0 && self.watched.lock().initialize.is_some()
    }

    /// Processes an answer. Returns the message for the client, if any.
    fn process_answer(
        &self,
        junction: &Arc<EraSwitch>,
        face: &Mode,
        message: Message,
        related: Option<&RequestId>,
    ) -> Option<Message> {
        let envelope = message.single().filter(|envelope| envelope.is_response());
        // An error without an id answers the request on whose stream it came.
        let Some(id) = envelope.and_then(|envelope| envelope.id().or(related)) else {
            return Some(message);
        };
        let taken = self.take(id);
        let is_modern = matches!(face, Mode::Modern { .. } | Mode::LegacyClient(_));
        let of_client = match taken {
            Some(AnswerUse::Discovery) => Some(AnsweredRequest::Discover),
            None => Some(AnsweredRequest::Other),
            Some(AnswerUse::Bridge(_) | AnswerUse::Handshake(_)) => None,
        };
        if is_modern && of_client.is_some_and(|request| contradicts_modern(&message, request)) {
            junction.memory.forget();
        }
        match taken {
            Some(AnswerUse::Bridge(waiting)) => {
                // The receiver may have given up. Then the answer is of no interest.
                let _ = waiting.send(Ok(message));
                None
            }
            Some(AnswerUse::Handshake(initialize)) => {
                if envelope.is_some_and(|envelope| envelope.kind() == MessageKind::Failure) {
                    let refusal = Refusal::Answered(message, related.cloned());
                    junction.handshake_refused(initialize, refusal);
                    return None;
                }
                if let Some(link) = self.link.get().and_then(Weak::upgrade) {
                    junction.handshake_succeeded(link);
                }
                Some(message)
            }
            // A late answer to a probe of the bridge is dropped.
            None if [discover_id(), ping_id()].contains(id) => None,
            Some(AnswerUse::Discovery) | None => Some(message),
        }
    }
}

#[async_trait]
impl UpstreamEvents for Receiver {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let Some(junction) = self.junction() else {
            return;
        };
        let face = junction.face.load_full();
        if matches!(&*face, Mode::Legacy(_)) {
            return junction.events.on_message(message, related).await;
        }
        let Some(message) = self.process_answer(&junction, &face, message, related.as_ref()) else {
            return;
        };
        // Modern servers make no requests, and no client has opened a session with a legacy server
        // yet.
        let is_request = message
            .single()
            .is_some_and(|envelope| envelope.kind() == MessageKind::Request);
        match &*face {
            Mode::LegacyClient(client) => client.on_message(message, related).await,
            Mode::Undecided(_) | Mode::ModernClient { .. }
                if is_request && !self.is_initializing() =>
            {
                tracing::debug!(
                    "dropped a request of the upstream: the session is not initialized yet"
                );
            }
            _ => junction.events.on_message(message, related).await,
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        let Some(junction) = self.junction() else {
            return;
        };
        let face = junction.face.load_full();
        let is_modern = matches!(&*face, Mode::Modern { .. } | Mode::LegacyClient(_));
        if is_modern && is_unmodern_failure(&error) {
            junction.memory.forget();
        }
        match self.take(&request) {
            Some(AnswerUse::Bridge(waiting)) => {
                let _ = waiting.send(Err(error));
            }
            Some(AnswerUse::Handshake(initialize)) => {
                junction.handshake_refused(initialize, Refusal::Unanswered(request, error));
            }
            Some(AnswerUse::Discovery) | None => match &*face {
                Mode::LegacyClient(client) => client.on_unanswered(request, error).await,
                _ => junction.events.on_unanswered(request, error).await,
            },
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.is_over.store(true, Ordering::Release);
        let Some(junction) = self.junction() else {
            return;
        };
        let mut asked = Vec::new();
        let mut initialize = None;
        self.watch(|watched| {
            asked.extend(watched.asked.drain().map(|(_, waiting)| waiting));
            initialize = watched.initialize.take();
        });
        if !asked.is_empty() {
            // The waiting requests handle the loss themselves.
            for waiting in asked {
                let _ = waiting.send(Err(error.clone()));
            }
            return;
        }
        let face = junction.face.load_full();
        match (&*face, initialize) {
            (Mode::Undecided(_) | Mode::Modern { .. }, Some((_, initialize))) => {
                junction.handshake_refused(initialize, Refusal::Lost(error));
            }
            (Mode::LegacyClient(client), _) => client.on_lost(error).await,
            // The bridge has connections of its own.
            (Mode::ModernClient { .. }, None) => {}
            _ => junction.events.on_lost(error).await,
        }
    }
}
