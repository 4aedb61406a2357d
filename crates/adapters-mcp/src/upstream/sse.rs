//! Upstreams that speak HTTP+SSE, the transport of revision 2024-11-05.
//!
//! One GET stream carries everything that comes from the server. Its first event names the
//! address to which messages are posted; that must lie on the same origin, because the
//! configured credentials go there.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use url::Url;

use super::http::Endpoint;
use super::http::event_stream::{EventStream, payload};
use super::http::reply::{self, Content};
use super::skipped::Skipped;
use crate::trace_headers::with_trace;

/// Connects to one HTTP+SSE server; every connection is an event stream of its own.
#[derive(Debug)]
pub struct SseConnector {
    endpoint: Arc<Endpoint>,
}

impl SseConnector {
    /// Returns a connector for the server whose event stream is at `endpoint`.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint }
    }

    /// Opens the stream and reads it up to the address for messages.
    async fn open(&self) -> Result<(EventStream, Url), UpstreamError> {
        let unreachable = |reason| UpstreamError::Unreachable { reason };
        let mut headers = self.endpoint.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.endpoint.request(Method::GET, &headers).await?;
        if let error @ UpstreamError::Unauthorized { .. } = reply::refused(response.status()) {
            return Err(error);
        }
        if !response.status().is_success() || Content::of(&response) != Content::Events {
            tracing::debug!(
                upstream = %self.endpoint.name,
                http.status = response.status().as_u16(),
                "upstream {} opened no event stream",
                self.endpoint.name
            );
            return Err(unreachable("it opened no event stream"));
        }
        let opened_at = response.url().clone();
        let mut stream = EventStream::new(response, self.endpoint.limits.max_message_bytes);
        while let Some(event) = stream.next().await? {
            if event.event.as_deref() != Some("endpoint") {
                continue;
            }
            let target = opened_at.join(event.data.unwrap_or_default().trim());
            return match target {
                Ok(url) if url.origin() == opened_at.origin() => Ok((stream, url)),
                Ok(_) => Err(unreachable("its endpoint lies on another origin")),
                Err(_) => Err(unreachable("its endpoint is no URL")),
            };
        }
        Err(unreachable("the event stream ended without an endpoint"))
    }
}

#[async_trait]
impl UpstreamConnector for SseConnector {
    fn name(&self) -> &UpstreamName {
        &self.endpoint.name
    }

    async fn connect(
        &self,
        _principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let opened = tokio::time::timeout(self.endpoint.limits.accept_timeout, self.open()).await;
        let (stream, url) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(
                error @ (UpstreamError::Unreachable { .. } | UpstreamError::Unauthorized { .. }),
            )) => return Err(error),
            Ok(Err(_)) => {
                return Err(UpstreamError::Unreachable {
                    reason: "the event stream broke off",
                });
            }
            Err(_) => {
                return Err(UpstreamError::Unreachable {
                    reason: "it named no endpoint in time",
                });
            }
        };
        let closing = CancellationToken::new();
        let tasks = TaskTracker::new();
        tokio::spawn(follow(
            self.endpoint.name.clone(),
            stream,
            events.clone(),
            closing.clone(),
            tasks.token(),
        ));
        let mut headers = self.endpoint.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Arc::new(SseLink {
            mailbox: Arc::new(Mailbox {
                endpoint: self.endpoint.clone(),
                url,
                headers: Arc::new(headers),
                events: Arc::downgrade(&events),
                closing: closing.clone(),
            }),
            tasks,
            closing: closing.drop_guard(),
        }))
    }
}

/// The sending half of a connection over HTTP+SSE.
#[derive(Debug)]
struct SseLink {
    mailbox: Arc<Mailbox>,
    tasks: TaskTracker,
    /// Ends the stream when the link is dropped without a close.
    closing: DropGuard,
}

#[async_trait]
impl UpstreamLink for SseLink {
    /// Posts the message. For a request this waits only until the request has been handed to
    /// the socket: a server may work on it before it accepts it.
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        if self.mailbox.closing.is_cancelled() {
            return Err(closed());
        }
        let requests: Vec<RequestId> = message.request_ids().cloned().collect();
        let mailbox = self.mailbox.clone();
        if requests.is_empty() {
            let (report, outcome) = oneshot::channel();
            self.tasks.spawn(async move {
                // Whoever waited for the outcome may be gone.
                let _ = report.send(mailbox.post(&message, None).await);
            });
            outcome.await.unwrap_or_else(|_| Err(closed()))?;
            return Ok(Sent::Delivered);
        }
        let (on_its_way, is_on_its_way) = oneshot::channel();
        self.tasks.spawn(async move {
            if let Err(error) = mailbox.post(&message, Some(on_its_way)).await {
                mailbox.report_unanswered(requests, error).await;
            }
        });
        let deadline = self.mailbox.endpoint.limits.accept_timeout;
        let _ = tokio::time::timeout(deadline, is_on_its_way).await;
        Ok(Sent::Delivered)
    }

    async fn close(&self) {
        self.closing.token().cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Reports the messages of a stream to its end, and then the loss of the connection unless it
/// was closed. `running` is given back before that, since who is told of the loss may wait for
/// the tasks to end.
async fn follow(
    upstream: UpstreamName,
    mut stream: EventStream,
    events: Arc<dyn UpstreamEvents>,
    closing: CancellationToken,
    running: TaskTrackerToken,
) {
    let error = tokio::select! {
        biased;
        () = closing.cancelled() => return,
        error = report_all(&upstream, &mut stream, events.as_ref()) => error,
    };
    // Nothing can be answered any more; this stops the senders.
    closing.cancel();
    drop(running);
    events.lost(error).await;
}

/// Reports the messages of a stream to its end.
async fn report_all(
    upstream: &UpstreamName,
    stream: &mut EventStream,
    events: &dyn UpstreamEvents,
) -> UpstreamError {
    let mut skipped = Skipped::default();
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            Ok(None) => {
                return UpstreamError::Lost {
                    reason: "the server ended the event stream".into(),
                };
            }
            Err(error) => return error,
        };
        let Some(body) = payload(event) else { continue };
        match reply::parse(&body) {
            Ok(message) => events.received(message, None).await,
            Err(error) => skipped.note(upstream, &error),
        }
    }
}

/// Where messages are posted.
struct Mailbox {
    endpoint: Arc<Endpoint>,
    url: Url,
    headers: Arc<HeaderMap>,
    /// Kept alive by the task that reads the stream.
    events: Weak<dyn UpstreamEvents>,
    closing: CancellationToken,
}

impl std::fmt::Debug for Mailbox {
    /// Leaves out the headers, and the address, which names the session.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Posts a message and returns whether the server took it over.
    async fn post(
        &self,
        message: &Message,
        taken: Option<oneshot::Sender<()>>,
    ) -> Result<(), UpstreamError> {
        let body = message.on_one_line();
        let headers = with_trace(Arc::clone(&self.headers), message);
        let posting = self.endpoint.post(&self.url, &headers, body, taken);
        let limit = self.endpoint.limits.accept_timeout;
        let response = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(closed()),
            response = tokio::time::timeout(limit, posting) => {
                response.unwrap_or(Err(UpstreamError::NoAnswer))?
            }
        };
        // The address itself names the session.
        let outcome = reply::acceptance(&response, true);
        reply::drain(response).await;
        outcome
    }

    async fn report_unanswered(&self, requests: Vec<RequestId>, error: UpstreamError) {
        let Some(events) = self.events.upgrade() else {
            return;
        };
        for request in requests {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                () = events.unanswered(request, error.clone()) => {}
            }
        }
    }
}

fn closed() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection is closed".into(),
    }
}
