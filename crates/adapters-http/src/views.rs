//! What several resources show.

use riglm_domain::tool::ToolRef;
use serde::Serialize;
use utoipa::ToSchema;

/// A tool of an upstream.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ToolRef)]
pub(crate) struct ToolView {
    /// The upstream.
    upstream: String,
    /// The name that the upstream knows.
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

/// Returns tools as they are shown.
pub(crate) fn tools<'a>(tools: impl IntoIterator<Item = &'a ToolRef>) -> Vec<ToolView> {
    tools.into_iter().map(Into::into).collect()
}
