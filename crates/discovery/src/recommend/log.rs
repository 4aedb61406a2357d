//! The log of recommendations, as the recommender needs it.

use std::fmt::Debug;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::{RecommendationId, SessionId, WorkSessionId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::RecommendedTool;
use riglm_domain::usage::feedback::Feedback;

use crate::entropy::EntropySource;

/// The data of a recommendation.
#[derive(Debug)]
pub struct RecommendationDetails<'a> {
    /// The connection of the request; `None` for the control port and the command line.
    pub session: Option<SessionId>,
    /// The work session of the request.
    pub work_session: Option<WorkSessionId>,
    /// The principal of the request.
    pub principal: &'a Principal,
    /// The task in words.
    pub intent: &'a str,
    /// The time of the answer.
    pub shown_at: Timestamp,
    /// The version of the weights; `None` for the configured ones.
    pub weights: Option<u64>,
    /// The experiment and arm of the principal.
    pub experiment: Option<ExperimentArm>,
    /// The recommended tools, best first.
    pub tools: Vec<RecommendedTool>,
}

/// Records recommendations and the feedback that calls give about them.
///
/// A log that records nothing still returns identifiers. A failure to record is handled and logged
/// by the implementation: it fails no recommendation.
#[async_trait]
pub trait RecommendationLog: Debug + Send + Sync {
    /// Records a recommendation and returns its identifier.
    async fn record_recommendation(&self, details: RecommendationDetails<'_>) -> RecommendationId;

    /// Records feedback about a recommended tool.
    async fn record_feedback(&self, feedback: Feedback);
}

/// A log that records nothing, for recommendations on the command line.
#[derive(Debug, Default)]
pub struct UnrecordedRecommendations {
    entropy: EntropySource,
}

#[async_trait]
impl RecommendationLog for UnrecordedRecommendations {
    async fn record_recommendation(&self, details: RecommendationDetails<'_>) -> RecommendationId {
        RecommendationId::new(details.shown_at, self.entropy.next())
    }

    async fn record_feedback(&self, _: Feedback) {}
}
