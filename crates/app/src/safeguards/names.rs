//! The names that patterns of tools are compared with.

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::naming::prefixed;
use riglm_domain::prediction::NamePattern;

use super::GuardedCall;
use crate::search::OfferedTool;

/// The names of a tool that patterns are compared with: the one that its upstream knows, the one with
/// the name of the upstream in front, and the one that the client was offered.
///
/// The second one is compared although a client may know the tool by another: a pattern must not begin
/// to fit with the first list that a client asks for.
#[derive(Debug)]
pub(super) struct Names {
    own: ToolName,
    prefixed: Option<ToolName>,
    offered: Option<ToolName>,
}

impl Names {
    pub(super) fn new(
        upstream: Option<&UpstreamName>,
        own: &ToolName,
        offered: Option<&str>,
    ) -> Self {
        let prefixed = upstream.map(|upstream| prefixed(upstream, own.as_str()));
        let is_other = |name: &&str| *name != own.as_str() && Some(*name) != prefixed.as_deref();
        Self {
            offered: offered.filter(is_other).map(ToolName::from),
            prefixed: prefixed.as_deref().map(ToolName::from),
            own: own.clone(),
        }
    }

    pub(super) fn of_call(call: &GuardedCall<'_>) -> Self {
        let offered = call.offered().map(|tool| tool.name.as_str());
        Self::new(call.upstream, call.tool, offered)
    }

    pub(super) fn of_offered(tool: &OfferedTool) -> Self {
        Self::new(Some(&tool.tool.upstream), &tool.tool.tool, Some(&tool.name))
    }

    pub(super) fn fit(&self, pattern: &NamePattern) -> bool {
        let others = [&self.prefixed, &self.offered];
        pattern.matches(&self.own)
            || (others.into_iter().flatten()).any(|name| pattern.matches(name))
    }

    pub(super) fn fit_any(&self, patterns: &[NamePattern]) -> bool {
        patterns.iter().any(|pattern| self.fit(pattern))
    }
}
