//! An admitted call, until its answer.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;

use super::result_cache::CacheEffect;
use super::tool_traits::ToolTraits;
use super::{GuardedCall, LimitPermit, OwnKind, Safeguards};

// The most bytes of search arguments that are kept until the answer, to bound memory. Searches with
// longer ones count as all different.
const MAX_ARGUMENT_BYTES: usize = 16 << 10;

/// The resources of a running call, released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    _limits: Option<LimitPermit>,
    /// The effect of the call on the result cache.
    trace: CacheEffect,
    traits: Arc<ToolTraits>,
}

impl Permit {
    pub(super) fn new(
        limits: Option<LimitPermit>,
        trace: CacheEffect,
        traits: Arc<ToolTraits>,
    ) -> Self {
        Self {
            _limits: limits,
            trace,
            traits,
        }
    }
}

/// The parts of an admitted call that are needed at its answer.
#[derive(Debug)]
pub(crate) struct Guard {
    safeguards: Arc<Safeguards>,
    /// Held until the answer.
    permit: Permit,
    session_key: SessionKey,
    principal: Principal,
    profile: Option<Box<str>>,
    upstream: Option<UpstreamName>,
    tool: ToolName,
    own: Option<OwnKind>,
    /// Only for a search.
    arguments: Option<Box<str>>,
    now: Timestamp,
    at: Instant,
}

impl Guard {
    pub(super) fn new(safeguards: Arc<Safeguards>, call: &GuardedCall<'_>, permit: Permit) -> Self {
        // Other tools need no arguments later, so copying them would cost memory for nothing.
        let arguments = call.arguments.filter(|_| permit.traits.is_search);
        let arguments = arguments.filter(|arguments| arguments.len() <= MAX_ARGUMENT_BYTES);
        Self {
            safeguards,
            permit,
            session_key: call.session_key,
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

    /// Returns the result for the client if it differs from `result`, which is JSON text.
    pub(crate) fn on_answer(&self, result: &str) -> Option<String> {
        let (call, permit) = (self.call(), &self.permit);
        self.safeguards.record_result(&call, &permit.trace, result);
        (self.safeguards).result_for_client(&call, &permit.traits, result, None)
    }

    /// Records the result of the call, which is JSON text. It is passed on unchanged, so there is
    /// no place for a notice.
    pub(crate) fn on_unchanged_answer(&self, result: &str) {
        let call = self.call();
        (self.safeguards).record_result(&call, &self.permit.trace, result);
        self.safeguards.count_result(&call, result);
    }

    fn call(&self) -> GuardedCall<'_> {
        GuardedCall {
            session_key: self.session_key,
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
            catalog: None,
            now: self.now,
            at: self.at,
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.safeguards.record_end(&self.permit.trace);
    }
}
