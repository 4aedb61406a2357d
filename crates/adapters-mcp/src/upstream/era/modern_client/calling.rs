//! The path of a request to the legacy server.

use std::borrow::Cow;
use std::sync::Arc;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION, RequestMeta,
};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{BoxedWork, SendOutcome, UpstreamError};

use super::answers;
use super::asking::{Questions, tell_server};
use super::bridge_core::BridgeCore;
use super::call::{
    Call, CallEnd, CallWaiter, ModernRequest, SendProgress, WaitingClient, legacy_id, takes_input,
};
use super::connection::Connection;
use super::ending::finish;
use super::opening::Connections;
use super::server_tasks::{TaskStage, cancel_late_task, task_cancellation, with_task};
use super::state::BridgeState;
use super::welcome::{Hello, Welcome};

/// The entries of `_meta` with the description of the client.
const OF_THE_CLIENT: [&str; 4] = [
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
];
/// The maximum number of calls of a client.
const MAX_CALLS: usize = 4_096;

/// The calls of the client, from the request to the answer.
#[derive(Debug)]
pub(super) struct Calls {
    core: Arc<BridgeCore>,
    connections: Arc<Connections>,
    questions: Arc<Questions>,
}

impl Calls {
    /// Returns calls that use the connections and questions of the same link.
    pub(super) fn new(
        core: Arc<BridgeCore>,
        connections: Arc<Connections>,
        questions: Arc<Questions>,
    ) -> Self {
        Self {
            core,
            connections,
            questions,
        }
    }

    /// Sends a request of the client to the server.
    pub(super) async fn call(
        self: &Arc<Self>,
        request: ModernRequest<'_>,
        n_rounds: u32,
    ) -> Result<SendOutcome, UpstreamError> {
        let ModernRequest {
            message,
            method,
            id,
            params,
        } = request;
        let meta = RequestMeta::read(params);
        let hello = Arc::new(Hello::of(&meta));
        let client = WaitingClient::of(id, &meta);
        let is_full = self.core.state.lock().calls.len() >= MAX_CALLS;
        if is_full {
            let text = "too many requests are in flight; try again when some have ended";
            self.core
                .deliver_error(id, &RpcError::new(RpcErrorCode::LimitReached, text))
                .await;
            return Ok(SendOutcome::Delivered);
        }
        let number = {
            let mut state = self.core.state.lock();
            let connection = self.connections.connection_for(&mut state, &hello)?;
            connection.note_request(method);
            let number = state.next_number();
            let mut message = as_legacy(message, params, method);
            let mut task = TaskStage::None;
            if method == method::TOOLS_CALL && state.task_tools.has(params.unwrap_or("{}")) {
                message = message.with_each_params(|params| Some(with_task(params)));
                task = TaskStage::Assumed;
            }
            let (message, token) = with_own_token(&state, &connection, number, message, &client);
            state.waiting.insert(id.clone(), number);
            let call = Call {
                number,
                connection,
                method: method.into(),
                message: message.with_id(&legacy_id(number)),
                progress_token: token,
                seat: CallWaiter::Taken(client),
                progress: SendProgress::Waiting,
                task,
                was_resent: false,
                open: Vec::new(),
                is_gathering: false,
                n_rounds,
                n_keys: 0,
                digest: if takes_input(method) {
                    self.core.seal.digest(params)
                } else {
                    Box::default()
                },
                turn: Arc::default(),
            };
            state.calls.insert(number, call);
            number
        };
        Ok(self.core.under_way(Arc::clone(self).send_call(number)))
    }

    /// Sends the message of a call once its connection is open. Sends it again over another
    /// connection if the first one did not accept it.
    pub(super) fn send_call(self: Arc<Self>, number: u64) -> BoxedWork {
        // Boxed, because the end of a call may send it again recursively.
        Box::pin(async move {
            while let Some(connection) = self.connection_of(number) {
                // If opening fails, the opening task answers the waiting calls.
                let Ok(welcome) = connection.wait_open().await else {
                    return;
                };
                let Some(message) = self.begin_sending(number) else {
                    return;
                };
                if self.is_discovery(number) {
                    return self.discover(number, &welcome).await;
                }
                let Err(error) = connection.send(message).await else {
                    return self.note_sent(number, &connection).await;
                };
                if !self.is_moved(number, &connection, &error) {
                    let ended = CallEnd::Failed(error);
                    return self.on_call_end(&connection, number, ended).await;
                }
            }
        })
    }

    fn connection_of(&self, number: u64) -> Option<Arc<Connection>> {
        let state = self.core.state.lock();
        let call = state.calls.get(&number)?;
        Some(Arc::clone(&call.connection))
    }

    fn begin_sending(&self, number: u64) -> Option<Message> {
        let mut state = self.core.state.lock();
        let call = state.calls.get_mut(&number)?;
        call.progress = SendProgress::Sending;
        Some(call.message.clone())
    }

    fn is_discovery(&self, number: u64) -> bool {
        let state = self.core.state.lock();
        let call = state.calls.get(&number);
        call.is_some_and(|call| &*call.method == method::SERVER_DISCOVER)
    }

    async fn discover(&self, number: u64, welcome: &Welcome) {
        let Some(call) = self.core.state.lock().remove_call(number) else {
            return;
        };
        if let Some(client) = call.client() {
            self.core
                .deliver(answers::discover_answer(&client.id, welcome), &client.id)
                .await;
        }
    }

    /// Registers that the server has a call, and handles cancellations and questions that arrived
    /// before.
    async fn note_sent(self: &Arc<Self>, number: u64, connection: &Arc<Connection>) {
        let cancellation = {
            let mut state = self.core.state.lock();
            let Some(call) = state.calls.get_mut(&number) else {
                return;
            };
            call.progress = SendProgress::Sent;
            if let CallWaiter::Cancelled(message) = &mut call.seat {
                let message = message.take();
                state.remove_call(number);
                message
            } else {
                self.questions.adopt_kept(&mut state, number);
                None
            }
        };
        if let Some(message) = cancellation
            && let Err(error) = connection.send(message).await
        {
            tracing::debug!("failed to forward a cancellation: {error}");
        }
    }

    /// Moves a call once to a new connection if its connection did not accept it, or if the server
    /// forgot the session. Returns whether it was moved.
    pub(super) fn is_moved(
        self: &Arc<Self>,
        number: u64,
        old: &Arc<Connection>,
        error: &UpstreamError,
    ) -> bool {
        if !matches!(
            error,
            UpstreamError::SessionExpired | UpstreamError::Lost { .. }
        ) {
            return false;
        }
        let mut state = self.core.state.lock();
        self.connections.retire(&mut state, old);
        let is_movable = state.calls.get(&number).is_some_and(|call| {
            let is_here = call.connection.number == old.number;
            is_here && !call.was_resent && call.client().is_some()
        });
        if !is_movable {
            return false;
        }
        let Ok(new) = self.connections.connection_for(&mut state, &old.hello) else {
            return false;
        };
        if let Some(call) = state.calls.get_mut(&number) {
            call.connection = new;
            call.was_resent = true;
            call.progress = SendProgress::Waiting;
            call.open.clear();
        }
        true
    }

    /// Registers the end of a call at the server.
    pub(super) async fn on_call_end(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        number: u64,
        ended: CallEnd,
    ) {
        if let CallEnd::Failed(error @ UpstreamError::SessionExpired) = &ended
            && self.is_moved(number, connection, error)
        {
            return self.core.tasks.spawn(Arc::clone(self).send_call(number));
        }
        let Some(turn) = self.core.turn_of(connection, number) else {
            if let CallEnd::Answered(answer) = &ended {
                cancel_late_task(&self.core, connection, answer);
            }
            return;
        };
        let _turn = turn.lock().await;
        if let CallEnd::Answered(answer) = &ended
            && let Some(number) = self.continue_as_task(number, answer)
        {
            return self.core.tasks.spawn(Arc::clone(self).send_call(number));
        }
        let call = {
            let mut state = self.core.state.lock();
            match state.calls.get_mut(&number).map(|call| &mut call.seat) {
                Some(CallWaiter::Parked { ended: end, .. }) => {
                    end.get_or_insert(ended);
                    return;
                }
                None => return,
                Some(CallWaiter::Taken(_) | CallWaiter::Cancelled(_)) => {}
            }
            let Some(mut call) = state.remove_call(number) else {
                return;
            };
            self.questions.keep_open(&mut state, &mut call);
            call
        };
        if let CallEnd::Answered(answer) = &ended
            && call.client().is_none()
        {
            cancel_late_task(&self.core, connection, answer);
        }
        finish(&self.core, &call, ended).await;
    }

    /// Continues a call for which the server requires, or has created, a task. Returns the new number
    /// under which the call must be sent.
    fn continue_as_task(self: &Arc<Self>, number: u64, answer: &Message) -> Option<u64> {
        let mut state = self.core.state.lock();
        let number = state.continue_as_task(number, answer)?;
        if let Some(call) = state.calls.get_mut(&number) {
            self.questions.gather(call);
        }
        Some(number)
    }

    /// Cancels a request of the client, as `message` says.
    pub(super) async fn cancel(&self, id: &RequestId, message: &Message, envelope: &Envelope) {
        let cancelled = {
            let mut state = self.core.state.lock();
            let Some(number) = state.waiting.remove(id) else {
                return;
            };
            let cancellation = answers::cancellation(&legacy_id(number), Some((message, envelope)));
            let Some(call) = state.calls.get_mut(&number) else {
                return;
            };
            let open = std::mem::take(&mut call.open);
            let connection = Arc::clone(&call.connection);
            let task = match &call.task {
                TaskStage::Running(task) => Some(task_cancellation(task, number)),
                _ => None,
            };
            // The server must not get the cancellation before the request, so `sent` sends it
            // later.
            let cancellation = if call.progress == SendProgress::Sending {
                call.seat = CallWaiter::Cancelled(Some(cancellation));
                None
            } else {
                let was_sent = call.progress == SendProgress::Sent;
                state.remove_call(number);
                was_sent.then_some(cancellation)
            };
            (connection, cancellation, task, open)
        };
        let (connection, cancellation, task, open) = cancelled;
        let refusals = open
            .iter()
            .map(|request| request.refusal_for("the request that this belongs to was cancelled"));
        let messages: Vec<Message> = cancellation
            .into_iter()
            .chain(task)
            .chain(refusals)
            .collect();
        tell_server(connection, messages).await;
    }
}

/// Removes the members of a request that legacy revisions do not have: the description of the
/// client, which the handshake contained, and the members of a retry. A server of both eras would
/// take a request that names its revision for a modern one.
fn as_legacy(message: &Message, params: Option<&str>, method: &str) -> Message {
    let Some(params) = params else {
        return message.clone();
    };
    let said = OF_THE_CLIENT.iter();
    let said = said.filter(|key| edit::meta(params, key).is_some());
    let mut legacy = said.fold(Cow::Borrowed(params), |params, key| {
        Cow::Owned(edit::without_meta(&params, key))
    });
    if takes_input(method) && has_answers(params) {
        let params = edit::without_member(&legacy, "inputResponses");
        legacy = Cow::Owned(edit::without_member(&params, "requestState"));
    }
    match legacy {
        Cow::Borrowed(_) => message.clone(),
        Cow::Owned(params) => message.with_params(&params),
    }
}

fn has_answers(params: &str) -> bool {
    ["inputResponses", "requestState"]
        .iter()
        .any(|key| edit::member(params, key).is_some())
}

/// Returns a request and its progress token: the token of the client, or a new one if a parked call
/// still reports under the same token.
fn with_own_token(
    state: &BridgeState,
    connection: &Connection,
    number: u64,
    message: Message,
    client: &WaitingClient,
) -> (Message, Option<RequestId>) {
    let Some(token) = &client.progress_token else {
        return (message, None);
    };
    if state.call_with_token(connection.number, token).is_none() {
        return (message, Some(token.clone()));
    }
    let own = InternalRequest::BridgedProgress.id(number);
    let params = message
        .single()
        .and_then(|envelope| message.params(envelope))
        .map(|params| edit::with_meta(params, &[(PROGRESS_TOKEN, &own.to_json())]));
    match params {
        Some(params) => (message.with_params(&params), Some(own)),
        None => (message, None),
    }
}
