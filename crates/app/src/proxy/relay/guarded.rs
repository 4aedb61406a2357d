//! What the safeguards make of a call: it goes on, or is answered here, and its answer may be told
//! something.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::RpcError;

use super::Relay;
use super::calls::CallReceived;
use super::completion::{Ending, Response};
use super::params::{RequestParams, is_input_required};
use super::pending::Purpose;
use crate::proxy::search_tool::failure;
use crate::safeguards::{Admission, Asker, Guard, GuardedCall, Refusal};
use crate::tracking::CallTimes;

/// What becomes of a call that came in.
enum Admitted {
    /// It goes on, with what the safeguards keep of it.
    Goes(Option<Box<Guard>>),
    /// It ends here.
    Here(EndedHere),
}

/// The end of a call that is not passed on.
#[derive(Debug)]
pub(super) struct EndedHere {
    outcome: Outcome,
    /// The JSON text of its result.
    result: String,
}

impl EndedHere {
    fn refused(is_modern: bool, refusal: &Refusal) -> Self {
        Self {
            outcome: Outcome::Refused,
            result: failure(is_modern, &refusal.text),
        }
    }
}

/// Who makes a call.
#[derive(Debug)]
struct CallAsker<'a> {
    relay: &'a Relay,
    received: &'a CallReceived,
}

impl Asker for CallAsker<'_> {
    fn client_hash(&self) -> KeyedHash {
        (self.relay.caller).client_hash(&self.relay.shared.recorder)
    }

    fn connection(&self) -> SessionId {
        self.received.session
    }

    fn stated(&self) -> Option<StatedIntent> {
        let received = self.received;
        (self.relay.shared).stated(received.session, received.together, received.at)
    }
}

impl Relay {
    /// Asks the safeguards what becomes of a call.
    async fn admitted(
        self: &Arc<Self>,
        message: &Message,
        params: &RequestParams<'_>,
        (received, at): (&CallReceived, Instant),
    ) -> Admitted {
        let is_modern = params.protocol_meta().is_some();
        let is_admitted = received.continues.is_some_and(|it| it.is_expected);
        if !is_admitted && let Some(refusal) = self.gated(message, received, is_modern).await {
            return Admitted::Here(EndedHere::refused(is_modern, &refusal));
        }
        let Some(safeguards) = &self.shared.safeguards else {
            return Admitted::Goes(None);
        };
        let offer = self.shared.last_offer_of(&self.caller);
        let relay = self.as_ref();
        let asker = CallAsker { relay, received };
        let call = GuardedCall {
            together: received.together,
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
        let guard = |permit| Admitted::Goes(Some(Box::new(safeguards.guard(&call, permit))));
        if is_admitted {
            return guard(safeguards.admit_again(&call));
        }
        let (outcome, result) = match safeguards.admit(&call) {
            Ok(Admission::Goes(permit)) => return guard(permit),
            Ok(Admission::Known(result)) => (Outcome::Cached, result),
            Err(refusal) => return Admitted::Here(EndedHere::refused(is_modern, &refusal)),
        };
        Admitted::Here(EndedHere { outcome, result })
    }

    /// Opens the row of a call that has its place among the requests in flight. Returns how it ends,
    /// if it is not passed on; [`Self::end_here`] has to follow.
    pub(super) async fn begin_call(
        self: &Arc<Self>,
        message: &Message,
        params: &RequestParams<'_>,
        (id, mut received, at): (&RequestId, CallReceived, Instant),
    ) -> Result<Option<EndedHere>, RpcError> {
        // What goes on with a call that was made before is refused, too.
        let admitted = if let Some(refusal) = self.forbidden(&received) {
            received.is_forbidden = true;
            let is_modern = params.protocol_meta().is_some();
            Admitted::Here(EndedHere::refused(is_modern, &refusal))
        } else {
            self.admitted(message, params, (&received, at)).await
        };
        let row = self.open_call(message, params, received).await?;
        let (guard, here) = match admitted {
            Admitted::Goes(guard) => (guard, None),
            Admitted::Here(here) => (None, Some(here)),
        };
        let row_id = row.id;
        let is_waiting = match self.state().pending.get_mut(id) {
            Some(pending) if pending.is_counted() => {
                pending.purpose = Purpose::Call(Some(row));
                pending.guard = guard;
                true
            }
            _ => false,
        };
        if !is_waiting {
            // It was cancelled, or the session ended, while the row was being opened.
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

    /// Answers a call that is not passed on, after its row was closed.
    pub(super) async fn end_here(self: &Arc<Self>, id: &RequestId, here: EndedHere) {
        let EndedHere { outcome, result } = here;
        let Some(pending) = self.state().pending.remove(id) else {
            return;
        };
        let mut ending = Ending::new(self, pending);
        ending.came_to(outcome);
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

/// Returns the answer to a call with what the safeguards have to say, or as it is.
pub(super) fn guarded(guard: &Guard, answer: &Message) -> Option<Message> {
    let result = answer.result(answer.single()?)?;
    if is_input_required(result) {
        return None; // The call goes on.
    }
    let told = guard.answered(result)?;
    Some(answer.with_result(&told))
}
