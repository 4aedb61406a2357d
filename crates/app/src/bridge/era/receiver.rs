//! What comes back over one connection.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_ports::upstream::{UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::oneshot;

use super::super::detection::{
    Answer, DISCOVER, INITIALIZE, contradicts_modern, discover_id, is_unmodern_failure,
};
use super::initialize::Refusal;
use super::junction::{Face, Junction};

/// How many `server/discover` of the client are watched at once.
const MAX_WATCHED: usize = 16;

/// Receives what one connection reports. It does not keep the session alive.
#[derive(Debug)]
pub(super) struct Receiver {
    junction: Weak<Junction>,
    link: OnceLock<Weak<dyn UpstreamLink>>,
    watched: Mutex<Watched>,
    /// How many answers are watched for, so that nobody looks when there are none.
    n_watched: AtomicUsize,
    is_over: AtomicBool,
    is_retired: AtomicBool,
}

/// The requests whose answers are looked at.
#[derive(Debug, Default)]
struct Watched {
    asked: HashMap<RequestId, oneshot::Sender<Answer>>,
    initialize: Option<(RequestId, Message)>,
    discover: HashSet<RequestId>,
}

impl Watched {
    fn len(&self) -> usize {
        self.asked.len() + usize::from(self.initialize.is_some()) + self.discover.len()
    }
}

/// What the answer to a watched request is for.
enum Use {
    Bridge(oneshot::Sender<Answer>),
    Handshake(Message),
    Discovery,
}

impl Receiver {
    /// Returns the receiver of a connection that is going to be made.
    pub(super) fn new(junction: Weak<Junction>) -> Self {
        Self {
            junction,
            link: OnceLock::new(),
            watched: Mutex::default(),
            n_watched: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
        }
    }

    /// Tells which connection it is.
    pub(super) fn receives_from(&self, link: &Arc<dyn UpstreamLink>) {
        // It is told once only.
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Returns whether the connection was lost or given up.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Reports nothing from now on.
    pub(super) fn retire(&self) {
        self.is_over.store(true, Ordering::Release);
        self.is_retired.store(true, Ordering::Release);
    }

    /// Keeps the answer to this request from the client; it goes where the returned end is.
    pub(super) fn expect(&self, id: RequestId) -> oneshot::Receiver<Answer> {
        let (answered, answer) = oneshot::channel();
        self.watch(|watched| {
            watched.asked.insert(id, answered);
        });
        answer
    }

    /// Ends that.
    pub(super) fn expect_no_more(&self, id: &RequestId) {
        self.watch(|watched| {
            watched.asked.remove(id);
        });
    }

    /// Looks for the answer to a handshake. That of one in a batch passes unseen.
    pub(super) fn watch_initialize(&self, message: &Message) {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((INITIALIZE, id)) = request {
            self.watch(|watched| watched.initialize = Some((id.clone(), message.clone())));
        }
    }

    /// Returns the handshake that is not answered, and looks for its answer no more.
    pub(super) fn take_initialize(&self) -> Option<Message> {
        let mut taken = None;
        self.watch(|watched| taken = watched.initialize.take());
        taken.map(|(_, message)| message)
    }

    /// Looks for the answer if the message is a `server/discover`.
    pub(super) fn watch_discover(&self, message: &Message) {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((DISCOVER, id)) = request {
            self.watch(|watched| {
                if watched.discover.len() >= MAX_WATCHED {
                    watched.discover.clear(); // Their answers pass unseen.
                }
                watched.discover.insert(id.clone());
            });
        }
    }

    fn watch(&self, change: impl FnOnce(&mut Watched)) {
        let mut watched = self.watched();
        change(&mut watched);
        self.n_watched.store(watched.len(), Ordering::Release);
    }

    /// Returns what the answer to this request is for, if it is watched.
    fn take(&self, id: &RequestId) -> Option<Use> {
        if self.n_watched.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut taken = None;
        self.watch(|watched| {
            taken = if let Some(asked) = watched.asked.remove(id) {
                Some(Use::Bridge(asked))
            } else if watched.discover.remove(id) {
                Some(Use::Discovery)
            } else {
                let found = watched.initialize.take_if(|(waiting, _)| waiting == id);
                found.map(|(_, message)| Use::Handshake(message))
            };
        });
        taken
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session, unless this connection no longer concerns it.
    fn junction(&self) -> Option<Arc<Junction>> {
        if self.is_retired.load(Ordering::Acquire) {
            return None;
        }
        self.junction.upgrade()
    }

    fn is_initializing(&self) -> bool {
        self.n_watched.load(Ordering::Acquire) > 0 && self.watched().initialize.is_some()
    }

    /// Deals with an answer. Returns what has to reach the client.
    fn look_at(
        &self,
        junction: &Arc<Junction>,
        face: &Face,
        message: Message,
        related: Option<&RequestId>,
    ) -> Option<Message> {
        let envelope = message.single().filter(|envelope| envelope.is_response());
        // An error that names no request answers the one on whose stream it came.
        let Some(id) = envelope.and_then(|envelope| envelope.id().or(related)) else {
            return Some(message);
        };
        let taken = self.take(id);
        let is_modern = matches!(face, Face::Modern { .. } | Face::LegacyClient(_));
        let is_clients = matches!(taken, Some(Use::Discovery) | None);
        let is_discover = taken.is_some();
        if is_modern && is_clients && contradicts_modern(&message, is_discover) {
            junction.memory.forget();
        }
        match taken {
            Some(Use::Bridge(waiting)) => {
                // Whoever asked may have given up; then nobody wants the answer.
                let _ = waiting.send(Ok(message));
                None
            }
            Some(Use::Handshake(initialize)) => {
                if envelope.is_some_and(|envelope| envelope.kind() == Kind::Failure) {
                    let refusal = Refusal::Answered(message, related.cloned());
                    junction.handshake_refused(initialize, refusal);
                    return None;
                }
                if let Some(link) = self.link.get().and_then(Weak::upgrade) {
                    junction.handshake_succeeded(link);
                }
                Some(message)
            }
            Some(Use::Discovery) => Some(message),
            // Too late an answer to a question of the bridge concerns nobody.
            None => (*id != discover_id()).then_some(message),
        }
    }
}

#[async_trait]
impl UpstreamEvents for Receiver {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        let Some(junction) = self.junction() else {
            return;
        };
        let face = junction.face.load_full();
        if matches!(&*face, Face::Legacy(_)) {
            return junction.events.received(message, related).await;
        }
        let Some(message) = self.look_at(&junction, &face, message, related.as_ref()) else {
            return;
        };
        // Modern servers make no requests, and nobody opened a session with a legacy one yet.
        let is_request = message
            .single()
            .is_some_and(|envelope| envelope.kind() == Kind::Request);
        match &*face {
            Face::LegacyClient(client) => client.received(message, related).await,
            Face::Undecided(_) | Face::ModernClient { .. }
                if is_request && !self.is_initializing() =>
            {
                tracing::debug!("the upstream asked something before there was a session");
            }
            _ => junction.events.received(message, related).await,
        }
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        let Some(junction) = self.junction() else {
            return;
        };
        let face = junction.face.load_full();
        let is_modern = matches!(&*face, Face::Modern { .. } | Face::LegacyClient(_));
        if is_modern && is_unmodern_failure(&error) {
            junction.memory.forget();
        }
        match self.take(&request) {
            Some(Use::Bridge(waiting)) => {
                let _ = waiting.send(Err(error));
            }
            Some(Use::Handshake(initialize)) => {
                junction.handshake_refused(initialize, Refusal::Unanswered(request, error));
            }
            Some(Use::Discovery) | None => match &*face {
                Face::LegacyClient(client) => client.unanswered(request, error).await,
                _ => junction.events.unanswered(request, error).await,
            },
        }
    }

    async fn lost(&self, error: UpstreamError) {
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
            // Whoever asked knows what the loss means.
            for waiting in asked {
                let _ = waiting.send(Err(error.clone()));
            }
            return;
        }
        let face = junction.face.load_full();
        match (&*face, initialize) {
            (Face::Undecided(_) | Face::Modern { .. }, Some((_, initialize))) => {
                junction.handshake_refused(initialize, Refusal::Lost(error));
            }
            (Face::LegacyClient(client), _) => client.lost(error).await,
            // The bridge has connections of its own.
            (Face::ModernClient { .. }, None) => {}
            _ => junction.events.lost(error).await,
        }
    }
}
