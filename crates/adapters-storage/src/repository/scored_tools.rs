//! Tools with their scores as a column: a JSON array of `[upstream, name, score]`.

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::search::ScoredTool;
use riglm_domain::tool::ToolRef;
use serde::{Deserialize, Serialize};

/// Returns the column of these tools.
pub(super) fn column(tools: &[ScoredTool]) -> impl Serialize + use<'_> {
    let columns = |scored: &ScoredTool| {
        let ToolRef { upstream, tool } = &scored.tool;
        (upstream.clone(), tool.clone(), scored.score)
    };
    tools.iter().map(columns).collect::<Vec<_>>()
}

/// The column.
#[derive(Deserialize)]
pub(super) struct ScoredTools(Vec<(UpstreamName, ToolName, f64)>);

impl From<ScoredTools> for Vec<ScoredTool> {
    fn from(tools: ScoredTools) -> Self {
        let tools = tools.0.into_iter();
        tools
            .map(|(upstream, tool, score)| ScoredTool {
                tool: ToolRef { upstream, tool },
                score,
            })
            .collect()
    }
}
