//! Calls for tests.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

use super::GuardedCall;
use crate::search::{Offer, OfferedTool};

/// What calls of a test have in common.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) principal: Principal,
    pub(super) upstream: UpstreamName,
    pub(super) offer: Arc<Offer>,
    pub(super) start: Instant,
}

impl Scene {
    /// Returns a scene in which tools are offered with these names and annotations, as JSON text.
    pub(super) fn new(tools: &[(&str, &str)]) -> Self {
        let upstream = UpstreamName::parse("notes").expect("it is a name");
        let tools = tools.iter().map(|(name, annotations)| OfferedTool {
            name: format!("notes__{name}"),
            tool: ToolRef {
                upstream: upstream.clone(),
                tool: (*name).into(),
            },
            definition: format!(r#"{{"name":"{name}","annotations":{annotations}}}"#).into(),
            is_hidden: false,
        });
        Self {
            principal: Principal::local(),
            offer: Arc::new(Offer::new(tools.collect(), Vec::new())),
            upstream,
            start: Instant::now(),
        }
    }

    /// Returns a call of the first work session.
    pub(super) fn call<'a>(&'a self, tool: &'a ToolName, arguments: &'a str) -> GuardedCall<'a> {
        GuardedCall {
            together: session(1),
            principal: &self.principal,
            asker: None,
            profile: None,
            upstream: Some(&self.upstream),
            fingerprint: "",
            tool,
            own: None,
            arguments: Some(arguments),
            is_task: false,
            token_budget: None,
            offer: Some(&self.offer),
            now: Timestamp::constant(1_800_000_000, 0),
            at: self.start,
        }
    }
}

/// Returns what calls of one connection belong to.
pub(super) fn session(n: u8) -> CallSession {
    CallSession::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [n; 10]))
}
