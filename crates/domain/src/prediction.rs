//! Prediction of the next tool call, and the selection of tools in a list.
//!
//! An [`Engine`] learns from every call. It keeps the known tools in a [`Vocabulary`] and the
//! history of a session in a [`SessionHistory`]. It makes a [`Forecast`] over the candidate tools with a mix
//! of experts. Each expert uses one kind of evidence, and its weight depends on its past
//! performance. [`Confidence`] rates the reliability of a forecast. Everything here is a pure
//! computation: no I/O, no clock, no randomness.

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
mod softmax;
mod tables;
mod view;
mod vocabulary;

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
pub use vocabulary::{ToolIx, Vocabulary};
