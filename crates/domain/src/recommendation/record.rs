//! Recommendations, as they were shown.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::catalog::tool::ToolRef;
use crate::experiment::ExperimentArm;
use crate::id::{RecommendationId, SessionId, WorkSessionId};
use crate::privacy::canonical::KeyedHash;
use crate::privacy::principal::Principal;
use crate::recommendation::Factors;

/// A recommended tool, at its place in the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecommendedTool {
    /// The tool.
    pub tool: ToolRef,
    /// Its score; a finite number, larger is better.
    pub score: f64,
    /// The factors of its ranking; `None` if it was not ranked by factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<Factors>,
}

/// The tools that were recommended for an intent. The position of a tool is its place in the
/// answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Identifies the answer.
    pub id: RecommendationId,
    /// The session of the request; `None` for the control API and the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The work session of the request, if one was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_session: Option<WorkSessionId>,
    /// The principal of the request.
    pub principal: Principal,
    /// The time of the answer.
    pub shown_at: Timestamp,
    /// Keyed hash of the intent.
    pub intent_hash: KeyedHash,
    /// The intent without secrets, if storing it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// The version of the weights that ranked the tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<u64>,
    /// The experiment arm that the requesting client is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<ExperimentArm>,
    /// The recommended tools, best first.
    pub tools: Vec<RecommendedTool>,
}
