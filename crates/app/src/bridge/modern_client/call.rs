//! One request of the client on its way through a legacy server: who waits for its answer, and what
//! the server asked meanwhile.

use std::sync::Arc;

use riglm_domain::message::{Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;
use tokio::time::Instant;

use super::connection::Connection;

/// How many requests of the server one call may hold.
const MAX_OPEN: usize = 32;

/// What the ids of requests begin with that are sent for the client.
const ID_PREFIX: &str = "riglm:m:";

/// Methods whose answers may ask for input.
const TAKES_INPUT: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// Returns whether the answer to this method may ask for input.
pub(super) fn takes_input(method: &str) -> bool {
    TAKES_INPUT.contains(&method)
}

/// Returns the id under which the server knows the call with this number.
pub(super) fn legacy_id(number: u64) -> RequestId {
    RequestId::Text(format!("{ID_PREFIX}{number}").into())
}

/// Returns the number of the call that the server knows under this id.
pub(super) fn number_of(id: &RequestId) -> Option<u64> {
    match id {
        RequestId::Text(text) => text.strip_prefix(ID_PREFIX)?.parse().ok(),
        RequestId::Number(_) => None,
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// The server answered.
    Answered(Message),
    /// There will be no answer.
    Failed(UpstreamError),
}

/// The request of the client that waits for a call.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Its id.
    pub(super) id: RequestId,
    /// The token under which it wants progress.
    pub(super) progress_token: Option<RequestId>,
    /// Whether it wants log messages.
    pub(super) wants_log: bool,
}

impl Client {
    /// Takes what the metadata of a request says.
    pub(super) fn of(id: &RequestId, meta: &RequestMeta<'_>) -> Self {
        Self {
            id: id.clone(),
            progress_token: meta.progress_token.and_then(RequestId::from_json),
            wants_log: meta.log_level.is_some(),
        }
    }
}

/// Who waits for a call.
#[derive(Debug)]
pub(super) enum Seat {
    /// A request of the client.
    Taken(Client),
    /// Nobody until a retry comes: the client was asked for input.
    Parked {
        /// The name of the parking.
        parking: Box<str>,
        /// When it is over.
        until: Instant,
        /// How the call ended meanwhile, if it did.
        ended: Option<Ended>,
    },
    /// Nobody any more; what is to be sent to the server when it has the call.
    Cancelled(Option<Message>),
}

/// How far the message of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The connection is being opened.
    Waiting,
    /// It is being sent.
    Sending,
    /// The server has it.
    Sent,
}

/// A request of the server that waits for its answer.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// Its id, which the server chose.
    pub(super) id: RequestId,
    /// Its method.
    pub(super) method: Box<str>,
    /// Its parameters as JSON text.
    pub(super) params: Option<Box<str>>,
    /// What the client knows it as, once asked.
    pub(super) key: Option<Box<str>>,
}

impl ServerRequest {
    /// Returns the answer that the client gave.
    pub(super) fn answered(&self, result: &str) -> Option<Message> {
        super::answers::success(&self.id, result)
    }

    /// Returns the answer when no client gives one.
    pub(super) fn refused(&self, reason: &str) -> Option<Message> {
        let error = RpcError::new(RpcErrorCode::InvalidRequest, reason);
        super::answers::failure(&self.id, &error)
    }
}

/// A request of the client on its way through a legacy server.
#[derive(Debug)]
pub(super) struct Call {
    /// Its number, different from that of any other of the same link.
    pub(super) number: u64,
    /// The connection that it goes over.
    pub(super) connection: Arc<Connection>,
    /// Its method.
    pub(super) method: Box<str>,
    /// What is sent to the server.
    pub(super) message: Message,
    /// The token of the progress that the server reports.
    pub(super) progress_token: Option<RequestId>,
    /// Who waits for it.
    pub(super) seat: Seat,
    /// How far its message is.
    pub(super) progress: Progress,
    /// Whether it was sent once before, over a connection that did not take it.
    pub(super) was_resent: bool,
    /// What the server asked, oldest first.
    pub(super) open: Vec<ServerRequest>,
    /// Whether it is being waited for more questions of the server before the client is asked.
    pub(super) is_gathering: bool,
    /// How often the client was asked for input.
    pub(super) n_rounds: u32,
    /// How many questions were named.
    pub(super) n_keys: u32,
    /// What makes the request what it is.
    pub(super) digest: Box<str>,
    /// Held while something is said to the client about the call, which keeps that in order.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Call {
    /// Returns whether the client can be asked for input in its place.
    pub(super) fn takes_input(&self) -> bool {
        takes_input(&self.method)
    }

    /// Returns the request of the client that waits.
    pub(super) fn client(&self) -> Option<&Client> {
        match &self.seat {
            Seat::Taken(client) => Some(client),
            Seat::Parked { .. } | Seat::Cancelled(_) => None,
        }
    }

    /// Returns whether a question of the server may be put to its client, now or with the next
    /// retry.
    pub(super) fn can_ask(&self) -> bool {
        // Before the server has the call, the question is not about it.
        self.can_ask_if_named() && self.progress == Progress::Sent
    }

    /// Returns the same for a question that came on behalf of this very call: the server may have
    /// had it before its sending was over.
    pub(super) fn can_ask_if_named(&self) -> bool {
        let is_waited_for = match &self.seat {
            Seat::Taken(_) => true,
            Seat::Parked { ended, .. } => ended.is_none(),
            Seat::Cancelled(_) => false,
        };
        self.takes_input() && is_waited_for && self.open.len() < MAX_OPEN
    }

    /// Names the questions that have no name so far.
    pub(super) fn name_questions(&mut self) {
        for request in self.open.iter_mut().filter(|open| open.key.is_none()) {
            self.n_keys += 1;
            let (kind, _) = request
                .method
                .split_once('/')
                .unwrap_or((&request.method, ""));
            request.key = Some(format!("{kind}-{}", self.n_keys).into());
        }
    }
}
