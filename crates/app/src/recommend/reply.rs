//! What the recommender answers.

use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::RecommendationId;
use riglm_domain::recommender::{FactorWeights, Factors, IntentAnalysis};
use riglm_domain::search::SearchQuality;
use riglm_domain::tool::ToolRef;

use super::left_out::LeftOut;

/// Tools that are recommended for an intent.
#[derive(Clone, Debug)]
pub struct RecommendReply {
    /// Identifies the answer: what people say of it refers to it.
    pub id: RecommendationId,
    /// What was read of the intent.
    pub intent: IntentAnalysis,
    /// How well the tools fit, as a search grades it.
    pub quality: SearchQuality,
    /// The tools, best first.
    pub tools: Vec<RecommendedTool>,
    /// What would be among them if it could be used now.
    pub left_out: Vec<LeftOut>,
    /// The weights of the factors.
    pub weights: FactorWeights,
    /// The version of the weights; `None` for those of the configuration.
    pub weights_version: Option<u64>,
    /// The arm of the experiment that the asking one takes part in.
    pub experiment: Option<ExperimentArm>,
    /// What else is to be said.
    pub notes: Vec<String>,
    /// Whether the ranking was made before, for the same question.
    pub was_cached: bool,
}

/// A recommended tool.
#[derive(Clone, Debug, PartialEq)]
pub struct RecommendedTool {
    /// The name by which clients call it.
    pub name: String,
    /// The tool.
    pub tool: ToolRef,
    /// The first line of its description, of a longer one the first words in 200 characters.
    pub description: String,
    /// The sum of the factors by their weights, of 0 to 1.
    pub score: f64,
    /// What it is ranked by.
    pub factors: Factors,
    /// Why it is recommended, in one sentence.
    pub explanation: String,
    /// What usually comes before it.
    pub before: Vec<NamedNeighbour>,
    /// What usually comes after it.
    pub after: Vec<NamedNeighbour>,
    /// The workflow that it usually stands in.
    pub workflow: Option<NamedWorkflow>,
}

/// A tool that usually comes before or after another one.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedNeighbour {
    /// The name by which clients call it.
    pub name: String,
    /// How often the two followed each other.
    pub support: u64,
    /// The share of all calls that followed, or came before, the other tool.
    pub share: f64,
}

/// Tools that are usually used one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWorkflow {
    /// The names by which clients call them, in their order.
    pub steps: Vec<String>,
    /// In how many work sessions this whole sequence was called.
    pub support: u64,
}
