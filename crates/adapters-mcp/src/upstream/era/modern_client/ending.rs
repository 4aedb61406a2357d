//! The answer of an ended call to the client.

use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::method;

use super::answers::{self, Input};
use super::bridge_core::BridgeCore;
use super::call::{Call, CallEnd, WaitingClient};
use super::connection::connection_lost;
use super::request_state::{Purpose, Ticket};
use super::server_tasks::handle;
use super::welcome::Welcome;

/// Delivers the end of a call to the client. The call is in no table any more.
pub(super) async fn finish(core: &BridgeCore, call: &Call, ended: CallEnd) {
    let Some(client) = call.client() else {
        return;
    };
    let (answer, welcome) = match (ended, call.connection.welcome()) {
        (CallEnd::Answered(answer), Some(welcome)) => (answer, welcome),
        (CallEnd::Answered(_), None) => {
            return core.report_unanswered(&client.id, connection_lost()).await;
        }
        (CallEnd::Failed(error), _) => return core.report_unanswered(&client.id, error).await,
    };
    if let Some(handle) = handle(core, call, &answer) {
        return core.deliver(handle, &client.id).await;
    }
    let elicitations = answers::required_elicitations(&answer).filter(|_| call.takes_input());
    let answer = if let Some(elicitations) = elicitations {
        repeat_after(core, call, client, &elicitations, &welcome)
    } else {
        let answer = answers::as_modern(&answer, &call.method, &welcome);
        answer.with_id(&client.id)
    };
    core.deliver(answer, &client.id).await;
}

/// Returns the answer that asks the client for elicitations and for a new call.
fn repeat_after(
    core: &BridgeCore,
    call: &Call,
    client: &WaitingClient,
    elicitations: &[String],
    welcome: &Welcome,
) -> Message {
    if !call.connection.hello.has_url_elicitation() {
        return answers::lacks_url_elicitation().to_message(Some(&client.id));
    }
    if call.n_rounds >= core.options.max_rounds {
        return answers::too_many_rounds(core.options.max_rounds).to_message(Some(&client.id));
    }
    let state = core.seal.close(&Ticket {
        purpose: Purpose::Repeat,
        n_rounds: call.n_rounds + 1,
        expires_ms: core.seal.expiry(core.options.state_ttl),
        principal: core.principal.clone(),
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
    answers::input_required(&client.id, &answers::object_of(inputs), &state, welcome)
}
