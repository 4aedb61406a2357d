//! A call that was admitted, for the time until its answer.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;

use super::repeated::Trace;
use super::{GuardedCall, LimitPermit, OwnKind, Safeguards};
use crate::search::Offer;

/// The largest arguments that are kept until the answer, in bytes: what is looked at of longer ones is
/// looked at before.
const MAX_ARGUMENT_BYTES: usize = 16 << 10;

/// What a call holds while it is on its way; given up when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    /// Its places among the calls that run.
    _limits: Option<LimitPermit>,
    /// What it leaves for calls that repeat it or another.
    trace: Trace,
}

impl Permit {
    /// Returns the permit of a call that has these places, and leaves this.
    pub(super) fn new(limits: Option<LimitPermit>, trace: Trace) -> Self {
        Self {
            _limits: limits,
            trace,
        }
    }
}

/// A call that was admitted.
#[derive(Debug)]
pub(crate) struct Guard {
    safeguards: Arc<Safeguards>,
    /// Held until the answer.
    permit: Permit,
    together: CallSession,
    principal: Principal,
    profile: Option<Box<str>>,
    upstream: Option<UpstreamName>,
    fingerprint: Box<str>,
    tool: ToolName,
    own: Option<OwnKind>,
    arguments: Option<Box<str>>,
    token_budget: Option<u64>,
    offer: Option<Arc<Offer>>,
    place: Option<usize>,
    now: Timestamp,
    at: Instant,
}

impl Guard {
    pub(super) fn new(safeguards: Arc<Safeguards>, call: &GuardedCall<'_>, permit: Permit) -> Self {
        let arguments = call.arguments;
        let arguments = arguments.filter(|arguments| arguments.len() <= MAX_ARGUMENT_BYTES);
        Self {
            safeguards,
            permit,
            together: call.together,
            principal: call.principal.clone(),
            profile: call.profile.map(Into::into),
            upstream: call.upstream.cloned(),
            fingerprint: call.fingerprint.into(),
            tool: call.tool.clone(),
            own: call.own,
            arguments: arguments.map(Into::into),
            token_budget: call.token_budget,
            offer: call.offer.cloned(),
            place: call.place,
            now: call.now,
            at: call.at,
        }
    }

    /// Returns what the client is given in place of the result of the call, which is JSON text; `None`
    /// where it is given that.
    pub(crate) fn answered(&self, result: &str) -> Option<String> {
        let call = self.call();
        self.safeguards.noted(&call, &self.permit.trace, result);
        self.safeguards.given(&call, result, None)
    }

    /// Notes the result of the call, which is JSON text and passed on as it is, so that nothing can be
    /// said in it.
    pub(crate) fn passed_on(&self, result: &str) {
        let call = self.call();
        self.safeguards.noted(&call, &self.permit.trace, result);
        self.safeguards.counted(&call, result);
    }

    fn call(&self) -> GuardedCall<'_> {
        GuardedCall {
            together: self.together,
            principal: &self.principal,
            asker: None,
            profile: self.profile.as_deref(),
            upstream: self.upstream.as_ref(),
            fingerprint: &self.fingerprint,
            tool: &self.tool,
            own: self.own,
            arguments: self.arguments.as_deref(),
            is_task: false,
            token_budget: self.token_budget,
            offer: self.offer.as_ref(),
            place: self.place,
            now: self.now,
            at: self.at,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.safeguards.over(&self.permit.trace);
    }
}
