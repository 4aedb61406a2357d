//! A call that was admitted, for the time until its answer.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;

use super::repeated::Trace;
use super::traits::Traits;
use super::{GuardedCall, LimitPermit, OwnKind, Safeguards};

/// The largest arguments of a search that are kept until the answer, in bytes: searches with longer ones
/// count as all different.
const MAX_ARGUMENT_BYTES: usize = 16 << 10;

/// What a call holds while it is on its way; given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Its places among the calls that run.
    _limits: Option<LimitPermit>,
    /// What it leaves for calls that repeat it or another.
    trace: Trace,
    /// What its tool is to the safeguards.
    traits: Arc<Traits>,
}

impl Permit {
    /// Returns the permit of a call of such a tool that has these places, and leaves this.
    pub(super) fn new(limits: Option<LimitPermit>, trace: Trace, traits: Arc<Traits>) -> Self {
        Self {
            _limits: limits,
            trace,
            traits,
        }
    }
}

/// A call that was admitted: what is looked at of it when it is answered.
#[derive(Debug)]
pub(crate) struct Guard {
    safeguards: Arc<Safeguards>,
    /// Held until the answer.
    permit: Permit,
    together: CallSession,
    principal: Principal,
    profile: Option<Box<str>>,
    upstream: Option<UpstreamName>,
    tool: ToolName,
    own: Option<OwnKind>,
    /// Of a search only.
    arguments: Option<Box<str>>,
    now: Timestamp,
    at: Instant,
}

impl Guard {
    pub(super) fn new(safeguards: Arc<Safeguards>, call: &GuardedCall<'_>, permit: Permit) -> Self {
        let arguments = call.arguments.filter(|_| permit.traits.is_search);
        let arguments = arguments.filter(|arguments| arguments.len() <= MAX_ARGUMENT_BYTES);
        Self {
            safeguards,
            permit,
            together: call.together,
            principal: call.principal.clone(),
            profile: call.profile.map(Into::into),
            upstream: call.upstream.cloned(),
            tool: call.tool.clone(),
            own: call.own,
            arguments: arguments.map(Into::into),
            now: call.now,
            at: call.at,
        }
    }

    /// Returns what the client is given in place of the result of the call, which is JSON text; `None`
    /// where it is given that.
    pub(crate) fn answered(&self, result: &str) -> Option<String> {
        let (call, permit) = (self.call(), &self.permit);
        self.safeguards.noted(&call, &permit.trace, result);
        self.safeguards.given(&call, &permit.traits, result, None)
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
            fingerprint: "",
            tool: &self.tool,
            own: self.own,
            arguments: self.arguments.as_deref(),
            is_task: false,
            token_budget: None,
            offer: None,
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
