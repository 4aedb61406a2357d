//! The prediction of the next tool.

use std::fmt;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{
    Explanation, Forecast, LearningScope, MaintenanceReport, SessionHistory, SnapshotError,
    TextEvidence, ToolIx, Vocabulary,
};

/// Predicts the next tool call, and learns from each call.
///
/// All methods are pure computations on the learned state: they neither block nor fail on any
/// input, and the same calls in the same order give the same predictions. Predicting and explaining
/// change nothing. Tools are named by indexes of the predictor's own vocabulary, and a session
/// history belongs to the predictor whose indexes it holds. The probabilities of a prediction are
/// finite, not negative, and sum to one over the candidates; equal ones keep the order of their
/// indexes. After [`Self::restore`] of a snapshot, predictions and learning continue as if there
/// had been no pause.
pub trait Predictor: Send + Sync + fmt::Debug {
    /// Returns the name of the predictor in the configuration.
    fn name(&self) -> &'static str;

    /// Returns all tools that the predictor has seen.
    fn vocabulary(&self) -> &Vocabulary;

    /// Returns the index of a tool, a new one for a new tool; `None` if the vocabulary is full
    /// ([`Vocabulary::MAX_TOOLS`]).
    fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx>;

    /// Returns the probability of each candidate to be called next. Candidates are the tools that
    /// can be called now.
    fn predict(&self, trail: &SessionHistory, candidates: &[ToolIx]) -> Forecast;

    /// Returns explanations of the probabilities of these tools, in their order; `None` for a tool
    /// that is not a candidate.
    fn explain(
        &self,
        trail: &SessionHistory,
        candidates: &[ToolIx],
        tools: &[ToolIx],
    ) -> Vec<Option<Explanation>>;

    /// Returns the similarities of the ten most similar earlier texts of the principal, from 0 to
    /// 1.
    fn similarities(&self, trail: &SessionHistory, text: &TextEvidence) -> Vec<f64>;

    /// Learns that a tool was called out of these candidates, and adds the call to the session
    /// history. Failed calls count like others: they also show a need for the tool.
    fn learn(
        &mut self,
        trail: &mut SessionHistory,
        candidates: &[ToolIx],
        called: ToolIx,
        lesson: LearningScope,
    );

    /// Learns from the complete history of a session that has ended.
    fn end_session(&mut self, trail: &SessionHistory);

    /// Ages the learned state until now, and removes parts whose weight is almost zero.
    fn maintain(&mut self, now: Timestamp) -> MaintenanceReport;

    /// Returns the format number of snapshots. Each incompatible format has another number.
    fn format(&self) -> u32;

    /// Returns the learned state as bytes.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError::Unwritable`] if it cannot be serialized.
    fn snapshot(&self) -> Result<Vec<u8>, SnapshotError>;

    /// Replaces the learned state by a snapshot. A refused snapshot changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError`] for another format, for damaged bytes, and for numbers that
    /// learning cannot produce.
    fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError>;
}
