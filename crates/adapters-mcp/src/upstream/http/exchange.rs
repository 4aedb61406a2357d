//! One request, or one batch with requests in it, from its POST to its answer.
//!
//! The eras differ in little: a request of revision 2026-07-28 brings its own headers, its stream
//! is never resumed, and a cancellation drops it without a word.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use reqwest::Response;
use riglm_domain::message::{Message, RequestId};
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio::sync::oneshot;

use super::era::Era;
use super::event_stream::{EventStream, Position, payload};
use super::json_stream::JsonStream;
use super::open_exchanges::Place;
use super::reply::{self, Content};
use super::session::Session;
use crate::trace_headers::with_trace;
use crate::upstream::skipped::Skipped;

/// How long an answered request's stream may stay open.
const LINGER: Duration = Duration::from_secs(10);
/// How long a server that accepted a cancellation may still answer.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// How many attempts to resume a stream may fail in a row.
const MAX_FAILURES: u32 = 5;
/// The most texts of a JSON body that are skipped because they are no messages: a body can have millions.
const MAX_SKIPPED: usize = 100;

/// An exchange under way.
#[derive(Debug)]
pub(super) struct Exchange {
    session: Arc<Session>,
    events: Arc<dyn UpstreamEvents>,
    /// The requests of the message; everything on their stream relates to the first.
    requests: Vec<RequestId>,
    /// Those without an answer so far.
    open: Vec<RequestId>,
    era: Era,
    place: Place,
    is_initialize: bool,
    /// Texts that were no messages.
    skipped: Skipped,
}

/// How a stream of events came to its end.
#[derive(Debug)]
enum StreamEnd {
    Closed,
    Broken(UpstreamError),
}

impl Exchange {
    /// Returns the exchange of a message that holds `requests`, of which there is at least one.
    pub(super) fn new(
        session: Arc<Session>,
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
            skipped: Skipped::default(),
        }
    }

    /// Sends `message` and reports what comes back until the exchange is over or the connection
    /// is closed; `on_its_way` is signalled when a socket has the message.
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
                // What is dropped here is the connection, which tells the server.
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
            self.events.unanswered(request, error.clone()).await;
        }
    }

    async fn exchange(
        &mut self,
        message: Message,
        on_its_way: oneshot::Sender<()>,
    ) -> Result<(), UpstreamError> {
        self.is_initialize = message
            .envelopes()
            .iter()
            .any(|envelope| envelope.method() == Some("initialize"));
        if self.is_initialize {
            self.session.start_anew();
        }
        let headers = match &mut self.era {
            Era::Legacy => self.session.post_headers(),
            Era::Modern(headers) => Arc::new(std::mem::take(headers)),
        };
        let names_session = Session::names_session(&headers);
        let headers = with_trace(headers, &message);
        let endpoint = self.session.endpoint.clone();
        let body = message.raw().clone();
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

    /// Reports what comes with a status of success, as the body is framed.
    async fn take_body(&mut self, mut response: Response) -> Result<(), UpstreamError> {
        let limit = self.session.endpoint.limits.max_message_bytes;
        let content = match Content::of(&response) {
            Content::Events => return self.follow(EventStream::new(response, limit)).await,
            _ if matches!(
                response.status(),
                StatusCode::ACCEPTED | StatusCode::NO_CONTENT
            ) =>
            {
                return Err(UpstreamError::NoAnswer);
            }
            // The length is known, so that all of it is there: one message, as a rule.
            Content::Json if response.content_length().is_some() => {
                let body = reply::collect(response, limit).await?;
                if let Ok(message) = reply::parse(&body) {
                    self.report(message).await;
                    return Ok(());
                }
                return self.follow_json(JsonStream::of_body(body, limit)).await;
            }
            Content::Json => {
                let stream = JsonStream::new(Bytes::new(), response, limit);
                return self.follow_json(stream).await;
            }
            content => content,
        };
        let head = match content {
            Content::Unstated => reply::head(&mut response).await?,
            _ => Bytes::new(),
        };
        match head.first().copied().map(Content::beginning_with) {
            Some(Content::Json) => {
                self.follow_json(JsonStream::new(head, response, limit))
                    .await
            }
            Some(Content::Events) => self.follow(EventStream::after(head, response, limit)).await,
            _ => Err(UpstreamError::Garbled {
                reason: "it is neither JSON nor an event stream",
            }),
        }
    }

    /// Reports the messages of a body of JSON, each as soon as it is there.
    async fn follow_json(&mut self, mut stream: JsonStream) -> Result<(), UpstreamError> {
        let mut skipped = None;
        loop {
            let next = if self.open.is_empty() {
                // As with events, see `read`.
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
                && self.skipped.n() > MAX_SKIPPED
            {
                return Err(error.clone());
            }
            // What is there already is read without a pause, however many texts it is.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Reports the JSON-RPC error that came with an HTTP error status.
    async fn take_refusal(&mut self, response: Response) -> Result<(), UpstreamError> {
        let status = response.status();
        if matches!(Content::of(&response), Content::Json | Content::Unstated) {
            let limit = self.session.endpoint.limits.max_message_bytes;
            let body = reply::collect(response, limit).await.unwrap_or_default();
            if let Some(message) = reply::refusal(&body) {
                self.report(message).await;
            }
        }
        Err(reply::refused(status))
    }

    /// Reports the events of a stream, which may come in several responses.
    async fn follow(&mut self, mut stream: EventStream) -> Result<(), UpstreamError> {
        let limit = self.session.endpoint.limits.max_message_bytes;
        let mut position = Position::default();
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
            n_fruitless = if stream.was_fruitful(n_events) {
                0
            } else {
                n_fruitless.saturating_add(1)
            };
            let resumed = self.resume(&position, n_fruitless, error).await?;
            stream = EventStream::new(resumed, limit);
            position.resumed();
        }
    }

    /// Reads a stream to its end; returns it with the number of new events.
    async fn read(
        &mut self,
        stream: &mut EventStream,
        position: &mut Position,
    ) -> (StreamEnd, usize) {
        let mut n_events = 0;
        loop {
            let next = if self.open.is_empty() {
                // The answer should end the stream; one that stays open must not hold a socket.
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
                // An event that is no message is skipped.
                let _ = self.report_body(&body).await;
            }
        }
    }

    /// Asks for the rest of a stream, several times if need be.
    async fn resume(
        &self,
        position: &Position,
        n_fruitless: u32,
        error: UpstreamError,
    ) -> Result<Response, UpstreamError> {
        let Some(last_event) = position.last_event() else {
            return Err(error);
        };
        for n_failures in 0..MAX_FAILURES {
            tokio::time::sleep(position.delay(n_fruitless.saturating_add(n_failures))).await;
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
    /// Returns [`UpstreamError::Garbled`] for anything else, which is skipped.
    async fn report_body(&mut self, body: &Bytes) -> Result<(), UpstreamError> {
        match reply::parse(body) {
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

    async fn report(&mut self, message: Message) {
        let [related, ..] = self.requests.as_slice() else {
            return;
        };
        if matches!(self.era, Era::Modern(_)) && self.place.cancelled.is_cancelled() {
            return;
        }
        let message = match self.open.as_slice() {
            [only] => reply::answering(message, only),
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
        self.events.received(message, Some(related.clone())).await;
    }
}

/// Returns whether the server opened a stream of events.
pub(super) fn is_stream(response: &Response) -> bool {
    response.status().is_success() && Content::of(response) == Content::Events
}
