//! Prediction of the next tool call, and the selection of tools in a list.
//!
//! An [`Engine`] learns from every call. It keeps the known tools in a [`Vocabulary`] and the
//! history of a session in a [`SessionHistory`]. It makes a [`Forecast`] over the candidate tools with a mix
//! of experts. Each expert uses one kind of evidence, and its weight depends on its past
//! performance. [`Confidence`] rates the reliability of a forecast. Everything here is a pure
//! computation: no I/O, no clock, no randomness.
//!
//! # Examples
//!
//! Predict the next tool. The engine has learned three sessions that search before they read:
//!
//! ```
//! use riglm_domain::prediction::{
//!     ClientKey, Engine, LearningScope, PredictionMethod, SessionHistory, ToolIx,
//! };
//! use riglm_domain::privacy::principal::Principal;
//!
//! let mut engine = Engine::new(PredictionMethod::Mix, 30.0);
//! let tools: Vec<ToolIx> = ["files/search", "files/read", "files/delete"]
//!     .iter()
//!     .filter_map(|name| engine.intern(&name.parse().unwrap()))
//!     .collect();
//! let client = ClientKey::new(&Principal::local(), "editor");
//! for _ in 0..3 {
//!     let mut session = SessionHistory::new(client);
//!     for called in [tools[0], tools[1]] {
//!         engine.learn(&mut session, &tools, called, LearningScope::Everything);
//!     }
//!     engine.end_session(&session);
//! }
//!
//! let mut session = SessionHistory::new(client);
//! session.push(tools[0]);
//! let forecast = engine.predict(&session, &tools);
//! assert_eq!(forecast.rank(tools[1]), Some(1));
//! assert!(forecast.probability(tools[1]) > 0.5);
//! ```
//!
//! Replay a log. The replay is prequential: each call is predicted from the calls before it, then
//! measured, and only then learned. The coverage is the share of calls that a list of two tools has:
//!
//! ```
//! use riglm_domain::jiff::Timestamp;
//! use riglm_domain::num::ratio;
//! use riglm_domain::prediction::{
//!     ClientKey, Engine, LearningScope, PredictionMethod, SessionHistory, ToolIx,
//! };
//! use riglm_domain::privacy::principal::Principal;
//!
//! let catalog = ["db/query", "db/schema", "mail/read", "mail/send", "web/fetch", "web/search"];
//! let monday = ["web/search", "web/fetch", "web/fetch", "mail/send"];
//! let tuesday = ["web/search", "web/fetch", "mail/send"];
//! let log = [&monday[..], &tuesday[..], &monday[..], &tuesday[..]];
//!
//! let mut engine = Engine::new(PredictionMethod::Mix, 30.0);
//! for name in catalog {
//!     engine.intern(&name.parse().unwrap());
//! }
//! let tools: Vec<ToolIx> = engine.vocabulary().tools().map(|(tool, _)| tool).collect();
//! let client = ClientKey::new(&Principal::local(), "editor");
//! let mut seconds = 1_800_000_000;
//! let mut covered = Vec::new();
//! for calls in log {
//!     let mut session = SessionHistory::new(client);
//!     let mut n_covered = 0_usize;
//!     for name in calls {
//!         session.set_time(Timestamp::from_second(seconds).unwrap());
//!         let called = engine.vocabulary().slot(&name.parse().unwrap()).unwrap();
//!         let forecast = engine.predict(&session, &tools);
//!         n_covered += usize::from(forecast.rank(called).is_some_and(|rank| rank <= 2));
//!         engine.learn(&mut session, &tools, called, LearningScope::Everything);
//!         seconds += 60;
//!     }
//!     engine.end_session(&session);
//!     covered.push(ratio(n_covered, calls.len()));
//! }
//! // Nothing is known at first; the last two days repeat the first two.
//! assert!(covered[0] <= 0.5, "{covered:?}");
//! assert_eq!(covered[2..], [1.0, 1.0]);
//! ```

mod advice;
mod aging;
mod confidence;
mod context_node;
mod counts;
mod engine;
mod expert;
mod explanation;
mod features;
mod forecast;
mod gate;
mod later_use;
mod memory;
mod mixers;
mod name_pattern;
mod numeric;
mod pairs;
mod partitioned_counts;
mod predictor_name;
mod predictor_set;
mod selection;
mod session_history;
mod set_shares;
mod softmax;
mod tables;
mod tool_counts;
mod view;
mod vocabulary;

pub use advice::Advice;
pub use confidence::{
    Confidence, ConfidenceBand, ConfidenceBands, ConfidenceMeasure, similarity_confidence,
};
pub use engine::{Engine, LearningScope, MaintenanceReport, PredictionMethod, SnapshotError};
pub use expert::{Expert, ExpertSet, text_scores};
pub use explanation::{Explanation, ExplanationError, ScoreTerm};
pub use forecast::{Forecast, ForecastError};
pub use name_pattern::NamePattern;
pub use predictor_name::{PredictorName, PredictorSetError};
pub use predictor_set::PredictorSet;
pub use selection::{Selection, SelectionContext};
pub use session_history::{ClientKey, SessionHistory, TextEvidence};
pub use tool_counts::ToolCounts;
pub use vocabulary::{ToolIx, Vocabulary};
