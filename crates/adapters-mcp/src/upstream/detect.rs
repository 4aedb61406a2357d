//! Transport detection for an upstream with a plain URL: Streamable HTTP or the older HTTP+SSE.
//!
//! The client's first message is posted as Streamable HTTP. If the server does not understand it,
//! the same message is sent over HTTP+SSE, as the specification advises. A server that answers with
//! a JSON-RPC error, whatever the HTTP status, understands Streamable HTTP. The result is
//! remembered for later connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::watch;

use super::http::open_exchanges::cancelled_request;
use super::http::{Endpoint, HttpConnector};
use super::sse::SseConnector;
use riglm_adapters_programs::{Events, Link};

/// Statuses with which servers that support only HTTP+SSE answer the first POST.
const NOT_STREAMABLE: [u16; 5] = [400, 404, 405, 406, 415];
/// The time that a message waits for the result of the detection.
const DECISION_TIMEOUT: Duration = Duration::from_mins(1);

/// Connects to a server with a transport that it supports.
#[derive(Debug)]
pub struct DetectConnector {
    transports: Arc<Transports>,
}

/// Both transports to one server, and the one that is known to work.
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

    async fn connect(&self, principal: &Principal, events: Events) -> Result<Link, UpstreamError> {
        match self.transports.known.load(Ordering::Relaxed) {
            HTTP => self.transports.http.connect(principal, events).await,
            SSE => self.transports.sse.connect(principal, events).await,
            _ => {
                let (decision, decided) = watch::channel(TransportDecision::Open);
                let trial = Arc::new(TransportTrial {
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

/// The transport that carries the messages.
#[derive(Clone, Debug)]
enum TransportDecision {
    Open,
    /// The first request is in flight.
    Pending,
    Http,
    Sse(Link),
    Closed,
}

/// Receives messages over Streamable HTTP and inspects the first answer.
#[derive(Debug)]
struct TransportTrial {
    transports: Arc<Transports>,
    principal: Principal,
    events: Mutex<Option<Arc<dyn UpstreamEvents>>>,
    /// The first message, until its answer arrives.
    first: Mutex<Option<Message>>,
    decision: watch::Sender<TransportDecision>,
}

impl TransportTrial {
    fn events(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.events.lock().clone()
    }

    fn take_events(&self) -> Option<Arc<dyn UpstreamEvents>> {
        self.events.lock().take()
    }

    fn take_first(&self) -> Option<Message> {
        self.first.lock().take()
    }

    /// Returns whether `message` cancels the pending first request by dropping it. Nothing will be
    /// reported for the request then.
    fn is_dropped_by(&self, message: &Message) -> bool {
        let Some(cancelled) = cancelled_request(message) else {
            return false;
        };
        let first = self.first.lock();
        first.as_ref().is_some_and(|first| {
            first.single().is_some_and(|part| {
                part.id() == Some(&cancelled)
                    && RequestMeta::read(first.params(part)).revision().is_some()
            })
        })
    }

    /// Settles on `decision` unless the connection was closed meanwhile.
    fn settle(&self, decision: TransportDecision) -> bool {
        self.decision.send_if_modified(|current| {
            let is_open = matches!(
                current,
                TransportDecision::Open | TransportDecision::Pending
            );
            if is_open {
                *current = decision;
            }
            is_open
        })
    }

    /// Sends `first` over HTTP+SSE. If that fails too, reports `error`, the first answer.
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
                self.settle(TransportDecision::Open);
                events.on_unanswered(request, error).await;
                return;
            }
        };
        // Relaxed, because a stale value only causes another trial.
        self.transports.known.store(SSE, Ordering::Relaxed);
        let sent = link.send(first).await;
        if !self.settle(TransportDecision::Sse(link.clone())) {
            link.close().await;
            return;
        }
        // The new link reports by itself, and releases the receiver at its end.
        self.take_events();
        if let Err(error) = sent {
            events.on_unanswered(request, error).await;
        }
    }
}

#[async_trait]
impl UpstreamEvents for TransportTrial {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        if self.take_first().is_some() {
            self.transports.known.store(HTTP, Ordering::Relaxed);
            self.settle(TransportDecision::Http);
        }
        if let Some(events) = self.events() {
            events.on_message(message, related).await;
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        if let Some(first) = self.take_first() {
            match error {
                UpstreamError::Status { status } if NOT_STREAMABLE.contains(&status) => {
                    self.fall_back(first, request, error).await;
                    return;
                }
                // Nothing was learned, so the next request is the next trial.
                _ => self.settle(TransportDecision::Open),
            };
        }
        if let Some(events) = self.events() {
            events.on_unanswered(request, error).await;
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        if let Some(events) = self.events() {
            events.on_lost(error).await;
        }
    }
}

/// The sending half of a connection whose transport is being detected.
#[derive(Debug)]
struct DetectLink {
    http: Arc<dyn UpstreamLink>,
    trial: Arc<TransportTrial>,
    decided: watch::Receiver<TransportDecision>,
}

impl DetectLink {
    /// Claims the trial for `message` if it is the first request.
    fn claim(&self, message: &Message) -> bool {
        let is_request = message
            .single()
            .is_some_and(|part| part.as_request().is_some());
        is_request
            && self.trial.decision.send_if_modified(|current| {
                let is_open = matches!(current, TransportDecision::Open);
                if is_open {
                    let mut first = self.trial.first.lock();
                    *first = Some(message.clone());
                    *current = TransportDecision::Pending;
                }
                is_open
            })
    }
}

#[async_trait]
impl UpstreamLink for DetectLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if self.claim(&message) {
            return self.http.send(message).await;
        }
        if self.trial.is_dropped_by(&message) {
            let sent = self.http.send(message).await;
            if self.trial.take_first().is_some() {
                self.trial.settle(TransportDecision::Open);
            }
            return sent;
        }
        let mut decided = self.decided.clone();
        let wait = decided.wait_for(|decision| !matches!(decision, TransportDecision::Pending));
        let decision = match tokio::time::timeout(DECISION_TIMEOUT, wait).await {
            Ok(Ok(decision)) => decision.clone(),
            Ok(Err(_)) | Err(_) => return Err(UpstreamError::NoAnswer),
        };
        match decision {
            TransportDecision::Sse(link) => link.send(message).await,
            TransportDecision::Closed => Err(UpstreamError::Lost {
                reason: "the connection is closed".into(),
            }),
            TransportDecision::Open | TransportDecision::Pending | TransportDecision::Http => {
                self.http.send(message).await
            }
        }
    }

    fn has_streams(&self) -> bool {
        !matches!(*self.decided.borrow(), TransportDecision::Sse(_))
    }

    async fn close(&self) {
        // First, so that a trial in progress cannot settle any more.
        let last = self.trial.decision.send_replace(TransportDecision::Closed);
        self.trial.take_events();
        if let TransportDecision::Sse(link) = last {
            link.close().await;
        }
        self.http.close().await;
    }
}
