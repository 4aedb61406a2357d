//! One request of the client to a legacy server, with its waiter and the open questions of the
//! server.

use std::sync::Arc;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;
use tokio::time::Instant;

use super::connection::Connection;
use super::server_tasks::TaskStage;

/// The maximum number of open questions of one call or task.
pub(super) const MAX_OPEN: usize = 32;

/// The methods whose answers may ask for input.
const TAKES_INPUT: [&str; 3] = [
    method::TOOLS_CALL,
    method::PROMPTS_GET,
    method::RESOURCES_READ,
];

pub(super) fn takes_input(method: &str) -> bool {
    TAKES_INPUT.contains(&method)
}

/// Returns the id at the server of the call with this number.
pub(super) fn legacy_id(number: u64) -> RequestId {
    InternalRequest::BridgedCall.id(number)
}

/// Returns the number of the call with this id at the server.
pub(super) fn number_of(id: &RequestId) -> Option<u64> {
    InternalRequest::BridgedCall.number_of(id)
}

/// A request of the client, with the parts that the bridge reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModernRequest<'a> {
    pub(super) message: &'a Message,
    pub(super) method: &'a str,
    pub(super) id: &'a RequestId,
    /// The parameters, as JSON text.
    pub(super) params: Option<&'a str>,
}

impl<'a> ModernRequest<'a> {
    /// Reads a message. Returns `None` if it is no request.
    pub(super) fn of(message: &'a Message, envelope: &'a Envelope) -> Option<Self> {
        let (method, id) = envelope.as_request()?;
        Some(Self {
            message,
            method,
            id,
            params: message.params(envelope),
        })
    }
}

#[derive(Clone, Debug)]
pub(super) enum CallEnd {
    Answered(Message),
    /// The reason of a missing answer.
    Failed(UpstreamError),
}

/// The request of the client that waits for a call.
#[derive(Clone, Debug)]
pub(super) struct WaitingClient {
    pub(super) id: RequestId,
    pub(super) progress_token: Option<RequestId>,
    pub(super) wants_log: bool,
}

impl WaitingClient {
    /// Reads the metadata of a request.
    pub(super) fn of(id: &RequestId, meta: &RequestMeta<'_>) -> Self {
        Self {
            id: id.clone(),
            progress_token: meta.progress_token.and_then(RequestId::from_json),
            wants_log: meta.log_level.is_some(),
        }
    }
}

#[derive(Debug)]
pub(super) enum CallWaiter {
    Taken(WaitingClient),
    /// None until a retry, because the client was asked for input.
    Parked {
        /// The name of the parked call.
        parking: Box<str>,
        /// The time when it expires.
        until: Instant,
        /// The end of the call, if it ended in the meantime.
        ended: Option<CallEnd>,
    },
    /// None any more. The message is sent to the server once it has the call.
    Cancelled(Option<Message>),
}

/// The progress of sending a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendProgress {
    Waiting,
    Sending,
    /// The server has received the message.
    Sent,
}

/// A request of the server that waits for its answer.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// The id that the server assigned.
    pub(super) id: RequestId,
    pub(super) method: Box<str>,
    /// The parameters, as JSON text.
    pub(super) params: Option<Box<str>>,
    /// The key under which the client was asked.
    pub(super) key: Option<Box<str>>,
}

impl ServerRequest {
    pub(super) fn answer_with(&self, result: &str) -> Message {
        Message::success(&self.id, result)
    }

    /// Returns the answer without a client: an error with this reason.
    pub(super) fn refusal_for(&self, reason: &str) -> Message {
        let error = RpcError::new(RpcErrorCode::InvalidRequest, reason);
        error.to_message(Some(&self.id))
    }
}

/// A request of the client to a legacy server.
#[derive(Debug)]
pub(super) struct Call {
    /// A number that is unique in the link.
    pub(super) number: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) method: Box<str>,
    pub(super) message: Message,
    /// The progress token at the server.
    pub(super) progress_token: Option<RequestId>,
    /// The waiter.
    pub(super) seat: CallWaiter,
    pub(super) progress: SendProgress,
    /// Its task at the server.
    pub(super) task: TaskStage,
    /// Whether it was sent again after a connection did not accept it.
    pub(super) was_resent: bool,
    /// The open questions of the server, oldest first.
    pub(super) open: Vec<ServerRequest>,
    /// Whether the bridge waits for more questions before it asks the client.
    pub(super) is_gathering: bool,
    /// The number of rounds in which the client was asked for input.
    pub(super) n_rounds: u32,
    /// The number of keys that were assigned to questions.
    pub(super) n_keys: u32,
    /// The digest that identifies the request in a retry.
    pub(super) digest: Box<str>,
    // Locked while a message about the call is delivered, so that messages stay in order.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Call {
    /// Returns whether the client can be asked for input in its answer.
    pub(super) fn takes_input(&self) -> bool {
        takes_input(&self.method)
    }

    /// Returns the request of the client that waits.
    pub(super) fn client(&self) -> Option<&WaitingClient> {
        match &self.seat {
            CallWaiter::Taken(client) => Some(client),
            CallWaiter::Parked { .. } | CallWaiter::Cancelled(_) => None,
        }
    }

    /// Returns whether a question of the server may be attached, for now or for the next retry.
    pub(super) fn can_ask(&self) -> bool {
        // A question that arrives before the server has the call belongs to another call.
        self.can_ask_if_named() && self.progress == SendProgress::Sent
    }

    /// Returns whether a question that names this call may be attached. The server may have
    /// received the call before the sending was complete.
    pub(super) fn can_ask_if_named(&self) -> bool {
        let is_waited_for = match &self.seat {
            CallWaiter::Taken(_) => true,
            CallWaiter::Parked { ended, .. } => ended.is_none(),
            CallWaiter::Cancelled(_) => false,
        };
        self.takes_input() && is_waited_for && self.open.len() < MAX_OPEN
    }

    /// Assigns keys to the questions without one.
    pub(super) fn name_questions(&mut self) {
        name_questions(&mut self.open, &mut self.n_keys);
    }

    pub(super) fn requests_task(&self) -> bool {
        matches!(self.task, TaskStage::Requested | TaskStage::Assumed)
    }

    /// Returns the parameters of the message for the server.
    pub(super) fn params(&self) -> Option<&str> {
        self.message.params(self.message.single()?)
    }
}

/// Assigns keys to the questions without one. `n_keys` is the number of keys assigned before.
pub(super) fn name_questions(open: &mut [ServerRequest], n_keys: &mut u32) {
    for request in open.iter_mut().filter(|open| open.key.is_none()) {
        *n_keys += 1;
        let (kind, _) = request
            .method
            .split_once('/')
            .unwrap_or((&request.method, ""));
        request.key = Some(format!("{kind}-{n_keys}").into());
    }
}

/// Removes the questions that the client answers in `responses`, the JSON text of `inputResponses`.
/// Returns the answers for the server.
pub(super) fn take_answers(open: &mut Vec<ServerRequest>, responses: &str) -> Vec<Message> {
    let mut answers = Vec::new();
    open.retain(|request| {
        let key = request.key.as_deref();
        let response = key.and_then(|key| edit::member(responses, key));
        let Some(response) = response.filter(|text| text.starts_with('{')) else {
            return true;
        };
        answers.push(request.answer_with(response));
        false
    });
    answers
}
