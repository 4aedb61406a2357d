//! The rows of recommendations.

use jiff::Timestamp;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::id::{RecommendationId, SessionId, WorkSessionId};
use riglm_domain::principal::Principal;
use riglm_domain::recommendation::{Recommendation, RecommendedTool};
use riglm_domain::record::Record;
use riglm_domain::redaction::redacted_text;

use super::{MAX_STORED_BYTES, Recorder, RecordingPolicy};

/// What the row of a recommendation is made of.
#[derive(Debug)]
pub struct RecommendationDetails<'a> {
    /// The connection that asked; `None` for the control port and the command line.
    pub session: Option<SessionId>,
    /// The work session that the question belongs to.
    pub work_session: Option<WorkSessionId>,
    /// Who asked.
    pub principal: &'a Principal,
    /// What is to be done, in words.
    pub intent: &'a str,
    /// When it was answered.
    pub shown_at: Timestamp,
    /// The version of the weights; `None` for those of the configuration.
    pub weights: Option<u64>,
    /// The experiment that the asking one takes part in.
    pub experiment: Option<ExperimentArm>,
    /// What was recommended, best first.
    pub tools: Vec<RecommendedTool>,
}

impl Recorder {
    /// Records what was recommended, and returns its identifier. Where nothing is recorded there is
    /// one all the same.
    pub async fn recommended(&self, details: RecommendationDetails<'_>) -> RecommendationId {
        let id = RecommendationId::new(details.shown_at, self.entropy.next());
        if self.options.policy == RecordingPolicy::Off {
            return id;
        }
        let intent = (self.options.include_arguments)
            .then(|| redacted_text(details.intent, MAX_STORED_BYTES));
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
