//! Answers of the recommender as they were shown.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::experiment::ExperimentArm;
use crate::id::{RecommendationId, SessionId, WorkSessionId};
use crate::principal::Principal;
use crate::recommender::Factors;
use crate::tool::ToolRef;

/// A tool that was recommended, at its place in the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecommendedTool {
    /// The tool.
    pub tool: ToolRef,
    /// Its score; a finite number, larger is better.
    pub score: f64,
    /// What the tool was ranked by; `None` where it was not ranked by factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<Factors>,
}

/// Tools that were recommended for an intent. The position of a tool is its place in the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Identifies the answer.
    pub id: RecommendationId,
    /// The session that asked; `None` for the control API and the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The work session that the question belongs to, where one was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_session: Option<WorkSessionId>,
    /// Who asked.
    pub principal: Principal,
    /// When it was shown.
    pub shown_at: Timestamp,
    /// Keyed hash of the intent.
    pub intent_hash: KeyedHash,
    /// The intent with secrets removed, when the operator asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// The version of the weights that ranked the tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<u64>,
    /// The experiment that the asking one takes part in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<ExperimentArm>,
    /// What was recommended, best first.
    pub tools: Vec<RecommendedTool>,
}
