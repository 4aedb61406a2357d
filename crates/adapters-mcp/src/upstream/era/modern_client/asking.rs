//! The questions of the server during a call. The client gets them as the answer to its request,
//! and the call is parked until the retry.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answers;
use super::bridge_core::BridgeCore;
use super::call::{Call, CallWaiter, ServerRequest, legacy_id};
use super::connection::Connection;
use super::request_state::{Purpose, Ticket};
use super::server_tasks::{TaskStage, task_cancellation};
use super::state::BridgeState;
use crate::upstream::era::tasks::related_task;

/// The time for which a question waits for more questions of the same call, so that the client is
/// asked once.
pub(super) const GATHERING: Duration = Duration::from_millis(20);
/// The time for which a question waits for a call that can carry it.
const KEEPING: Duration = Duration::from_secs(30);
/// The timeout for sending an answer to the server.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of parked calls.
const MAX_PARKED: usize = 256;

/// The maximum number of answers to servers that wait to be sent.
const MAX_REPLIES: usize = 64;

/// Takes questions of servers to the client, and refuses them if the client cannot be asked.
#[derive(Debug)]
pub(super) struct Questions {
    core: Arc<BridgeCore>,
    replies: Arc<Semaphore>,
}

impl Questions {
    /// Returns a taker without questions.
    pub(super) fn new(core: Arc<BridgeCore>) -> Self {
        Self {
            core,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        }
    }

    /// Receives a request of the server. Answers it, or attaches it to a call that carries it to
    /// the client.
    pub(super) async fn receive(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        message: &Message,
        envelope: &Envelope,
        related: Option<&RequestId>,
    ) {
        let Some((method, id)) = envelope.as_request() else {
            return;
        };
        if method == method::PING {
            return self.reply(connection, Message::success(id, "{}")).await;
        }
        if connection.hello.answers(method) != Some(true) {
            let error = RpcError::new(
                RpcErrorCode::MethodNotFound,
                format!("the client does not support {method}"),
            );
            return self.reply(connection, error.to_message(Some(id))).await;
        }
        let request = ServerRequest {
            id: id.clone(),
            method: method.into(),
            params: message.params(envelope).map(Into::into),
            key: None,
        };
        if let Some(refused) = self.place(connection, request, related) {
            let error = RpcError::new(RpcErrorCode::LimitReached, "too many requests are open");
            self.reply(connection, error.to_message(Some(&refused.id)))
                .await;
        }
    }

    /// Attaches a question to a call, or keeps it for the next call. Returns it if there is no
    /// capacity.
    fn place(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        request: ServerRequest,
        related: Option<&RequestId>,
    ) -> Option<ServerRequest> {
        let mut state = self.core.state.lock();
        let task = request.params.as_deref().and_then(related_task);
        if let Some(task) = task.as_deref().and_then(|task| state.tasks.get_mut(task))
            && task.connection.number == connection.number
        {
            return task.ask(request);
        }
        let call = task
            .and_then(|task| state.call_of_task(connection.number, &task))
            .or_else(|| state.call_to_ask(connection.number, related));
        let Some(call) = call.and_then(|number| state.calls.get_mut(&number)) else {
            self.core.changed.notify_one();
            return state.keep(connection, request, Instant::now() + KEEPING);
        };
        call.open.push(request);
        self.gather(call);
        None
    }

    /// Attaches kept questions to a call.
    pub(super) fn adopt_kept(self: &Arc<Self>, state: &mut BridgeState, number: u64) {
        let Some(call) = state.calls.get_mut(&number) else {
            return;
        };
        let mut at = 0;
        while at < state.kept.len() && call.can_ask() {
            if state.kept[at].connection.number == call.connection.number {
                call.open.push(state.kept.remove(at).request);
            } else {
                at += 1;
            }
        }
        self.gather(call);
    }

    /// Keeps the open questions of an ended call for the next call.
    pub(super) fn keep_open(&self, state: &mut BridgeState, call: &mut Call) {
        let until = Instant::now() + KEEPING;
        let mut refused = Vec::new();
        for mut request in call.open.drain(..) {
            // The next call assigns keys of its own.
            request.key = None;
            refused.extend(state.keep(&call.connection, request, until));
        }
        self.core.changed.notify_one();
        self.refuse_open(
            &call.connection,
            &refused,
            "the call that it belongs to has ended",
        );
    }

    /// Asks the client the open questions of a call after `GATHERING`.
    pub(super) fn gather(self: &Arc<Self>, call: &mut Call) {
        if call.is_gathering || call.open.is_empty() || call.client().is_none() {
            return;
        }
        call.is_gathering = true;
        let questions = Arc::clone(self);
        let (connection, number) = (Arc::clone(&call.connection), call.number);
        self.core.tasks.spawn(async move {
            tokio::time::sleep(GATHERING).await;
            questions.ask_client(&connection, number).await;
        });
    }

    async fn ask_client(self: &Arc<Self>, connection: &Arc<Connection>, number: u64) {
        let Some(turn) = self.core.turn_of(connection, number) else {
            return;
        };
        let _turn = turn.lock().await;
        let (id, asked) = {
            let mut state = self.core.state.lock();
            let Some(call) = state.calls.get_mut(&number) else {
                return;
            };
            call.is_gathering = false;
            let Some(client) = call.client().filter(|_| !call.open.is_empty()) else {
                return;
            };
            let id = client.id.clone();
            (id, self.park(&mut state, number))
        };
        if let Some(asked) = asked {
            return self.core.deliver(asked, &id).await;
        }
        let reason = "no translation to this protocol revision";
        self.core
            .report_unanswered(&id, UpstreamError::Garbled { reason })
            .await;
    }

    /// Parks a call for which a request of the client waits. Returns the answer to that request:
    /// the questions, or an error. After an error the call is ended.
    pub(super) fn park(&self, state: &mut BridgeState, number: u64) -> Option<Message> {
        let n_parked = state.parked.len();
        let call = state.calls.get_mut(&number)?;
        let id = call.client()?.id.clone();
        let welcome = call.connection.welcome()?;
        let parking = match self.parking_for(call, n_parked) {
            Ok(parking) => parking,
            Err(error) => {
                let call = state.remove_call(number)?;
                self.give_up(call, "the call was aborted");
                return Some(error.to_message(Some(&id)));
            }
        };
        call.n_rounds += 1;
        call.name_questions();
        let ttl = self.core.options.state_ttl;
        let sealed = self.core.seal.close(&Ticket {
            purpose: Purpose::Resume(parking.clone()),
            n_rounds: call.n_rounds,
            expires_ms: self.core.seal.expiry(ttl),
            principal: self.core.principal.clone(),
            method: call.method.clone(),
            digest: call.digest.clone(),
        });
        let inputs = answers::input_requests(&call.open);
        let answer = answers::input_required(&id, &inputs, &sealed, &welcome);
        call.seat = CallWaiter::Parked {
            parking: parking.clone(),
            until: Instant::now() + ttl,
            ended: None,
        };
        state.waiting.remove(&id);
        state.parked.insert(parking, number);
        self.core.changed.notify_one();
        Some(answer)
    }

    /// Returns a random name for a parked call, or the reason why it cannot be parked.
    fn parking_for(&self, call: &Call, n_parked: usize) -> Result<Box<str>, RpcError> {
        if call.n_rounds >= self.core.options.max_rounds {
            return Err(answers::too_many_rounds(self.core.options.max_rounds));
        }
        if n_parked >= MAX_PARKED {
            let text = "too many calls wait for input; try again when some have ended";
            return Err(RpcError::new(RpcErrorCode::LimitReached, text));
        }
        // All links share the key of the seal, so the name must be unique across links.
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| {
            tracing::error!("failed to get random numbers from the operating system: {error}");
            let text = "failed to suspend the call until the client gives its input";
            RpcError::new(RpcErrorCode::LimitReached, text)
        })?;
        Ok(format!("{:032x}", u128::from_be_bytes(random)).into())
    }

    /// Ends a call at the server: cancels it and refuses its questions.
    pub(super) fn give_up(&self, call: Call, reason: &'static str) {
        let is_over = matches!(&call.seat, CallWaiter::Parked { ended: Some(_), .. });
        let cancellation = answers::cancellation(&legacy_id(call.number), None);
        let refusals = call.open.iter().map(|open| open.refusal_for(reason));
        // A call that ended at the server has nothing to cancel.
        let cancellation = (!is_over).then_some(cancellation);
        let task = match &call.task {
            TaskStage::Running(task) if !is_over => Some(task_cancellation(task, call.number)),
            _ => None,
        };
        let messages = cancellation.into_iter().chain(task).chain(refusals);
        let messages = messages.collect();
        self.core
            .tasks
            .spawn(async move { tell_server(call.connection, messages).await });
    }

    /// Refuses questions of the server.
    pub(super) fn refuse_open(
        &self,
        connection: &Arc<Connection>,
        requests: &[ServerRequest],
        reason: &'static str,
    ) {
        if requests.is_empty() {
            return;
        }
        let refusals = requests.iter().map(|request| request.refusal_for(reason));
        let refusals = refusals.collect();
        let connection = Arc::clone(connection);
        self.core
            .tasks
            .spawn(async move { tell_server(connection, refusals).await });
    }

    /// Answers a request of the server on a separate task, so that other messages of the server are
    /// not delayed. Waits if `MAX_REPLIES` answers are pending.
    async fn reply(&self, connection: &Arc<Connection>, answer: Message) {
        let Ok(permit) = Arc::clone(&self.replies).acquire_owned().await else {
            return;
        };
        let connection = Arc::clone(connection);
        self.core.tasks.spawn(async move {
            tell_server(connection, vec![answer]).await;
            drop(permit);
        });
    }
}

/// Sends messages to the server in order. They are sent even if the caller is dropped.
pub(super) async fn tell_server(connection: Arc<Connection>, messages: Vec<Message>) {
    let told = tokio::spawn(async move {
        for message in messages {
            let sent = tokio::time::timeout(REPLY_TIMEOUT, connection.send(message)).await;
            if let Ok(Err(error)) = sent {
                tracing::debug!("failed to send a message to the server: {error}");
                return;
            }
        }
    });
    if told.await.is_err() {
        tracing::error!("panic while sending messages to the server");
    }
}
