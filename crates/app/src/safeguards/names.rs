//! The names that patterns of tools are compared with.

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::naming::names_of;
use riglm_domain::prediction::NamePattern;

use super::GuardedCall;
use crate::search::OfferedTool;

/// The names of a tool that patterns are compared with: the one that its upstream knows, the one with
/// the name of the upstream in front, as it is written and as lists may show it, and the one that the
/// client was offered.
///
/// Those with the upstream are compared although a client may know the tool by another: a pattern must not begin
/// to fit with the first list that a client asks for.
#[derive(Debug)]
pub(super) struct Names(Vec<ToolName>);

impl Names {
    pub(super) fn new(
        upstream: Option<&UpstreamName>,
        own: &ToolName,
        offered: Option<&str>,
    ) -> Self {
        let mut names = match upstream {
            Some(upstream) => names_of(upstream, own),
            None => vec![own.clone()],
        };
        let is_other = |name: &ToolName| !names.contains(name);
        let offered = offered.map(ToolName::from).filter(is_other);
        names.extend(offered);
        Self(names)
    }

    pub(super) fn of_call(call: &GuardedCall<'_>) -> Self {
        let offered = call.offered().map(|tool| tool.name.as_str());
        Self::new(call.upstream, call.tool, offered)
    }

    pub(super) fn of_offered(tool: &OfferedTool) -> Self {
        Self::new(Some(&tool.tool.upstream), &tool.tool.tool, Some(&tool.name))
    }

    pub(super) fn fit(&self, pattern: &NamePattern) -> bool {
        self.0.iter().any(|name| pattern.matches(name))
    }

    pub(super) fn fit_any(&self, patterns: &[NamePattern]) -> bool {
        patterns.iter().any(|pattern| self.fit(pattern))
    }
}
