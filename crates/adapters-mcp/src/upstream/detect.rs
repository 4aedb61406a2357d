//! Upstreams of which only the URL is known: Streamable HTTP or the older HTTP+SSE.
//!
//! The client's first message is posted as Streamable HTTP. A server that does not know what
//! to do with it is tried as HTTP+SSE with the same message, as the specification advises; one
//! that answers with a JSON-RPC error, whatever the HTTP status, knows. What turned out is
//! remembered for later connections.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::watch;

use super::http::open_exchanges::cancelled_request;
use super::http::{Endpoint, HttpConnector};
use super::sse::SseConnector;

/// Statuses with which servers that know only HTTP+SSE answer the first POST.
const NOT_STREAMABLE: [u16; 5] = [400, 404, 405, 406, 415];
/// How long a message waits while it is being found out how to send it.
const DECISION_TIMEOUT: Duration = Duration::from_mins(1);

/// Connects to a server in whichever way it understands.
#[derive(Debug)]
pub struct DetectConnector {
    transports: Arc<Transports>,
}

/// Both ways to one server, and which of them is known to work.
#[derive(Debug)]
struct Transports {
    http: HttpConnector,
    sse: SseConnector,
    known: AtomicU8,
}

const UNKNOWN: u8 = 0;
const HTTP: u8 = 1;
const SSE: u8 = 2;

impl DetectConnector {
    /// Returns a connector for the server at `endpoint`.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            transports: Arc::new(Transports {
                http: HttpConnector::new(endpoint.clone()),
                sse: SseConnector::new(endpoint),
                known: AtomicU8::new(UNKNOWN),
            }),
        }
    }
}

#[async_trait]
impl UpstreamConnector for DetectConnector {
    fn name(&self) -> &UpstreamName {
        self.transports.http.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        match self.transports.known.load(Ordering::Relaxed) {
            HTTP => self.transports.http.connect(principal, events).await,
            SSE => self.transports.sse.connect(principal, events).await,
            _ => {
                let (decision, decided) = watch::channel(Decision::Open);
                let trial = Arc::new(Trial {
                    transports: self.transports.clone(),
                    principal: principal.clone(),
                    events: Mutex::new(Some(events)),
                    first: Mutex::new(None),
                    decision,
                });
                let http = self
                    .transports
                    .http
                    .connect(principal, trial.clone())
                    .await?;
                Ok(Arc::new(DetectLink {
                    http,
                    trial,
                    decided,
                }))
            }
        }
    }
}

/// Which link carries the messages.
#[derive(Clone, Debug)]
enum Decision {
    /// No request has been answered.
    Open,
    /// The first request is on its way.
    Pending,
    /// The server speaks Streamable HTTP.
    Http,
    /// The server speaks HTTP+SSE.
    Sse(Arc<dyn UpstreamLink>),
    /// The connection is closed.
    Closed,
}

/// Receives what comes back over Streamable HTTP and looks at the first answer.
#[derive(Debug)]
struct Trial {
    transports: Arc<Transports>,
    principal: Principal,
    events: Mutex<Option<Arc<dyn UpstreamEvents>>>,
    /// The first message, until its answer is there.
    first: Mutex<Option<Message>>,
    decision: watch::Sender<Decision>,
}

impl Trial {
    fn events(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn take_events(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn take_first(&self) -> Option<Message> {
        self.first
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Returns whether `message` cancels the request whose answer is waited for, and does so by
    /// dropping it: nothing will be reported for it then.
    fn is_dropped_by(&self, message: &Message) -> bool {
        let Some(cancelled) = cancelled_request(message) else {
            return false;
        };
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.as_ref().is_some_and(|first| {
            first.single().is_some_and(|part| {
                part.id() == Some(&cancelled)
                    && RequestMeta::read(first.params(part)).revision().is_some()
            })
        })
    }

    /// Settles on `decision` unless the connection was closed meanwhile.
    fn settle(&self, decision: Decision) -> bool {
        self.decision.send_if_modified(|current| {
            let is_open = matches!(current, Decision::Open | Decision::Pending);
            if is_open {
                *current = decision;
            }
            is_open
        })
    }

    /// Sends `first` over HTTP+SSE; reports `error`, the first answer, if that fails too.
    async fn fall_back(&self, first: Message, request: RequestId, error: UpstreamError) {
        let Some(events) = self.events() else { return };
        let link = match self
            .transports
            .sse
            .connect(&self.principal, events.clone())
            .await
        {
            Ok(link) => link,
            Err(second) => {
                let upstream = self.transports.http.name();
                tracing::debug!(
                    %upstream,
                    "upstream {upstream} speaks neither Streamable HTTP ({error}) nor HTTP+SSE ({second})"
                );
                self.settle(Decision::Open);
                events.unanswered(request, error).await;
                return;
            }
        };
        self.transports.known.store(SSE, Ordering::Relaxed);
        let sent = link.send(first).await;
        if !self.settle(Decision::Sse(link.clone())) {
            link.close().await;
            return;
        }
        // The new link reports by itself and lets go of the receiver when it is over.
        self.take_events();
        if let Err(error) = sent {
            events.unanswered(request, error).await;
        }
    }
}

#[async_trait]
impl UpstreamEvents for Trial {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        if self.take_first().is_some() {
            self.transports.known.store(HTTP, Ordering::Relaxed);
            self.settle(Decision::Http);
        }
        if let Some(events) = self.events() {
            events.received(message, related).await;
        }
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        if let Some(first) = self.take_first() {
            match error {
                UpstreamError::Status { status } if NOT_STREAMABLE.contains(&status) => {
                    self.fall_back(first, request, error).await;
                    return;
                }
                // Nothing was learned, so the next request is the next trial.
                _ => self.settle(Decision::Open),
            };
        }
        if let Some(events) = self.events() {
            events.unanswered(request, error).await;
        }
    }

    async fn lost(&self, error: UpstreamError) {
        if let Some(events) = self.events() {
            events.lost(error).await;
        }
    }
}

/// The sending half of a connection whose transport is being found out.
#[derive(Debug)]
struct DetectLink {
    http: Arc<dyn UpstreamLink>,
    trial: Arc<Trial>,
    decided: watch::Receiver<Decision>,
}

impl DetectLink {
    /// Takes on the trial for `message` if it is the first request.
    fn claim(&self, message: &Message) -> bool {
        let is_request = message
            .single()
            .is_some_and(|part| part.as_request().is_some());
        is_request
            && self.trial.decision.send_if_modified(|current| {
                let is_open = matches!(current, Decision::Open);
                if is_open {
                    let mut first = self
                        .trial
                        .first
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    *first = Some(message.clone());
                    *current = Decision::Pending;
                }
                is_open
            })
    }
}

#[async_trait]
impl UpstreamLink for DetectLink {
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        if self.claim(&message) {
            return self.http.send(message).await;
        }
        if self.trial.is_dropped_by(&message) {
            let sent = self.http.send(message).await;
            if self.trial.take_first().is_some() {
                self.trial.settle(Decision::Open);
            }
            return sent;
        }
        let mut decided = self.decided.clone();
        let wait = decided.wait_for(|decision| !matches!(decision, Decision::Pending));
        let decision = match tokio::time::timeout(DECISION_TIMEOUT, wait).await {
            Ok(Ok(decision)) => decision.clone(),
            Ok(Err(_)) | Err(_) => return Err(UpstreamError::NoAnswer),
        };
        match decision {
            Decision::Sse(link) => link.send(message).await,
            Decision::Closed => Err(UpstreamError::Lost {
                reason: "the connection is closed".into(),
            }),
            Decision::Open | Decision::Pending | Decision::Http => self.http.send(message).await,
        }
    }

    fn has_streams(&self) -> bool {
        !matches!(*self.decided.borrow(), Decision::Sse(_))
    }

    async fn close(&self) {
        let last = self.trial.decision.send_replace(Decision::Closed);
        self.trial.take_events();
        if let Decision::Sse(link) = last {
            link.close().await;
        }
        self.http.close().await;
    }
}
