//! The way of a message from the client to the members that it is for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use riglm_domain::edit;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::downstream::Route;
use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;

use super::InFlight;
use super::ask::Behalf;
use super::hello::declares;
use super::list_kind::ListKind;
use super::route::Target;
use crate::proxy::member::Member;
use crate::proxy::relay::params::{IdMember, RequestParams, id_member};
use crate::proxy::relay::session_ended;
use crate::proxy::session::ClientSession;
use crate::proxy::shared::stopping;

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
            return Err(RpcError::new(
                RpcErrorCode::InvalidRequest,
                "a request with this id is in flight already",
            ));
        }
        let session = Arc::clone(self);
        let message = message.clone();
        let own = id.clone();
        if let Some(kind) = ListKind::of_method(method) {
            let job = async move { session.list_page(kind, &message, is_modern).await };
            return self.work(id, job).map(Some);
        }
        match method {
            "initialize" => {
                let job = async move { session.initialize(&message).await };
                self.work(id, job).map(Some)
            }
            "server/discover" => {
                let job = async move { session.discover(&message).await };
                self.work(id, job).map(Some)
            }
            "ping" if !is_modern => self
                .work(id, async { Reply::Result("{}".into()) })
                .map(Some),
            "logging/setLevel" => {
                let job = async move { session.set_level(&message, own).await };
                self.work(id, job).map(Some)
            }
            "tasks/list" => {
                let job = async move { session.list_tasks(&message, own).await };
                self.work(id, job).map(Some)
            }
            "subscriptions/listen" => {
                let cancel = CancellationToken::new();
                let job = session.listen(&message, own, cancel.clone());
                self.work_until(id, cancel, job).map(Some)
            }
            _ => match self.target(method, &message) {
                Target::Member(member, message) if member.relay.is_connected() => {
                    self.send_to(&member, id, method, message).await
                }
                Target::Member(member, message) => {
                    // What comes next may be for an upstream that is up, and must not wait.
                    let method = method.to_owned();
                    let behalf = Behalf {
                        request: Some(own),
                        listen: None,
                    };
                    let job =
                        async move { session.ask_owner(&member, &message, &method, behalf).await };
                    self.work(id, job).map(Some)
                }
                Target::Unknown => {
                    let job = async move { session.find_and_send(&message, own).await };
                    self.work(id, job).map(Some)
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
        self.united.state().in_flight.insert(id.clone(), request);
        member.relay.receive(message).await
    }

    /// Returns the exchange that does a job of the session itself and answers with what it makes.
    fn work(
        self: &Arc<Self>,
        id: &RequestId,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        self.work_until(id, CancellationToken::new(), job)
    }

    fn work_until(
        self: &Arc<Self>,
        id: &RequestId,
        cancel: CancellationToken,
        job: impl Future<Output = Reply> + Send + 'static,
    ) -> Result<Exchange, RpcError> {
        let working = Working::new(self, id, cancel.clone())?;
        let session = Arc::clone(self);
        let id = id.clone();
        let run = async move {
            let reply = tokio::select! {
                biased;
                () = cancel.cancelled() => Reply::Nothing,
                () = session.closing.cancelled() => Reply::Error(session_ended()),
                reply = job => reply,
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
                let id_text = id.to_json();
                let text = format!(r#"{{"jsonrpc":"2.0","id":{id_text},"result":{result}}}"#);
                self.answer(id, text).await;
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
                let owner = {
                    let state = self.united.state();
                    let mut all = state.from_members.values();
                    all.find(|request| token.is_some() && request.progress_token == token)
                        .map(|request| request.number)
                };
                if let Some(member) = owner.and_then(|number| self.member_by_number(number)) {
                    member.relay.receive(message).await?;
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
                for member in self.members().iter() {
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
            let members = self.members();
            let mut asking = members.iter().filter(|member| member.relay.has_asked(id));
            (asking.next().cloned(), message)
        };
        match member {
            Some(member) => member.relay.receive(message).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Sets the log level of every upstream that has one.
    async fn set_level(self: &Arc<Self>, message: &Message, id: RequestId) -> Reply {
        let level = Some(message.clone());
        self.caller
            .set_handshake(|handshake| handshake.log_level = level);
        let members = self.members();
        let asked = members
            .iter()
            .filter(|member| {
                let hello = member.relay.hello();
                hello.is_some_and(|hello| declares(&hello, "logging"))
            })
            .map(|member| {
                let behalf = Behalf {
                    request: Some(id.clone()),
                    listen: None,
                };
                self.ask(member, message, behalf)
            });
        let answers = join_all(asked).await;
        let is_success = |answer: &Message| {
            answer
                .single()
                .is_some_and(|part| part.kind() == Kind::Success)
        };
        let (good, bad): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .flatten()
            .partition(|answer| is_success(answer));
        match bad.into_iter().next() {
            // A level that nobody knows is an error; one that somebody took is set.
            Some(error) if good.is_empty() => Reply::Member(error),
            _ => Reply::Result("{}".into()),
        }
    }

    /// Joins the tasks that all upstreams list.
    async fn list_tasks(self: &Arc<Self>, message: &Message, id: RequestId) -> Reply {
        let members = self.members();
        let asked = members.iter().map(|member| async {
            let behalf = Behalf {
                request: Some(id.clone()),
                listen: None,
            };
            let answer = self.ask(member, message, behalf).await.ok()?;
            let result = answer.single().and_then(|part| answer.result(part))?;
            let tasks = edit::member(result, "tasks")?;
            let inner = tasks
                .strip_prefix('[')?
                .strip_suffix(']')?
                .trim()
                .to_owned();
            (!inner.is_empty()).then_some(inner)
        });
        let tasks: Vec<String> = join_all(asked).await.into_iter().flatten().collect();
        Reply::Result(edit::with_member(
            "{}",
            "tasks",
            &format!("[{}]", tasks.join(",")),
        ))
    }

    pub(super) fn member_by_number(&self, number: u64) -> Option<Arc<Member>> {
        let members = self.members();
        members
            .iter()
            .find(|member| member.number == number)
            .cloned()
    }
}

/// A request of the client that the session itself works on.
struct Working {
    session: Arc<ClientSession>,
    id: RequestId,
}

impl Working {
    fn new(
        session: &Arc<ClientSession>,
        id: &RequestId,
        cancel: CancellationToken,
    ) -> Result<Self, RpcError> {
        let shared = &session.shared;
        if shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let mut state = session.united.state();
        if state.in_flight.len() >= shared.limits.in_flight_per_session
            || shared.n_in_flight.load(Ordering::Relaxed) >= shared.limits.in_flight
        {
            return Err(RpcError::new(
                RpcErrorCode::LimitReached,
                "too many requests are in flight; try again when some have ended",
            ));
        }
        state.in_flight.insert(id.clone(), InFlight::Here(cancel));
        shared.n_in_flight.fetch_add(1, Ordering::Relaxed);
        drop(state);
        Ok(Self {
            session: Arc::clone(session),
            id: id.clone(),
        })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let shared = &self.session.shared;
        shared.n_in_flight.fetch_sub(1, Ordering::Relaxed);
        let listen = self.session.united.state().listens.remove(&self.id);
        if let Some(listen) = listen {
            listen.cancel.cancel();
        }
        self.session.united.forget(&self.id);
    }
}
