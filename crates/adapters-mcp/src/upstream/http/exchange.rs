//! One request, or one batch with requests, from its POST to its answer.
//!
//! The eras differ in few points: a request of revision 2026-07-28 carries its own headers, its
//! stream is never resumed, and it is cancelled by dropping it, without a message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use reqwest::Response;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::method;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio::sync::oneshot;

use super::era::Era;
use super::event_stream::{EventStream, StreamPosition, payload};
use super::json_stream::JsonStream;
use super::open_exchanges::ExchangeEntry;
use super::reply::{self, BodyKind};
use super::session::HttpSession;
use crate::trace_headers::with_trace;
use riglm_adapters_programs::SkippedOutput;

/// The time that the stream of an answered request may stay open.
const LINGER: Duration = Duration::from_secs(10);
/// The time that a server may still answer after it accepted a cancellation.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// The maximum number of failed attempts in a row to resume a stream.
const MAX_FAILURES: u32 = 5;
/// The maximum number of skipped texts in a JSON body, because a body can have millions of them.
const MAX_SKIPPED: usize = 100;

#[derive(Debug)]
pub(super) struct HttpExchange {
    session: Arc<HttpSession>,
    events: Arc<dyn UpstreamEvents>,
    /// The requests of the message. All messages on their stream relate to the first.
    requests: Vec<RequestId>,
    /// The requests without an answer so far.
    open: Vec<RequestId>,
    era: Era,
    place: ExchangeEntry,
    is_initialize: bool,
    is_list: bool,
    skipped: SkippedOutput,
}

#[derive(Debug)]
enum StreamEnd {
    Closed,
    Broken(UpstreamError),
}

impl HttpExchange {
    /// Returns the exchange of a message with `requests`, at least one.
    pub(super) fn new(
        session: Arc<HttpSession>,
        events: Arc<dyn UpstreamEvents>,
        requests: Vec<RequestId>,
        era: Era,
    ) -> Self {
        Self {
            place: session.exchanges.enter(&requests, &era),
            session,
            events,
            era,
            open: requests.clone(),
            requests,
            is_initialize: false,
            is_list: false,
            skipped: SkippedOutput::default(),
        }
    }

    /// Sends `message` and reports the messages that come back, until the exchange is over or the
    /// connection is closed. `on_its_way` is signalled when a socket has the message.
    pub(super) async fn run(mut self, message: Message, on_its_way: oneshot::Sender<()>) {
        let closing = self.session.closing.clone();
        tokio::select! {
            biased;
            () = closing.cancelled() => {}
            () = self.run_to_end(message, on_its_way) => {}
        }
    }

    async fn run_to_end(&mut self, message: Message, on_its_way: oneshot::Sender<()>) {
        let cancelled = self.place.cancelled.clone();
        let outcome = match self.era {
            Era::Modern(_) => tokio::select! {
                biased;
                // Dropping the exchange closes the connection, which tells the server.
                () = cancelled.cancelled() => return,
                outcome = self.exchange(message, on_its_way) => outcome,
            },
            Era::Legacy => tokio::select! {
                outcome = self.exchange(message, on_its_way) => outcome,
                () = async { cancelled.cancelled().await; tokio::time::sleep(CANCEL_GRACE).await; } => Ok(()),
            },
        };
        let error = outcome.err().unwrap_or(UpstreamError::NoAnswer);
        for request in std::mem::take(&mut self.open) {
            self.events.on_unanswered(request, error.clone()).await;
        }
    }

    async fn exchange(
        &mut self,
        message: Message,
        on_its_way: oneshot::Sender<()>,
    ) -> Result<(), UpstreamError> {
        let is_initialize = |part: &Envelope| part.method() == Some(method::INITIALIZE);
        self.is_initialize = message.envelopes().iter().any(is_initialize);
        self.is_list = message.single().and_then(Envelope::method) == Some(method::TOOLS_LIST);
        if self.is_initialize {
            self.session.reset();
        }
        let headers = match &mut self.era {
            Era::Legacy => self.session.post_headers(),
            Era::Modern(headers) => Arc::new(std::mem::take(headers)),
        };
        let names_session = HttpSession::names_session(&headers);
        let headers = with_trace(headers, &message);
        let endpoint = self.session.endpoint.clone();
        let body = message.raw().clone();
        // The raw bytes are enough from here on, so the parsed message is freed during a long
        // exchange.
        drop(message);
        let response = endpoint
            .post(&endpoint.url, &headers, body, Some(on_its_way))
            .await?;
        if response.status() == StatusCode::NOT_FOUND && names_session {
            return Err(UpstreamError::SessionExpired);
        }
        if !response.status().is_success() {
            return self.take_refusal(response).await;
        }
        if self.is_initialize {
            self.session.learn_session(&response);
        }
        self.take_body(response).await
    }

    /// Reports the body of a successful response, according to its content type.
    async fn take_body(&mut self, mut response: Response) -> Result<(), UpstreamError> {
        let limit = self.session.endpoint.limits.max_message_bytes;
        let content = match BodyKind::of(&response) {
            BodyKind::Events => return self.follow(EventStream::new(response, limit)).await,
            _ if matches!(
                response.status(),
                StatusCode::ACCEPTED | StatusCode::NO_CONTENT
            ) =>
            {
                return Err(UpstreamError::NoAnswer);
            }
            // The length is known, so the whole body will arrive: one message, as a rule.
            BodyKind::Json if response.content_length().is_some() => {
                let body = reply::collect(response, limit).await?;
                if let Ok(message) = self.parse(&body) {
                    self.report(message).await;
                    return Ok(());
                }
                return self.follow_json(JsonStream::of_body(body, limit)).await;
            }
            BodyKind::Json => {
                let stream = JsonStream::new(Bytes::new(), response, limit);
                return self.follow_json(stream).await;
            }
            content => content,
        };
        let head = match content {
            BodyKind::Unstated => reply::head(&mut response).await?,
            _ => Bytes::new(),
        };
        match head.first().copied().map(BodyKind::beginning_with) {
            Some(BodyKind::Json) => {
                self.follow_json(JsonStream::new(head, response, limit))
                    .await
            }
            Some(BodyKind::Events) => self.follow(EventStream::after(head, response, limit)).await,
            _ => Err(UpstreamError::Garbled {
                reason: "neither JSON nor an event stream",
            }),
        }
    }

    /// Reports the messages of a JSON body, each as soon as it is complete.
    async fn follow_json(&mut self, mut stream: JsonStream) -> Result<(), UpstreamError> {
        let mut skipped = None;
        loop {
            let next = if self.open.is_empty() {
                // Limited in time for the same reason as in `read`.
                let next = tokio::time::timeout(LINGER, stream.next()).await;
                next.unwrap_or(Ok(None))
            } else {
                stream.next().await
            };
            let Some(body) = next? else {
                return skipped.map_or(Ok(()), Err);
            };
            skipped = self.report_body(&body).await.err().or(skipped);
            if let Some(error) = &skipped
                && self.skipped.count() > MAX_SKIPPED
            {
                return Err(error.clone());
            }
            // Buffered texts are read without waiting, so long runs of them must yield to other
            // tasks.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Reports the JSON-RPC error that came with an HTTP error status.
    async fn take_refusal(&mut self, response: Response) -> Result<(), UpstreamError> {
        let status = response.status();
        if matches!(BodyKind::of(&response), BodyKind::Json | BodyKind::Unstated) {
            let limit = self.session.endpoint.limits.max_message_bytes;
            let body = reply::collect(response, limit).await.unwrap_or_default();
            if let Some(message) = reply::refusal(&body) {
                self.report(message).await;
            }
        }
        Err(reply::refusal_error(status))
    }

    /// Reports the events of a stream, which may continue in several responses.
    async fn follow(&mut self, mut stream: EventStream) -> Result<(), UpstreamError> {
        let limit = self.session.endpoint.limits.max_message_bytes;
        let mut position = StreamPosition::default();
        let mut n_fruitless: u32 = 0;
        loop {
            let (end, n_events) = self.read(&mut stream, &mut position).await;
            if self.open.is_empty() {
                return Ok(());
            }
            let error = match end {
                StreamEnd::Closed => UpstreamError::NoAnswer,
                StreamEnd::Broken(error @ UpstreamError::Lost { .. }) => error,
                StreamEnd::Broken(error) => return Err(error),
            };
            if let Era::Modern(_) = self.era {
                return Err(UpstreamError::NoAnswer);
            }
            n_fruitless = if stream.was_successful(n_events) {
                0
            } else {
                n_fruitless.saturating_add(1)
            };
            let resumed = self.resume(&position, n_fruitless, error).await?;
            stream = EventStream::new(resumed, limit);
            position.begin_resumed_response();
        }
    }

    /// Reads a stream to its end; returns the cause of the end and the number of new events.
    async fn read(
        &mut self,
        stream: &mut EventStream,
        position: &mut StreamPosition,
    ) -> (StreamEnd, usize) {
        let mut n_events = 0;
        loop {
            let next = if self.open.is_empty() {
                // The answer should end the stream; a stream that stays open must not hold a
                // socket.
                let next = tokio::time::timeout(LINGER, stream.next()).await;
                next.unwrap_or(Ok(None))
            } else {
                stream.next().await
            };
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) => return (StreamEnd::Closed, n_events),
                Err(error) => return (StreamEnd::Broken(error), n_events),
            };
            if !position.note(&event) {
                continue;
            }
            n_events += 1;
            if let Some(body) = payload(event) {
                // An event that is not a message is skipped.
                let _ = self.report_body(&body).await;
            }
        }
    }

    /// Requests the rest of a stream, with retries.
    async fn resume(
        &self,
        position: &StreamPosition,
        n_fruitless: u32,
        error: UpstreamError,
    ) -> Result<Response, UpstreamError> {
        let Some(last_event) = position.last_event() else {
            return Err(error);
        };
        for n_failures in 0..MAX_FAILURES {
            let n_fruitless = n_fruitless.saturating_add(n_failures);
            tokio::time::sleep(position.delay(n_fruitless, fastrand::f64())).await;
            match self.session.open_stream(Some(last_event)).await {
                Ok(response) if is_stream(&response) => return Ok(response),
                Ok(response) if response.status() == StatusCode::METHOD_NOT_ALLOWED => break,
                Err(UpstreamError::SessionExpired) => return Err(UpstreamError::SessionExpired),
                Ok(_) | Err(_) => {}
            }
        }
        Err(error)
    }

    /// Reports one message of several.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Garbled`] if it is not a message; it is skipped then.
    async fn report_body(&mut self, body: &Bytes) -> Result<(), UpstreamError> {
        match self.parse(body) {
            Ok(message) => {
                self.report(message).await;
                Ok(())
            }
            Err(error) => {
                self.skipped.note(&self.session.endpoint.name, &error);
                Err(error)
            }
        }
    }

    fn parse(&self, body: &Bytes) -> Result<Message, UpstreamError> {
        if self.is_list {
            self.session.endpoint.known_lists.parse(body)
        } else {
            reply::parse(body)
        }
    }

    async fn report(&mut self, message: Message) {
        let [related, ..] = self.requests.as_slice() else {
            return;
        };
        if matches!(self.era, Era::Modern(_)) && self.place.cancelled.is_cancelled() {
            return;
        }
        let message = match self.open.as_slice() {
            [only] => reply::with_request_id(message, only),
            _ => message,
        };
        for envelope in message.envelopes() {
            let Some(id) = envelope.id().filter(|_| envelope.is_response()) else {
                continue;
            };
            if self.is_initialize && self.open.contains(id) {
                self.session.learn_revision(&message, envelope);
            }
            self.open.retain(|open| open != id);
        }
        self.events.on_message(message, Some(related.clone())).await;
    }
}

/// Returns whether the server opened a stream of events.
pub(super) fn is_stream(response: &Response) -> bool {
    response.status().is_success() && BodyKind::of(response) == BodyKind::Events
}
