//! Tools with their scores as a column: a JSON array of `[upstream, name, score]`, and of
//! `[upstream, name, score, [factor, ...] or null]` for recommended tools.

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::recommendation::Factors;
use riglm_domain::recommendation::record::RecommendedTool;
use riglm_domain::retrieval::search::ScoredTool;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

/// The column for writing, as a text: PostgreSQL would print very large and small numbers of a JSON
/// value with hundreds of digits, which cannot be read back.
pub(super) struct ScoredToolsColumn<'a>(pub(super) &'a [ScoredTool]);

impl Serialize for ScoredToolsColumn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = (self.0.iter())
            .map(|scored| (&scored.tool.upstream, &scored.tool.tool, scored.score))
            .collect();
        let text = serde_json::to_string(&rows).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

/// The column for reading.
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

/// The column of a recommendation for writing, as [`ScoredToolsColumn`].
pub(super) struct RecommendedColumn<'a>(pub(super) &'a [RecommendedTool]);

impl Serialize for RecommendedColumn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = (self.0.iter())
            .map(|row| (&row.tool.upstream, &row.tool.tool, row.score, row.factors))
            .collect();
        let text = serde_json::to_string(&rows).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

/// The column of a recommendation for reading.
#[derive(Deserialize)]
pub(super) struct RecommendedTools(Vec<RecommendedToolRow>);

// Rows of schema versions before 6 have no factors.
#[derive(Deserialize)]
struct RecommendedToolRow(
    UpstreamName,
    ToolName,
    f64,
    #[serde(default)] Option<Factors>,
);

impl From<RecommendedTools> for Vec<RecommendedTool> {
    fn from(tools: RecommendedTools) -> Self {
        let tools = tools.0.into_iter();
        tools
            .map(
                |RecommendedToolRow(upstream, tool, score, factors)| RecommendedTool {
                    tool: ToolRef { upstream, tool },
                    score,
                    factors: factors.map(|factors| Factors::new(*factors.values())),
                },
            )
            .collect()
    }
}
