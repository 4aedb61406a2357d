//! The retry of a request after the client was asked for input. The answers go to the server, and
//! the parked call continues.

use std::sync::Arc;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_ports::upstream::{SendOutcome, UpstreamError};

use super::asking::{Questions, REPLY_TIMEOUT};
use super::bridge_core::BridgeCore;
use super::call::{Call, CallEnd, CallWaiter, ModernRequest, WaitingClient, take_answers};
use super::calling::Calls;
use super::connection::Connection;
use super::ending::finish;
use super::request_state::{Purpose, StateError, Ticket};

/// The result of a resumed call for the client.
#[derive(Debug)]
enum ResumeOutcome {
    /// None yet, because the call continues. Missing answers are requested again shortly, together
    /// with new questions of the server.
    GoOn,
    /// The call ended while it was parked.
    Over(Box<Call>, CallEnd),
}

/// The pending actions of a resumed call.
#[derive(Debug)]
struct ResumedCall {
    connection: Arc<Connection>,
    number: u64,
    replies: Vec<Message>,
    next: ResumeOutcome,
}

/// The retries of requests, which resume parked calls.
#[derive(Debug)]
pub(super) struct Retries {
    core: Arc<BridgeCore>,
    calls: Arc<Calls>,
    questions: Arc<Questions>,
}

impl Retries {
    /// Returns the retries of these calls.
    pub(super) fn new(core: Arc<BridgeCore>, calls: Arc<Calls>, questions: Arc<Questions>) -> Self {
        Self {
            core,
            calls,
            questions,
        }
    }

    /// Handles the retry of a request with the `requestState` of an earlier answer.
    pub(super) async fn retry(
        self: &Arc<Self>,
        request: ModernRequest<'_>,
        state: &str,
    ) -> Result<SendOutcome, UpstreamError> {
        let ModernRequest {
            method, id, params, ..
        } = request;
        let state = unescape(state).unwrap_or_default();
        let opened = self
            .core
            .seal
            .open(&state, &self.core.principal, method, params);
        let resumed = match opened {
            Ok(Ticket {
                purpose: Purpose::Repeat,
                n_rounds,
                ..
            }) => return self.calls.call(request, n_rounds).await,
            Ok(Ticket {
                purpose: Purpose::Resume(parking),
                ..
            }) => {
                let client = WaitingClient::of(id, &RequestMeta::read(params));
                let responses = params.and_then(|params| edit::member(params, "inputResponses"));
                self.resume(&parking, &client, responses.unwrap_or("{}"))
                    .ok_or(StateError::Unknown)
            }
            Err(error) => Err(error),
        };
        match resumed {
            Ok(resumed) => {
                let retries = Arc::clone(self);
                Ok(self
                    .core
                    .under_way(async move { retries.continue_call(resumed).await }))
            }
            Err(error) => {
                let error = RpcError::new(RpcErrorCode::InvalidParams, error.to_string());
                self.core.deliver_error(id, &error).await;
                Ok(SendOutcome::Delivered)
            }
        }
    }

    /// Attaches a parked call to the request that resumes it. Returns `None` if no call is parked
    /// under this name.
    fn resume(
        &self,
        parking: &str,
        client: &WaitingClient,
        responses: &str,
    ) -> Option<ResumedCall> {
        let mut state = self.core.state.lock();
        let number = state.parked.remove(parking)?;
        let call = state.calls.get_mut(&number)?;
        let connection = Arc::clone(&call.connection);
        let replies = take_answers(&mut call.open, responses);
        let seat = std::mem::replace(&mut call.seat, CallWaiter::Taken(client.clone()));
        state.waiting.insert(client.id.clone(), number);
        let ended = match seat {
            CallWaiter::Parked { ended, .. } => ended,
            CallWaiter::Taken(_) | CallWaiter::Cancelled(_) => None,
        };
        let next = if let Some(ended) = ended {
            let mut call = state.remove_call(number)?;
            self.questions.keep_open(&mut state, &mut call);
            ResumeOutcome::Over(Box::new(call), ended)
        } else {
            if let Some(call) = state.calls.get_mut(&number) {
                self.questions.gather(call);
            }
            ResumeOutcome::GoOn
        };
        Some(ResumedCall {
            connection,
            number,
            replies,
            next,
        })
    }

    async fn continue_call(self: &Arc<Self>, resumed: ResumedCall) {
        let ResumedCall {
            connection,
            number,
            replies,
            next,
        } = resumed;
        let retries = Arc::clone(self);
        self.core
            .tasks
            .spawn(async move { retries.answer_server(&connection, number, replies).await });
        match next {
            ResumeOutcome::GoOn => {}
            ResumeOutcome::Over(call, ended) => finish(&self.core, &call, ended).await,
        }
    }

    /// Sends the answers of the client to the server, which waits for them.
    async fn answer_server(
        &self,
        connection: &Arc<Connection>,
        number: u64,
        replies: Vec<Message>,
    ) {
        for reply in replies {
            let sent = tokio::time::timeout(REPLY_TIMEOUT, connection.send(reply)).await;
            if let Err(error) = sent.unwrap_or(Err(UpstreamError::NoAnswer)) {
                // The server waits for the answer in vain, so the call fails for the client too.
                let ended = CallEnd::Failed(error);
                return self.calls.on_call_end(connection, number, ended).await;
            }
        }
    }
}
