//! The end of a call, and what its client is told of it.

use std::sync::Arc;

use riglm_domain::message::Message;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;

use super::Core;
use super::answers::{self, Input};
use super::call::{Call, Client, Ended, Seat};
use super::connection::{Connection, lost};
use super::request_state::{Purpose, Ticket};
use super::welcome::Welcome;

impl Core {
    /// Takes note that the server will say no more about a call.
    pub(super) async fn ended(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        number: u64,
        ended: Ended,
    ) {
        if let Ended::Failed(error @ UpstreamError::SessionExpired) = &ended
            && self.is_moved(number, connection, error)
        {
            return self.spawn(Arc::clone(self).send_call(number));
        }
        let Some(turn) = self.turn_of(connection, number) else {
            return;
        };
        let _turn = turn.lock().await;
        let call = {
            let mut state = self.state();
            match state.calls.get_mut(&number).map(|call| &mut call.seat) {
                Some(Seat::Parked { ended: end, .. }) => {
                    end.get_or_insert(ended);
                    return;
                }
                None => return,
                Some(Seat::Taken(_) | Seat::Cancelled(_)) => {}
            }
            let Some(mut call) = state.remove_call(number) else {
                return;
            };
            self.keep_open(&mut state, &mut call);
            call
        };
        self.finish(&call, ended).await;
    }

    /// Returns what is to be held while something is said about a call, if it goes over this
    /// connection.
    pub(super) fn turn_of(
        &self,
        connection: &Connection,
        number: u64,
    ) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let state = self.state();
        let call = state.calls.get(&number)?;
        (call.connection.number == connection.number).then(|| Arc::clone(&call.turn))
    }

    /// Tells the client how a call ended that is in no table any more.
    pub(super) async fn finish(&self, call: &Call, ended: Ended) {
        let Some(client) = call.client() else {
            return;
        };
        let (answer, welcome) = match (ended, call.connection.welcome()) {
            (Ended::Answered(answer), Some(welcome)) => (answer, welcome),
            (Ended::Answered(_), None) => return self.unanswered(&client.id, lost()).await,
            (Ended::Failed(error), _) => return self.unanswered(&client.id, error).await,
        };
        let elicitations = answers::required_elicitations(&answer).filter(|_| call.takes_input());
        let answer = if let Some(elicitations) = elicitations {
            self.repeat_after(call, client, &elicitations, &welcome)
        } else {
            let answer = answers::modern(&answer, &call.method, &welcome);
            Some(answer.with_id(&client.id))
        };
        self.deliver(answer, &client.id).await;
    }

    /// Returns the answer that asks the client to visit pages and to make the call again.
    fn repeat_after(
        &self,
        call: &Call,
        client: &Client,
        elicitations: &[String],
        welcome: &Welcome,
    ) -> Option<Message> {
        if !call.connection.hello.has_url_elicitation() {
            return answers::failure(&client.id, &answers::lacks_url_elicitation());
        }
        if call.n_rounds >= self.options.max_rounds {
            return answers::failure(&client.id, &self.too_many_rounds());
        }
        let state = self.seal.close(&Ticket {
            purpose: Purpose::Repeat,
            n_rounds: call.n_rounds + 1,
            expires_ms: self.seal.expiry(self.options.state_ttl),
            principal: self.principal.clone(),
            method: call.method.clone(),
            digest: call.digest.clone(),
        });
        let keys: Vec<String> = (1..=elicitations.len())
            .map(|n| format!("elicitation-{n}"))
            .collect();
        let inputs = keys.iter().zip(elicitations).map(|(key, params)| Input {
            key,
            method: "elicitation/create",
            params: Some(params),
        });
        answers::input_required(&client.id, inputs, &state, welcome)
    }

    /// Returns the error for a call that asks for input too often.
    pub(super) fn too_many_rounds(&self) -> RpcError {
        let text = format!(
            "the call asked for input more than {} times",
            self.options.max_rounds
        );
        RpcError::new(RpcErrorCode::LimitReached, text)
    }
}
