//! Tools with their scores as a column: a JSON array of `[upstream, name, score]`, and of
//! `[upstream, name, score, [factor, ...] or null]` where they are recommended.

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::recommendation::RecommendedTool;
use riglm_domain::recommender::Factors;
use riglm_domain::search::ScoredTool;
use riglm_domain::tool::ToolRef;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};

/// The column to write, as a text: PostgreSQL would write out large and small numbers of a JSON
/// value in hundreds of digits, which cannot be read back.
pub(super) struct Column<'a>(pub(super) &'a [ScoredTool]);

impl Serialize for Column<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = (self.0.iter())
            .map(|scored| (&scored.tool.upstream, &scored.tool.tool, scored.score))
            .collect();
        let text = serde_json::to_string(&rows).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

/// The column as it is read.
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

/// The column of a recommendation to write, as [`Column`].
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

/// The column of a recommendation as it is read.
#[derive(Deserialize)]
pub(super) struct RecommendedTools(Vec<Recommended>);

/// Rows of versions before 6 have no factors.
#[derive(Deserialize)]
struct Recommended(
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
                |Recommended(upstream, tool, score, factors)| RecommendedTool {
                    tool: ToolRef { upstream, tool },
                    score,
                    factors: factors.map(|factors| Factors::new(*factors.values())),
                },
            )
            .collect()
    }
}
