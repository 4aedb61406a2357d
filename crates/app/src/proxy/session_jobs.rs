//! Requests that the session answers itself: each runs as a job, whose reply is sent at its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::method::metric_label;
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::Route;
use riglm_ports::observer::{Event, RequestEndedEvent};
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::admission::NewRequest;
use super::client_requests::{EndingRequest, Handler};
use super::request_params::outcome_of;
use super::session::ClientSession;
use super::upstream_session::UpstreamSession;
use super::upstream_session::completion::timed_out;
use super::upstream_session::session_ended;

/// The reply to a request of the client.
#[derive(Debug)]
pub(super) enum Reply {
    /// The JSON text of a result that the session composed.
    Result(String),
    Error(RpcError),
    /// The answer of an upstream, result or error.
    Upstream(Message),
    /// The request goes to this upstream, which answers it under the id of the client.
    Forward(Arc<UpstreamSession>, Message),
    /// No reply, because everything was delivered before.
    Nothing,
}

/// A request of the client that the session answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobRequest<'a> {
    pub(super) id: &'a RequestId,
    pub(super) method: &'a str,
    /// The size of its message in bytes.
    pub(super) n_bytes: usize,
    /// Whether the answer needs no upstream, so that its whole time is the proxy's own.
    pub(super) is_local: bool,
}

/// The deadline of a job that waits for an upstream.
#[derive(Clone, Debug)]
pub(super) struct Deadline {
    pub(super) limit: Duration,
    pub(super) upstream: UpstreamName,
}

impl ClientSession {
    /// Runs a job like [`Self::run_job`]. After the deadline the reply is an error.
    ///
    /// # Errors
    ///
    /// Returns the reason why the request is refused.
    pub(super) fn run_job_before(
        self: &Arc<Self>,
        request: JobRequest<'_>,
        deadline: Option<Deadline>,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        let Some(Deadline { limit, upstream }) = deadline else {
            return self.run_job(request, job);
        };
        self.run_job(request, async move {
            let in_time = tokio::time::timeout(limit, job).await;
            in_time.unwrap_or_else(|_| Reply::Error(timed_out(&upstream)))
        })
    }

    /// Registers a request as in flight. Returns the exchange that runs its job and sends the reply.
    ///
    /// # Errors
    ///
    /// Returns the reason why the request is refused.
    pub(super) fn run_job(
        self: &Arc<Self>,
        request: JobRequest<'_>,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        self.run_job_until(request, CancellationToken::new(), job)
    }

    /// Runs a job like [`Self::run_job`]. The token ends the job, also from within.
    ///
    /// # Errors
    ///
    /// Returns the reason why the request is refused.
    pub(super) fn run_job_until(
        self: &Arc<Self>,
        request: JobRequest<'_>,
        cancel: CancellationToken,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        let mut running = RunningJob::begin(self, request, cancel.clone())?;
        let session = Arc::clone(self);
        let id = request.id.clone();
        let run = async move {
            let reply = tokio::select! {
                biased;
                () = cancel.cancelled() => Reply::Nothing,
                () = session.closing.cancelled() => Reply::Error(session_ended()),
                reply = job => reply,
            };
            let requests = &session.client_context.requests;
            let reply = match reply {
                Reply::Forward(member, message) if requests.pass(&id, member.number) => {
                    let received = member.receive(message).await;
                    // The upstream session has taken the request over by now, or refused it.
                    drop(running);
                    return finish_exchange(received).await;
                }
                Reply::Forward(..) => Reply::Nothing,
                reply => reply,
            };
            running.end(&reply);
            session.reply(&id, reply).await;
            drop(running);
        };
        Ok(Exchange {
            run: Box::pin(run.instrument(self.client_context.span.clone())),
            on_its_way: Box::pin(std::future::ready(())),
        })
    }

    async fn reply(&self, id: &RequestId, reply: Reply) {
        let route = Route::Related(id.clone());
        match reply {
            Reply::Result(result) => {
                self.client
                    .deliver(Message::success(id, &result), route)
                    .await;
            }
            Reply::Error(error) => self.answer(id, error.to_json(Some(id))).await,
            Reply::Upstream(message) => self.client.deliver(message.with_id(id), route).await,
            Reply::Nothing | Reply::Forward(..) => self.client.finish(id).await,
        }
    }
}

/// Drives the exchange of a request that was passed to an upstream to its end.
async fn finish_exchange(received: Result<Option<Exchange>, RpcError>) {
    match received {
        Ok(Some(exchange)) => exchange.run.await,
        Ok(None) => {}
        Err(error) => tracing::debug!("failed to forward a request: {}", error.message),
    }
}

/// A job in progress. Its end is reported on drop.
struct RunningJob {
    session: Arc<ClientSession>,
    id: RequestId,
    /// The method name for metrics.
    method: &'static str,
    since: Instant,
    is_local: bool,
    outcome: Outcome,
    /// The end of the request, once it is decided.
    ending: Option<EndingRequest>,
}

impl RunningJob {
    fn begin(
        session: &Arc<ClientSession>,
        request: JobRequest<'_>,
        cancel: CancellationToken,
    ) -> Result<Self, RpcError> {
        let new = NewRequest {
            id: request.id,
            method: request.method,
            n_bytes: request.n_bytes,
            n_unanswered: 0,
        };
        let handler = Handler::Session(cancel);
        (session.shared).admit(&session.client_context, &new, handler)?;
        Ok(Self {
            session: Arc::clone(session),
            id: request.id.clone(),
            method: metric_label(request.method),
            since: Instant::now(),
            is_local: request.is_local,
            outcome: Outcome::Cancelled,
            ending: None,
        })
    }

    /// Ends the job with a reply. The id of the request is free from now on.
    fn end(&mut self, reply: &Reply) {
        self.outcome = match reply {
            Reply::Result(result) => outcome_of(result),
            Reply::Upstream(message) if message.single().is_some_and(is_success) => Outcome::Ok,
            Reply::Error(_) | Reply::Upstream(_) => Outcome::Error,
            Reply::Forward(..) | Reply::Nothing => Outcome::Cancelled,
        };
        // The client may use the id for another stream as soon as the request has ended.
        self.session.aggregator.streams.close(&self.id);
        self.ending = self.session.client_context.requests.end(&self.id);
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if self.ending.is_none() {
            self.session.aggregator.streams.close(&self.id);
            self.ending = self
                .session
                .client_context
                .requests
                .end_in_session(&self.id);
        }
        if self.ending.is_none() {
            return; // An upstream session answers the request and reports its end.
        }
        self.session.shared.observe_from(
            &Event::RequestEnded(RequestEndedEvent {
                method: self.method,
                upstream: None,
                tool: None,
                outcome: self.outcome,
                took: self.since.elapsed(),
                // The session may have asked upstreams one after the other or concurrently, so no
                // single time applies.
                with_upstream: self.is_local.then_some(Duration::ZERO),
                duration: Duration::ZERO,
            }),
            &self.session.client_context.origin(),
        );
    }
}

fn is_success(part: &Envelope) -> bool {
    part.kind() == MessageKind::Success
}
