//! The application of safeguards to a call: it is forwarded or answered locally, and its answer may
//! get additional text.

use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::usage::invocation::Outcome;

use super::call_recording::CallContext;
use super::scope::UpstreamScope;
use crate::proxy::own_tools::failure;
use crate::proxy::request_params::is_input_required;
use crate::safeguards::{Admission, Guard, GuardedCall, Refusal, Requester};

/// The decision about a received call.
pub(super) enum CallDecision {
    /// The call is forwarded, with the guard that the safeguards keep for it.
    Forward(Option<Box<Guard>>),
    /// The call ends locally.
    Local(LocalResult),
}

/// The result of a call that is not forwarded.
#[derive(Debug)]
pub(super) struct LocalResult {
    pub(super) outcome: Outcome,
    /// The JSON text of its result.
    pub(super) result: String,
}

impl LocalResult {
    pub(super) fn from_refusal(era: Era, refusal: &Refusal) -> Self {
        Self {
            outcome: Outcome::Refused,
            result: failure(era, &refusal.text),
        }
    }
}

#[derive(Debug)]
struct CallRequester<'a> {
    scope: &'a UpstreamScope,
    call: &'a CallContext<'a>,
}

impl Requester for CallRequester<'_> {
    fn client_hash(&self) -> KeyedHash {
        (self.scope.client_context).client_hash(&self.scope.shared.recorder)
    }

    fn connection(&self) -> SessionId {
        self.call.session
    }

    fn stated_intent(&self) -> Option<StatedIntent> {
        let call = self.call;
        (self.scope.shared).stated_intent(call.session, call.session_key, call.received_at)
    }
}

/// Requests the decision of the safeguards about a call.
pub(super) fn admit(scope: &UpstreamScope, call: &CallContext<'_>) -> CallDecision {
    let Some(safeguards) = scope.shared.safeguards() else {
        return CallDecision::Forward(None);
    };
    let catalog = scope.shared.last_catalog_of(&scope.client_context);
    let requester = CallRequester { scope, call };
    let guarded = GuardedCall {
        session_key: call.session_key,
        principal: &scope.client_context.principal,
        asker: Some(&requester),
        profile: scope.client_context.profile_name(),
        upstream: Some(scope.upstream()),
        fingerprint: &scope.entry.upstream.fingerprint,
        tool: &call.tool,
        own: None,
        arguments: call.params.arguments(),
        is_task: call.params.wants_task(),
        token_budget: call.message.hints().token_budget,
        catalog: catalog.as_ref(),
        now: call.received_at,
        at: call.received,
    };
    let forward =
        |permit| CallDecision::Forward(Some(Box::new(safeguards.guard(&guarded, permit))));
    if call.is_admitted() {
        return forward(safeguards.admit_again(&guarded));
    }
    let (outcome, result) = match safeguards.admit(&guarded) {
        Ok(Admission::Goes(permit)) => return forward(permit),
        Ok(Admission::Known(result)) => (Outcome::Cached, result),
        Err(refusal) => {
            return CallDecision::Local(LocalResult::from_refusal(call.era, &refusal));
        }
    };
    CallDecision::Local(LocalResult { outcome, result })
}

/// Returns the answer to a call with the text that the safeguards add. Returns `None` if they add
/// nothing.
pub(super) fn with_guard_notes(guard: &Guard, answer: &Message) -> Option<Message> {
    let part = answer.single()?;
    let result = answer.result(part)?;
    if is_input_required(answer, part) {
        return None; // The call goes on.
    }
    let told = guard.on_answer(result)?;
    Some(answer.with_result(&told))
}
