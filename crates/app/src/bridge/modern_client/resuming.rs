//! The retry of a request whose client was asked for input: its answers go to the server, and the
//! call that waited goes on.

use std::sync::Arc;

use riglm_domain::edit;
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::scan::unescaped;
use riglm_ports::upstream::{Sent, UpstreamError};

use super::Core;
use super::asking::REPLY_TIMEOUT;
use super::call::{Call, Client, Ended, Seat};
use super::connection::Connection;
use super::request_state::{Purpose, StateError, Ticket};

/// What is said to the client when its call is resumed.
#[derive(Debug)]
enum Next {
    /// Nothing now: the call goes on. What is missing is asked for again a moment later, together
    /// with what the server asked meanwhile.
    GoOn,
    /// The call ended while it was parked.
    Over(Box<Call>, Ended),
}

/// What a resumed call owes.
#[derive(Debug)]
struct Resumed {
    connection: Arc<Connection>,
    number: u64,
    replies: Vec<Message>,
    next: Next,
}

impl Core {
    /// Takes the retry of a request.
    pub(super) async fn retry(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
        (method, id): (&str, &RequestId),
        state: &str,
    ) -> Result<Sent, UpstreamError> {
        let params = message.params(envelope);
        let state = unescaped(state).unwrap_or_default();
        let opened = self.seal.open(&state, &self.principal, method, params);
        let resumed = match opened {
            Ok(Ticket {
                purpose: Purpose::Repeat,
                n_rounds,
                ..
            }) => return self.call(message, envelope, (method, id), n_rounds).await,
            Ok(Ticket {
                purpose: Purpose::Resume(parking),
                ..
            }) => {
                let client = Client::of(id, &RequestMeta::read(params));
                let responses = params.and_then(|params| edit::member(params, "inputResponses"));
                self.resume(&parking, &client, responses.unwrap_or("{}"))
                    .ok_or(StateError::Unknown)
            }
            Err(error) => Err(error),
        };
        match resumed {
            Ok(resumed) => {
                let core = Arc::clone(self);
                Ok(self.under_way(async move { core.go_on(resumed).await }))
            }
            Err(error) => {
                let error = RpcError::new(RpcErrorCode::InvalidParams, error.to_string());
                self.deliver_error(id, &error).await;
                Ok(Sent::Delivered)
            }
        }
    }

    /// Gives a parked call to the request that resumes it; `None` if none is parked there.
    fn resume(
        self: &Arc<Self>,
        parking: &str,
        client: &Client,
        responses: &str,
    ) -> Option<Resumed> {
        let mut state = self.state();
        let number = state.parked.remove(parking)?;
        let call = state.calls.get_mut(&number)?;
        let connection = Arc::clone(&call.connection);
        let mut replies = Vec::new();
        call.open.retain(|request| {
            let key = request.key.as_deref();
            let response = key.and_then(|key| edit::member(responses, key));
            let Some(response) = response.filter(|text| text.starts_with('{')) else {
                return true;
            };
            replies.extend(request.answered(response));
            false
        });
        let seat = std::mem::replace(&mut call.seat, Seat::Taken(client.clone()));
        state.waiting.insert(client.id.clone(), number);
        let ended = match seat {
            Seat::Parked { ended, .. } => ended,
            Seat::Taken(_) | Seat::Cancelled(_) => None,
        };
        let next = if let Some(ended) = ended {
            let mut call = state.remove_call(number)?;
            self.keep_open(&mut state, &mut call);
            Next::Over(Box::new(call), ended)
        } else {
            if let Some(call) = state.calls.get_mut(&number) {
                self.gather(call);
            }
            Next::GoOn
        };
        Some(Resumed {
            connection,
            number,
            replies,
            next,
        })
    }

    async fn go_on(self: Arc<Self>, resumed: Resumed) {
        let Resumed {
            connection,
            number,
            replies,
            next,
        } = resumed;
        let core = Arc::clone(&self);
        self.spawn(async move { core.answer_server(&connection, number, replies).await });
        match next {
            Next::GoOn => {}
            Next::Over(call, ended) => self.finish(&call, ended).await,
        }
    }

    /// Hands the answers of the client to the server, which waits for them.
    async fn answer_server(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        number: u64,
        replies: Vec<Message>,
    ) {
        for reply in replies {
            let sent = tokio::time::timeout(REPLY_TIMEOUT, connection.send(reply)).await;
            if let Err(error) = sent.unwrap_or(Err(UpstreamError::NoAnswer)) {
                // The server waits for it in vain, and so would the client.
                let ended = Ended::Failed(error);
                return self.ended(connection, number, ended).await;
            }
        }
    }
}
