//! The end of a call, and its answer to the client.

use std::sync::Arc;

use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamError;

use super::ModernBridge;
use super::answers::{self, Input};
use super::call::{Call, CallEnd, CallWaiter, WaitingClient};
use super::connection::{Connection, connection_lost};
use super::request_state::{Purpose, Ticket};
use super::welcome::Welcome;

impl ModernBridge {
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
            return self.spawn(Arc::clone(self).send_call(number));
        }
        let Some(turn) = self.turn_of(connection, number) else {
            return;
        };
        let _turn = turn.lock().await;
        let call = {
            let mut state = self.state.lock();
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
            self.keep_open(&mut state, &mut call);
            call
        };
        self.finish(&call, ended).await;
    }

    /// Returns the lock for messages about a call, if the call uses this connection.
    pub(super) fn turn_of(
        &self,
        connection: &Connection,
        number: u64,
    ) -> Option<Arc<tokio::sync::Mutex<()>>> {
        let state = self.state.lock();
        let call = state.calls.get(&number)?;
        (call.connection.number == connection.number).then(|| Arc::clone(&call.turn))
    }

    /// Delivers the end of a call to the client. The call is in no table any more.
    pub(super) async fn finish(&self, call: &Call, ended: CallEnd) {
        let Some(client) = call.client() else {
            return;
        };
        let (answer, welcome) = match (ended, call.connection.welcome()) {
            (CallEnd::Answered(answer), Some(welcome)) => (answer, welcome),
            (CallEnd::Answered(_), None) => {
                return self.report_unanswered(&client.id, connection_lost()).await;
            }
            (CallEnd::Failed(error), _) => return self.report_unanswered(&client.id, error).await,
        };
        let elicitations = answers::required_elicitations(&answer).filter(|_| call.takes_input());
        let answer = if let Some(elicitations) = elicitations {
            self.repeat_after(call, client, &elicitations, &welcome)
        } else {
            let answer = answers::as_modern(&answer, &call.method, &welcome);
            answer.with_id(&client.id)
        };
        self.deliver(answer, &client.id).await;
    }

    /// Returns the answer that asks the client for elicitations and for a new call.
    fn repeat_after(
        &self,
        call: &Call,
        client: &WaitingClient,
        elicitations: &[String],
        welcome: &Welcome,
    ) -> Message {
        if !call.connection.hello.has_url_elicitation() {
            return answers::lacks_url_elicitation().to_message(Some(&client.id));
        }
        if call.n_rounds >= self.options.max_rounds {
            return self.too_many_rounds().to_message(Some(&client.id));
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
            method: method::ELICITATION_CREATE,
            params: Some(params),
        });
        answers::input_required(&client.id, inputs, &state, welcome)
    }

    /// Returns the error for a call with too many rounds of input.
    pub(super) fn too_many_rounds(&self) -> RpcError {
        let text = format!(
            "the call asked for input more than {} times",
            self.options.max_rounds
        );
        RpcError::new(RpcErrorCode::LimitReached, text)
    }
}
