//! Recording of recommendations.

use async_trait::async_trait;
use riglm_discovery::recommend::{RecommendationDetails, RecommendationLog};
use riglm_domain::id::RecommendationId;
use riglm_domain::privacy::redaction::redact_text;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::record::Record;

use super::{MAX_STORED_BYTES, Recorder, RecordingPolicy};

#[async_trait]
impl RecommendationLog for Recorder {
    async fn record_recommendation(&self, details: RecommendationDetails<'_>) -> RecommendationId {
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

    async fn record_feedback(&self, feedback: Feedback) {
        self.append(&Record::FeedbackGiven(feedback)).await;
    }
}
