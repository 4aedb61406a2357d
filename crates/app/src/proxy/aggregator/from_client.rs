//! The path of a message from the client to the upstreams that it is for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::PROGRESS_TOKEN;
use riglm_domain::mcp::method::metric_label;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::Route;
use riglm_ports::observer::{Event, RequestEndedEvent};
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::fan_out::Behalf;
use super::list_kind::ListKind;
use super::route::RouteTarget;
use super::{InFlightRequest, RequestFromUpstream};
use crate::proxy::relay::params::{IdMember, RequestParams, id_member, outcome_of};
use crate::proxy::relay::session_ended;
use crate::proxy::session::ClientSession;
use crate::proxy::shared_state::{is_handshake_method, stopping};
use crate::proxy::upstream_session::UpstreamSession;

/// The reply to a request of the client.
#[derive(Debug)]
pub(super) enum Reply {
    /// The JSON text of a result that the session composed.
    Result(String),
    Error(RpcError),
    /// The answer of an upstream, result or error.
    Member(Message),
    /// No reply, because everything was delivered before.
    Nothing,
}

impl ClientSession {
    /// Receives a message of the client that is for several upstreams, or for one that must be
    /// determined.
    ///
    /// # Errors
    ///
    /// Returns the reason why a message without requests could not be forwarded.
    pub(in crate::proxy) async fn receive_aggregated(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let invalid = |text: &str| RpcError::new(RpcErrorCode::InvalidRequest, text);
        let message = self.unwrap_call(message);
        if self.is_closed() {
            return self.refuse(&message, session_ended()).await.map(|()| None);
        }
        let Some(envelope) = message.single().cloned() else {
            let error = invalid("JSON-RPC batches are not supported with several upstreams");
            return self.refuse(&message, error).await.map(|()| None);
        };
        if !envelope.is_version_2() {
            let error = invalid(r#"a message must have "jsonrpc": "2.0""#);
            return self.refuse(&message, error).await.map(|()| None);
        }
        match envelope.kind() {
            MessageKind::Request => match self.request(&message, &envelope).await {
                Ok(exchange) => Ok(exchange),
                Err(error) => self.refuse(&message, error).await.map(|()| None),
            },
            MessageKind::Notification => self.notification(message, &envelope).await.map(|()| None),
            MessageKind::Success | MessageKind::Failure => {
                self.response(message, &envelope).await.map(|()| None)
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<Option<Exchange>, RpcError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(None);
        };
        let params = RequestParams::read(message.params(envelope));
        let meta = params.protocol_meta();
        if let Some(meta) = &meta {
            meta.check_revision()?;
            meta.check_complete(method)?;
            self.caller.set_request_description(meta);
        }
        let is_modern = meta.is_some();
        if self.aggregator.state.lock().in_flight.contains_key(id) {
            return Err(in_flight_already());
        }
        let session = Arc::clone(self);
        let request = ClientRequest {
            id,
            method,
            n_bytes: message.raw().len(),
        };
        let message = message.clone();
        let own = id.clone();
        if let Some(kind) = ListKind::of_method(method) {
            let job = async move { session.list_page(kind, &message, is_modern).await };
            return self.run_job(request, job).map(Some);
        }
        if method == "tools/call"
            && let Some((tools, tool)) = self.own_tool(&params)
        {
            let tools = Arc::clone(tools);
            let job = async move {
                let tool = (&*tools, tool);
                session.search(tool, &message, own, is_modern).await
            };
            return self.run_job(request, job).map(Some);
        }
        match method {
            "initialize" => {
                let job = async move { session.initialize(&message).await };
                self.run_job(request, job).map(Some)
            }
            "server/discover" => {
                let job = async move { session.discover(&message).await };
                self.run_job(request, job).map(Some)
            }
            "ping" if !is_modern => self
                .run_job(request, async { Reply::Result("{}".into()) })
                .map(Some),
            "logging/setLevel" => {
                let job = async move { session.set_level(&message, own).await };
                self.run_job(request, job).map(Some)
            }
            "tasks/list" => {
                let job = async move { session.list_tasks(&message, own).await };
                self.run_job(request, job).map(Some)
            }
            "subscriptions/listen" => {
                let cancel = CancellationToken::new();
                let job = session.listen(&message, own, cancel.clone());
                self.run_job_until(request, cancel, job).map(Some)
            }
            _ => match self.target(method, &message) {
                RouteTarget::Member(member, message) if member.relay.is_connected() => {
                    self.send_to(&member, id, method, message).await
                }
                RouteTarget::Member(member, message) => {
                    // Connecting may take long. The next message may be for a connected upstream
                    // and must not wait.
                    let asked = method.to_owned();
                    let behalf = Behalf {
                        request: Some(own),
                        listen: None,
                    };
                    let job =
                        async move { session.ask_owner(&member, &message, &asked, behalf).await };
                    self.run_job(request, job).map(Some)
                }
                RouteTarget::Unknown => {
                    let job = async move { session.find_and_send(&message, own).await };
                    self.run_job(request, job).map(Some)
                }
            },
        }
    }

    /// Sends a request to the one upstream that it is for.
    async fn send_to(
        self: &Arc<Self>,
        member: &Arc<UpstreamSession>,
        id: &RequestId,
        method: &str,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let request = InFlightRequest::Member {
            number: member.number,
            is_call: method == "tools/call",
        };
        {
            let mut state = self.aggregator.state.lock();
            // Two requests with the same id may have arrived at the same time.
            if state.in_flight.contains_key(id) {
                return Err(in_flight_already());
            }
            state.in_flight.insert(id.clone(), request);
        }
        member.relay.receive(message).await
    }

    /// Returns the exchange that runs a job of the session and sends its reply.
    fn run_job(
        self: &Arc<Self>,
        request: ClientRequest<'_>,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        self.run_job_until(request, CancellationToken::new(), job)
    }

    fn run_job_until(
        self: &Arc<Self>,
        request: ClientRequest<'_>,
        cancel: CancellationToken,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        let mut working = RunningRequest::new(self, request, cancel.clone())?;
        let session = Arc::clone(self);
        let id = request.id.clone();
        let run = async move {
            let reply = tokio::select! {
                biased;
                () = cancel.cancelled() => Reply::Nothing,
                () = session.closing.cancelled() => Reply::Error(session_ended()),
                reply = job => reply,
            };
            working.is_told = working.method == "tools/call" && matches!(reply, Reply::Member(_));
            working.outcome = match &reply {
                Reply::Result(result) => outcome_of(result),
                Reply::Member(message) if message.single().is_some_and(is_success) => Outcome::Ok,
                Reply::Error(_) | Reply::Member(_) => Outcome::Error,
                Reply::Nothing => Outcome::Cancelled,
            };
            session.reply(&id, reply).await;
            drop(working);
        };
        Ok(Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(std::future::ready(())),
        })
    }

    async fn reply(&self, id: &RequestId, reply: Reply) {
        match reply {
            Reply::Result(result) => {
                let route = Route::Related(id.clone());
                self.client
                    .deliver(Message::success(id, &result), route)
                    .await;
            }
            Reply::Error(error) => self.answer(id, error.to_json(Some(id))).await,
            Reply::Member(message) => {
                let route = Route::Related(id.clone());
                self.client.deliver(message.with_id(id), route).await;
            }
            Reply::Nothing => self.client.finish(id).await,
        }
    }

    /// Forwards a notification to the upstreams that it concerns.
    async fn notification(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
    ) -> Result<(), RpcError> {
        let params = message.params(envelope);
        match envelope.method() {
            Some("notifications/cancelled") => {
                if let Some(id) = id_member(params, IdMember::RequestId) {
                    self.cancel(&id, message).await;
                }
            }
            Some("notifications/progress") => {
                let token = id_member(params, IdMember::ProgressToken);
                let asked = {
                    let state = self.aggregator.state.lock();
                    token.and_then(|token| state.from_members.get(&token).cloned())
                };
                if let Some(RequestFromUpstream {
                    number,
                    progress_token: Some(token),
                    ..
                }) = asked
                    && let Some(params) = params
                    && let Some(member) = self.member_by_number(number)
                {
                    let params = edit::with_member(params, PROGRESS_TOKEN, &token.to_json());
                    member.relay.receive(message.with_params(&params)).await?;
                }
            }
            _ => {
                let members = self.members();
                let told = members.iter().map(|member| {
                    let message = message.clone();
                    async move {
                        // A failure for one upstream must not keep the others from the
                        // notification.
                        if let Err(error) = member.relay.receive(message).await {
                            let name = member.name();
                            tracing::debug!(
                                upstream = %name,
                                "failed to forward a notification to upstream {name}: {}",
                                error.message
                            );
                        }
                    }
                });
                join_all(told).await;
            }
        }
        Ok(())
    }

    /// Cancels a request of the client.
    async fn cancel(self: &Arc<Self>, id: &RequestId, message: Message) {
        let request = self.aggregator.state.lock().in_flight.get(id).cloned();
        match request {
            Some(InFlightRequest::Here(cancel)) => cancel.cancel(),
            Some(InFlightRequest::Member { number, .. }) => {
                let Some(member) = self.member_by_number(number) else {
                    return;
                };
                if let Err(error) = member.relay.receive(message).await {
                    tracing::debug!("failed to forward a cancellation: {}", error.message);
                }
            }
            None => {
                // The request may be from a time when there was only one upstream.
                for member in self.all_members() {
                    let cancelled = member.relay.receive(message.clone()).await;
                    if let Err(error) = cancelled {
                        tracing::debug!("failed to forward a cancellation: {}", error.message);
                    }
                }
            }
        }
    }

    /// Forwards an answer of the client to the upstream that asked.
    async fn response(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
    ) -> Result<(), RpcError> {
        let Some(id) = envelope.id() else {
            return Ok(());
        };
        let asked = self.aggregator.state.lock().from_members.remove(id);
        let (member, message) = if let Some(asked) = asked {
            let member = self.member_by_number(asked.number);
            (member, message.with_id(&asked.id))
        } else {
            // The request may be from a time when there was only one upstream.
            let members = self.all_members();
            let mut asking = members.iter().filter(|member| member.relay.has_asked(id));
            (asking.next().cloned(), message)
        };
        match member {
            Some(member) => member.relay.receive(message).await.map(|_| ()),
            None => Ok(()),
        }
    }

    pub(super) fn member_by_number(&self, number: u64) -> Option<Arc<UpstreamSession>> {
        let mut members = self.all_members().into_iter();
        members.find(|member| member.number == number)
    }
}

fn is_success(part: &Envelope) -> bool {
    part.kind() == MessageKind::Success
}

fn in_flight_already() -> RpcError {
    RpcError::new(
        RpcErrorCode::InvalidRequest,
        "a request with this id is already in flight",
    )
}

#[derive(Clone, Copy)]
struct ClientRequest<'a> {
    id: &'a RequestId,
    method: &'a str,
    /// The size of its message in bytes.
    n_bytes: usize,
}

/// A request of the client that the session handles itself.
struct RunningRequest {
    session: Arc<ClientSession>,
    id: RequestId,
    /// The method name for metrics.
    method: &'static str,
    since: Instant,
    outcome: Outcome,
    /// Whether the relay of an upstream reports its end.
    is_told: bool,
}

impl RunningRequest {
    fn new(
        session: &Arc<ClientSession>,
        ClientRequest {
            id,
            method,
            n_bytes,
        }: ClientRequest<'_>,
        cancel: CancellationToken,
    ) -> Result<Self, RpcError> {
        let shared = &session.shared;
        if shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let mut state = session.aggregator.state.lock();
        if state.in_flight.contains_key(id) {
            return Err(in_flight_already());
        }
        if !is_handshake_method(method) && state.is_full(shared.limits().in_flight_per_session) {
            return Err(shared.session_is_full(&session.caller.origin()));
        }
        let standing = shared.take_permit(&session.caller.principal, method, n_bytes)?;
        state.standings.insert(id.clone(), standing);
        state
            .in_flight
            .insert(id.clone(), InFlightRequest::Here(cancel));
        drop(state);
        Ok(Self {
            session: Arc::clone(session),
            id: id.clone(),
            method: metric_label(method),
            since: Instant::now(),
            outcome: Outcome::Cancelled,
            is_told: false,
        })
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let shared = &self.session.shared;
        if !self.is_told {
            shared.observe_from(
                &Event::RequestEnded(RequestEndedEvent {
                    method: self.method,
                    upstream: None,
                    tool: None,
                    outcome: self.outcome,
                    took: self.since.elapsed(),
                    // The session may have asked upstreams one after the other or concurrently, so
                    // no single time applies.
                    with_upstream: None,
                    duration: Duration::ZERO,
                }),
                &self.session.caller.origin(),
            );
        }
        let (listen, standing) = {
            let mut state = self.session.aggregator.state.lock();
            (
                state.listens.remove(&self.id),
                state.standings.remove(&self.id),
            )
        };
        drop(standing);
        if let Some(listen) = listen {
            listen.cancel.cancel();
        }
        self.session.aggregator.forget(&self.id);
    }
}
