//! Answers of the recommender.

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::RecommendationId;
use riglm_domain::recommendation::{FactorWeights, Factors, IntentAnalysis};
use riglm_domain::retrieval::search::SearchQuality;

use super::left_out::LeftOut;

/// Recommended tools for an intent.
#[derive(Clone, Debug)]
pub struct RecommendReply {
    /// Identifier of the answer, to which feedback refers.
    pub id: RecommendationId,
    /// The analysed intent.
    pub intent: IntentAnalysis,
    /// Grade of the match, as in a search.
    pub quality: SearchQuality,
    /// The tools, best first.
    pub tools: Vec<RecommendedTool>,
    /// Matching tools that cannot be used at present.
    pub left_out: Vec<LeftOut>,
    /// Weights of the factors.
    pub weights: FactorWeights,
    /// Version of the weights, or `None` for the configured weights.
    pub weights_version: Option<u64>,
    /// The arm of the experiment in which the caller takes part.
    pub experiment: Option<ExperimentArm>,
    /// Further notes for the reader.
    pub notes: Vec<String>,
    /// Whether the ranking came from the cache.
    pub was_cached: bool,
}

/// A recommended tool.
#[derive(Clone, Debug, PartialEq)]
pub struct RecommendedTool {
    /// The name by which clients call the tool.
    pub name: String,
    /// The tool.
    pub tool: ToolRef,
    /// The first line of its description, truncated at a word boundary to 200 characters.
    pub description: String,
    /// Weighted sum of the factors, 0 to 1.
    pub score: f64,
    /// Values of the factors.
    pub factors: Factors,
    /// The explanation in sentences.
    pub explanation: String,
    /// Tools that are usually called before this one.
    pub before: Vec<NamedNeighbour>,
    /// Tools that are usually called after this one.
    pub after: Vec<NamedNeighbour>,
    /// The workflow in which the tool usually occurs.
    pub workflow: Option<NamedWorkflow>,
}

/// A tool that is usually called before or after another one.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedNeighbour {
    /// The name by which clients call the tool.
    pub name: String,
    /// The number of times that the two were called in succession.
    pub support: u64,
    /// The fraction of all calls after, or before, the other tool.
    pub share: f64,
}

/// Tools that are usually called one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWorkflow {
    /// The names by which clients call the tools, in their order.
    pub steps: Vec<String>,
    /// The number of work sessions that called the whole sequence.
    pub support: u64,
}
