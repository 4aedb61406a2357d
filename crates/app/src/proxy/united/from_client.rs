//! The way of a message from the client to the members that it is for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_domain::edit;
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::meta::PROGRESS_TOKEN;
use riglm_domain::method::counted;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::downstream::Route;
use riglm_ports::observer::{Event, RequestEnded};
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::ask::Behalf;
use super::list_kind::ListKind;
use super::route::Target;
use super::{FromMember, InFlight};
use crate::proxy::member::Member;
use crate::proxy::relay::params::{IdMember, RequestParams, id_member, outcome_of};
use crate::proxy::relay::session_ended;
use crate::proxy::session::ClientSession;
use crate::proxy::shared::{is_greeting, stopping};

/// What the client gets for its request.
#[derive(Debug)]
pub(super) enum Reply {
    /// The JSON text of a result that the session made.
    Result(String),
    /// An error of the proxy.
    Error(RpcError),
    /// What a member answered, result or error.
    Member(Message),
    /// Nothing: what was delivered before is all.
    Nothing,
}

impl ClientSession {
    /// Takes a message of the client that is for several upstreams, or for one that has to be found.
    ///
    /// # Errors
    ///
    /// Returns why a message without requests could not be passed on.
    pub(in crate::proxy) async fn receive_united(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let invalid = |text: &str| RpcError::new(RpcErrorCode::InvalidRequest, text);
        let message = self.unwrapped(message);
        if self.is_closed() {
            return self.refuse(&message, session_ended()).await.map(|()| None);
        }
        let Some(envelope) = message.single().cloned() else {
            let error = invalid("JSON-RPC batches are not taken in front of several upstreams");
            return self.refuse(&message, error).await.map(|()| None);
        };
        if !envelope.is_version_2() {
            let error = invalid(r#"a message must have "jsonrpc": "2.0""#);
            return self.refuse(&message, error).await.map(|()| None);
        }
        match envelope.kind() {
            Kind::Request => match self.request(&message, &envelope).await {
                Ok(exchange) => Ok(exchange),
                Err(error) => self.refuse(&message, error).await.map(|()| None),
            },
            Kind::Notification => self.notification(message, &envelope).await.map(|()| None),
            Kind::Success | Kind::Failure => self.response(message, &envelope).await.map(|()| None),
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
            meta.check_spoken()?;
            meta.check_complete(method)?;
            self.caller.presented(meta);
        }
        let is_modern = meta.is_some();
        if self.united.state().in_flight.contains_key(id) {
            return Err(in_flight_already());
        }
        let session = Arc::clone(self);
        let request = Asked {
            id,
            method,
            n_bytes: message.raw().len(),
        };
        let message = message.clone();
        let own = id.clone();
        if let Some(kind) = ListKind::of_method(method) {
            let job = async move { session.list_page(kind, &message, is_modern).await };
            return self.work(request, job).map(Some);
        }
        if method == "tools/call"
            && let Some((tools, tool)) = self.own_tool(&params)
        {
            let tools = Arc::clone(tools);
            let job = async move {
                let tool = (&*tools, tool);
                session.search(tool, &message, own, is_modern).await
            };
            return self.work(request, job).map(Some);
        }
        match method {
            "initialize" => {
                let job = async move { session.initialize(&message).await };
                self.work(request, job).map(Some)
            }
            "server/discover" => {
                let job = async move { session.discover(&message).await };
                self.work(request, job).map(Some)
            }
            "ping" if !is_modern => self
                .work(request, async { Reply::Result("{}".into()) })
                .map(Some),
            "logging/setLevel" => {
                let job = async move { session.set_level(&message, own).await };
                self.work(request, job).map(Some)
            }
            "tasks/list" => {
                let job = async move { session.list_tasks(&message, own).await };
                self.work(request, job).map(Some)
            }
            "subscriptions/listen" => {
                let cancel = CancellationToken::new();
                let job = session.listen(&message, own, cancel.clone());
                self.work_until(request, cancel, job).map(Some)
            }
            _ => match self.target(method, &message) {
                Target::Member(member, message) if member.relay.is_connected() => {
                    self.send_to(&member, id, method, message).await
                }
                Target::Member(member, message) => {
                    // What comes next may be for an upstream that is up, and must not wait.
                    let asked = method.to_owned();
                    let behalf = Behalf {
                        request: Some(own),
                        listen: None,
                    };
                    let job =
                        async move { session.ask_owner(&member, &message, &asked, behalf).await };
                    self.work(request, job).map(Some)
                }
                Target::Unknown => {
                    let job = async move { session.find_and_send(&message, own).await };
                    self.work(request, job).map(Some)
                }
            },
        }
    }

    /// Hands a request to the one member that it is for.
    async fn send_to(
        self: &Arc<Self>,
        member: &Arc<Member>,
        id: &RequestId,
        method: &str,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let request = InFlight::Member {
            number: member.number,
            is_call: method == "tools/call",
        };
        {
            let mut state = self.united.state();
            // Two of them may have come at the same time.
            if state.in_flight.contains_key(id) {
                return Err(in_flight_already());
            }
            state.in_flight.insert(id.clone(), request);
        }
        member.relay.receive(message).await
    }

    /// Returns the exchange that does a job of the session itself and answers with what it makes.
    fn work(
        self: &Arc<Self>,
        request: Asked<'_>,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        self.work_until(request, CancellationToken::new(), job)
    }

    fn work_until(
        self: &Arc<Self>,
        request: Asked<'_>,
        cancel: CancellationToken,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        let mut working = Working::new(self, request, cancel.clone())?;
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

    /// Passes a notification on to the members that it concerns.
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
                    let state = self.united.state();
                    token.and_then(|token| state.from_members.get(&token).cloned())
                };
                if let Some(FromMember {
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
                        // One that cannot be told must not keep the others from being told.
                        if let Err(error) = member.relay.receive(message).await {
                            let name = member.name();
                            tracing::debug!(
                                upstream = %name,
                                "a notification did not reach upstream {name}: {}",
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

    /// Takes a request of the client back.
    async fn cancel(self: &Arc<Self>, id: &RequestId, message: Message) {
        let request = self.united.state().in_flight.get(id).cloned();
        match request {
            Some(InFlight::Here(cancel)) => cancel.cancel(),
            Some(InFlight::Member { number, .. }) => {
                let Some(member) = self.member_by_number(number) else {
                    return;
                };
                if let Err(error) = member.relay.receive(message).await {
                    tracing::debug!("a cancellation was not passed on: {}", error.message);
                }
            }
            None => {
                // It may have been made while there was one upstream only.
                for member in self.all_members() {
                    let cancelled = member.relay.receive(message.clone()).await;
                    if let Err(error) = cancelled {
                        tracing::debug!("a cancellation was not passed on: {}", error.message);
                    }
                }
            }
        }
    }

    /// Passes an answer of the client on to the member that asked.
    async fn response(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
    ) -> Result<(), RpcError> {
        let Some(id) = envelope.id() else {
            return Ok(());
        };
        let asked = self.united.state().from_members.remove(id);
        let (member, message) = if let Some(asked) = asked {
            let member = self.member_by_number(asked.number);
            (member, message.with_id(&asked.id))
        } else {
            // It may have been asked while there was one upstream only.
            let members = self.all_members();
            let mut asking = members.iter().filter(|member| member.relay.has_asked(id));
            (asking.next().cloned(), message)
        };
        match member {
            Some(member) => member.relay.receive(message).await.map(|_| ()),
            None => Ok(()),
        }
    }

    pub(super) fn member_by_number(&self, number: u64) -> Option<Arc<Member>> {
        let mut members = self.all_members().into_iter();
        members.find(|member| member.number == number)
    }
}

fn is_success(part: &Envelope) -> bool {
    part.kind() == Kind::Success
}

fn in_flight_already() -> RpcError {
    RpcError::new(
        RpcErrorCode::InvalidRequest,
        "a request with this id is in flight already",
    )
}

/// A request of the client.
#[derive(Clone, Copy)]
struct Asked<'a> {
    id: &'a RequestId,
    method: &'a str,
    /// The size of its message, in bytes.
    n_bytes: usize,
}

/// A request of the client that the session itself works on.
struct Working {
    session: Arc<ClientSession>,
    id: RequestId,
    /// The name under which it is counted.
    method: &'static str,
    since: Instant,
    outcome: Outcome,
    /// The relay of an upstream has told of it.
    is_told: bool,
}

impl Working {
    fn new(
        session: &Arc<ClientSession>,
        Asked {
            id,
            method,
            n_bytes,
        }: Asked<'_>,
        cancel: CancellationToken,
    ) -> Result<Self, RpcError> {
        let shared = &session.shared;
        if shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let mut state = session.united.state();
        if state.in_flight.contains_key(id) {
            return Err(in_flight_already());
        }
        if !is_greeting(method) && state.is_full(shared.limits().in_flight_per_session) {
            return Err(shared.session_is_full(&session.caller.origin()));
        }
        let standing = shared.take_place(&session.caller.principal, method, n_bytes)?;
        state.standings.insert(id.clone(), standing);
        state.in_flight.insert(id.clone(), InFlight::Here(cancel));
        drop(state);
        Ok(Self {
            session: Arc::clone(session),
            id: id.clone(),
            method: counted(method),
            since: Instant::now(),
            outcome: Outcome::Cancelled,
            is_told: false,
        })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let shared = &self.session.shared;
        if !self.is_told {
            shared.observe_from(
                &Event::RequestEnded(RequestEnded {
                    method: self.method,
                    upstream: None,
                    tool: None,
                    outcome: self.outcome,
                    took: self.since.elapsed(),
                    // It may have asked upstreams, one after the other or at the same time.
                    with_upstream: None,
                    duration: Duration::ZERO,
                }),
                &self.session.caller.origin(),
            );
        }
        let (listen, standing) = {
            let mut state = self.session.united.state();
            (
                state.listens.remove(&self.id),
                state.standings.remove(&self.id),
            )
        };
        drop(standing);
        if let Some(listen) = listen {
            listen.cancel.cancel();
        }
        self.session.united.forget(&self.id);
    }
}
