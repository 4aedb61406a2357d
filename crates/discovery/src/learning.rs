//! Online learning: recorded calls train the predictor of the next tool while the proxy runs.
//!
//! The training data is the store. A [`LearningTask`] reads its calls, including new calls of all
//! processes that share it, and trains a predictor with them. Nothing is learned on the path of a
//! request, and the learned data can be rebuilt at any time. Snapshots shorten the start.
//! [`NextTools`] predicts the next tools of a session. Experiments may compare several predictors,
//! which learn from the same calls in one pass.

mod allowance;
mod arms;
mod external_advice;
mod learner;
mod live_predictions;
mod next_tools;
mod principals;
#[cfg(any(test, feature = "testing"))]
pub use next_tools::testing;
mod session_calls;
mod shared_learner;
mod task;
mod turns;

pub use arms::{ArmPredictor, MAX_ARM_PREDICTORS};
pub use external_advice::{AdviceCounts, ExternalAdviser, advise};
pub use learner::idle_gap;
pub use live_predictions::LivePredictions;
pub use next_tools::{
    Fallback, Intent, NextTool, NextTools, NextToolsOptions, Prediction, SessionView,
};
pub use principals::{LearningIsolation, MAX_PRINCIPAL_PREDICTORS, PrincipalPredictors};
pub use task::{LearningStores, LearningTask};
pub use turns::{LearningPace, LearningTurns};
