//! Upstreams over HTTP+SSE, the transport of revision 2024-11-05.
//!
//! One GET stream carries all messages of the server. Its first event has the URL to which messages
//! are posted. It must have the same origin, because the configured credentials are sent there.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use url::Url;

use super::http::Endpoint;
use super::http::event_stream::{EventStream, payload};
use super::http::reply::{self, BodyKind};
use crate::trace_headers::with_trace;
use riglm_adapters_programs::SkippedOutput;

/// Connects to one HTTP+SSE server. Every connection has its own event stream.
#[derive(Debug)]
pub struct SseConnector {
    endpoint: Arc<Endpoint>,
}

impl SseConnector {
    /// Returns a connector for the server whose event stream is at `endpoint`.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint }
    }

    /// Opens the stream and reads it up to the URL for messages.
    async fn open(&self) -> Result<(EventStream, Url), UpstreamError> {
        let unreachable = |reason| UpstreamError::Unreachable { reason };
        let mut headers = self.endpoint.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.endpoint.request(Method::GET, &headers).await?;
        if let error @ UpstreamError::Unauthorized { .. } = reply::refusal_error(response.status())
        {
            return Err(error);
        }
        if !response.status().is_success() || BodyKind::of(&response) != BodyKind::Events {
            tracing::debug!(
                upstream = %self.endpoint.name,
                http.status = response.status().as_u16(),
                "upstream {} opened no event stream",
                self.endpoint.name
            );
            return Err(unreachable("no event stream"));
        }
        // After redirects, the endpoint is relative to the final URL.
        let opened_at = response.url().clone();
        let mut stream = EventStream::new(response, self.endpoint.limits.max_message_bytes);
        while let Some(event) = stream.next().await? {
            if event.event.as_deref() != Some("endpoint") {
                continue;
            }
            let target = opened_at.join(event.data.unwrap_or_default().trim());
            return match target {
                Ok(url) if url.origin() == opened_at.origin() => Ok((stream, url)),
                Ok(_) => Err(unreachable("its endpoint has another origin")),
                Err(_) => Err(unreachable("its endpoint is not a valid URL")),
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
                    reason: "the event stream was interrupted",
                });
            }
            Err(_) => {
                return Err(UpstreamError::Unreachable {
                    reason: "timeout while waiting for its endpoint",
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
            mailbox: Arc::new(MessageEndpoint {
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
    mailbox: Arc<MessageEndpoint>,
    tasks: TaskTracker,
    /// Ends the stream when the link is dropped without a close.
    closing: DropGuard,
}

#[async_trait]
impl UpstreamLink for SseLink {
    /// Posts the message. For a request this waits only until the request has been handed to the
    /// socket, because a server may process it before it accepts it.
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        if self.mailbox.closing.is_cancelled() {
            return Err(closed_error());
        }
        let requests: Vec<RequestId> = message.request_ids().cloned().collect();
        let mailbox = self.mailbox.clone();
        if requests.is_empty() {
            let (report, outcome) = oneshot::channel();
            self.tasks.spawn(async move {
                // The receiver may be gone.
                let _ = report.send(mailbox.post(&message, None).await);
            });
            outcome.await.unwrap_or_else(|_| Err(closed_error()))?;
            return Ok(SendOutcome::Delivered);
        }
        let (on_its_way, is_on_its_way) = oneshot::channel();
        self.tasks.spawn(async move {
            if let Err(error) = mailbox.post(&message, Some(on_its_way)).await {
                mailbox.report_unanswered(requests, error).await;
            }
        });
        let deadline = self.mailbox.endpoint.limits.accept_timeout;
        let _ = tokio::time::timeout(deadline, is_on_its_way).await;
        Ok(SendOutcome::Delivered)
    }

    async fn close(&self) {
        self.closing.token().cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Reports the messages of a stream to its end, and then the loss of the connection unless it was
/// closed. `running` is dropped before that, because the receiver of the report may wait for the
/// tasks to end.
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
    events.on_lost(error).await;
}

/// Reports the messages of a stream to its end; returns the cause of the end.
async fn report_all(
    upstream: &UpstreamName,
    stream: &mut EventStream,
    events: &dyn UpstreamEvents,
) -> UpstreamError {
    let mut skipped = SkippedOutput::default();
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
            Ok(message) => events.on_message(message, None).await,
            Err(error) => skipped.note(upstream, &error),
        }
    }
}

struct MessageEndpoint {
    endpoint: Arc<Endpoint>,
    url: Url,
    headers: Arc<HeaderMap>,
    /// Kept alive by the task that reads the stream.
    events: Weak<dyn UpstreamEvents>,
    closing: CancellationToken,
}

impl std::fmt::Debug for MessageEndpoint {
    /// Omits the headers, and the URL, which contains the session id.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl MessageEndpoint {
    /// Posts a message and waits until the server accepts it.
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
            () = self.closing.cancelled() => return Err(closed_error()),
            response = tokio::time::timeout(limit, posting) => {
                response.unwrap_or(Err(UpstreamError::NoAnswer))?
            }
        };
        // The URL itself names the session, so status 404 means that it expired.
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
                () = events.on_unanswered(request, error.clone()) => {}
            }
        }
    }
}

fn closed_error() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection is closed".into(),
    }
}
