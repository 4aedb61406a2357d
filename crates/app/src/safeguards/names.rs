//! Names of a tool for comparing with patterns.

use riglm_domain::catalog::naming::tool_aliases;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::NamePattern;

use super::GuardedCall;
use riglm_discovery::search::CatalogTool;

/// The names of a tool for comparing with patterns: the name at its upstream, the name after the
/// namespace of the upstream, as written and as lists may show it, and the name that the client
/// sees.
///
/// Names with the namespace are always compared, even if the client sees another one. Otherwise a
/// pattern would start to match only with the first list of a client.
#[derive(Debug)]
pub(super) struct ToolNames(Vec<ToolName>);

impl ToolNames {
    pub(super) fn new(
        upstream: Option<&UpstreamName>,
        own: &ToolName,
        offered: Option<&str>,
    ) -> Self {
        let mut names = match upstream {
            Some(upstream) => tool_aliases(upstream, own),
            None => vec![own.clone()],
        };
        let is_other = |name: &ToolName| !names.contains(name);
        let offered = offered.map(ToolName::from).filter(is_other);
        names.extend(offered);
        Self(names)
    }

    pub(super) fn of_call(call: &GuardedCall<'_>) -> Self {
        let offered = call.catalog_tool().map(|tool| tool.name.as_str());
        Self::new(call.upstream, call.tool, offered)
    }

    pub(super) fn of_offered(tool: &CatalogTool) -> Self {
        Self::new(Some(&tool.tool.upstream), &tool.tool.tool, Some(&tool.name))
    }

    pub(super) fn fit(&self, pattern: &NamePattern) -> bool {
        self.0.iter().any(|name| pattern.matches(name))
    }

    pub(super) fn fit_any(&self, patterns: &[NamePattern]) -> bool {
        patterns.iter().any(|pattern| self.fit(pattern))
    }
}
