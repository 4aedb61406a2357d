//! Response types that several routes share.

use riglm_domain::catalog::tool::ToolRef;
use serde::Serialize;
use utoipa::ToSchema;

/// A tool of an upstream.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ToolRef)]
pub(crate) struct ToolView {
    /// Name of the upstream.
    upstream: String,
    /// Name of the tool at the upstream.
    tool: String,
}

impl ToolView {
    pub(crate) fn new(upstream: &str, tool: &str) -> Self {
        Self {
            upstream: upstream.into(),
            tool: tool.into(),
        }
    }
}

impl From<&ToolRef> for ToolView {
    fn from(tool: &ToolRef) -> Self {
        Self::new(tool.upstream.as_str(), tool.tool.as_str())
    }
}

pub(crate) fn tools<'a>(tools: impl IntoIterator<Item = &'a ToolRef>) -> Vec<ToolView> {
    tools.into_iter().map(Into::into).collect()
}
