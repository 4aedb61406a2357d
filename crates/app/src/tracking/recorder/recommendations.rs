//! Recording of recommendations.

use jiff::Timestamp;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::{RecommendationId, SessionId, WorkSessionId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::privacy::redaction::redact_text;
use riglm_domain::recommendation::record::{Recommendation, RecommendedTool};
use riglm_domain::usage::record::Record;

use super::{MAX_STORED_BYTES, Recorder, RecordingPolicy};

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

impl Recorder {
    /// Records a recommendation and returns its identifier. The identifier exists even if nothing
    /// is recorded.
    pub async fn record_recommendation(
        &self,
        details: RecommendationDetails<'_>,
    ) -> RecommendationId {
        let id = RecommendationId::new(details.shown_at, self.entropy.next());
        if self.options.policy == RecordingPolicy::Off {
            return id;
        }
        let intent =
            (self.options.include_arguments).then(|| redact_text(details.intent, MAX_STORED_BYTES));
        let recommendation = Recommendation {
            id,
            session: details.session,
            work_session: details.work_session,
            principal: details.principal.clone(),
            shown_at: details.shown_at,
            intent_hash: self.hasher.hash_text(details.intent),
            intent,
            weights: details.weights,
            experiment: details.experiment,
            tools: details.tools,
        };
        self.append(&Record::Recommended(recommendation)).await;
        id
    }
}
