//! The application of safeguards to a call: it is forwarded or answered locally, and its answer may
//! get additional text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::usage::invocation::Outcome;

use super::Relay;
use super::calls::CallReceived;
use super::completion::{Ending, Response};
use super::params::{RequestParams, is_input_required};
use super::pending::RequestPurpose;
use crate::proxy::search_tool::failure;
use crate::safeguards::{Admission, Guard, GuardedCall, Refusal, Requester};
use crate::tracking::CallTimes;

/// The decision about a received call.
enum CallDecision {
    /// The call is forwarded, with the guard that the safeguards keep for it.
    Goes(Option<Box<Guard>>),
    /// The call ends locally.
    Here(LocalResult),
}

/// The result of a call that is not forwarded.
#[derive(Debug)]
pub(super) struct LocalResult {
    outcome: Outcome,
    /// The JSON text of its result.
    result: String,
}

impl LocalResult {
    fn from_refusal(era: Era, refusal: &Refusal) -> Self {
        Self {
            outcome: Outcome::Refused,
            result: failure(era == Era::Modern, &refusal.text),
        }
    }
}

/// The requester of a call, for the safeguards.
#[derive(Debug)]
struct CallAsker<'a> {
    relay: &'a Relay,
    received: &'a CallReceived,
}

impl Requester for CallAsker<'_> {
    fn client_hash(&self) -> KeyedHash {
        (self.relay.caller).client_hash(&self.relay.shared.recorder)
    }

    fn connection(&self) -> SessionId {
        self.received.session
    }

    fn stated_intent(&self) -> Option<StatedIntent> {
        let received = self.received;
        (self.relay.shared).stated_intent(received.session, received.session_key, received.at)
    }
}

impl Relay {
    /// Requests the decision of the safeguards about a call.
    async fn admit(
        self: &Arc<Self>,
        message: &Message,
        params: &RequestParams<'_>,
        (received, at): (&CallReceived, Instant),
    ) -> CallDecision {
        let era = params.era();
        let is_admitted = received.continues.is_some_and(|it| it.is_expected);
        if !is_admitted && let Some(refusal) = self.gating_refusal(message, received, era).await {
            return CallDecision::Here(LocalResult::from_refusal(era, &refusal));
        }
        let Some(safeguards) = &self.shared.safeguards else {
            return CallDecision::Goes(None);
        };
        let offer = self.shared.last_catalog_of(&self.caller);
        let relay = self.as_ref();
        let asker = CallAsker { relay, received };
        let call = GuardedCall {
            session_key: received.session_key,
            principal: &self.caller.principal,
            asker: Some(&asker),
            profile: self.caller.profile_name(),
            upstream: Some(self.upstream()),
            fingerprint: &self.entry.upstream.fingerprint,
            tool: &received.tool,
            own: None,
            arguments: params.arguments(),
            is_task: params.wants_task(),
            token_budget: message.hints().token_budget,
            offer: offer.as_ref(),
            now: received.at,
            at,
        };
        let guard = |permit| CallDecision::Goes(Some(Box::new(safeguards.guard(&call, permit))));
        if is_admitted {
            return guard(safeguards.admit_again(&call));
        }
        let (outcome, result) = match safeguards.admit(&call) {
            Ok(Admission::Goes(permit)) => return guard(permit),
            Ok(Admission::Known(result)) => (Outcome::Cached, result),
            Err(refusal) => {
                return CallDecision::Here(LocalResult::from_refusal(era, &refusal));
            }
        };
        CallDecision::Here(LocalResult { outcome, result })
    }

    /// Opens the row of a call that is registered as in flight. Returns the result if the call is
    /// not forwarded. In that case [`Self::end_locally`] must follow.
    pub(super) async fn begin_call(
        self: &Arc<Self>,
        message: &Message,
        params: &RequestParams<'_>,
        (id, mut received, at): (&RequestId, CallReceived, Instant),
    ) -> Result<Option<LocalResult>, RpcError> {
        // Further rounds of an earlier call are refused too.
        let admitted = if let Some(refusal) = self.forbidden_refusal(&received) {
            received.is_forbidden = true;
            let era = params.era();
            CallDecision::Here(LocalResult::from_refusal(era, &refusal))
        } else {
            self.admit(message, params, (&received, at)).await
        };
        let row = self.open_call(message, params, received).await?;
        let (guard, here) = match admitted {
            CallDecision::Goes(guard) => (guard, None),
            CallDecision::Here(here) => (None, Some(here)),
        };
        let row_id = row.id;
        let is_waiting = match self.state.lock().pending.get_mut(id) {
            Some(pending) if pending.is_counted() => {
                pending.purpose = RequestPurpose::Call(Some(row));
                pending.guard = guard;
                true
            }
            _ => false,
        };
        if !is_waiting {
            // The request was cancelled, or the session ended, while the row was being opened.
            let times = CallTimes {
                wait: at.elapsed(),
                duration: Duration::ZERO,
            };
            let recorder = &self.shared.recorder;
            recorder
                .call_closed(row_id, Outcome::Cancelled, times, (0, None))
                .await;
        }
        Ok(here)
    }

    /// Answers a call that is not forwarded, after closing its row.
    pub(super) async fn end_locally(self: &Arc<Self>, id: &RequestId, here: LocalResult) {
        let LocalResult { outcome, result } = here;
        let Some(pending) = self.state.lock().pending.remove(id) else {
            return;
        };
        let mut ending = Ending::new(self, id, pending);
        ending.set_outcome(outcome);
        let answer = Message::success(id, &result);
        if let Some(pending) = ending.take() {
            let response = Response::Message {
                size_bytes: answer.raw().len(),
                result: Some(&result),
            };
            self.complete(pending, outcome, response).await;
        }
        self.deliver_result(id, &result).await;
    }
}

/// Returns the answer to a call with the text that the safeguards add. Returns `None` if they add
/// nothing.
pub(super) fn with_guard_notes(guard: &Guard, answer: &Message) -> Option<Message> {
    let result = answer.result(answer.single()?)?;
    if is_input_required(result) {
        return None; // The call goes on.
    }
    let told = guard.on_answer(result)?;
    Some(answer.with_result(&told))
}
