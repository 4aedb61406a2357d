//! The prediction of the next tool.

use std::fmt;

use jiff::Timestamp;
use riglm_domain::prediction::{
    Explanation, Forecast, Lesson, Slot, SnapshotError, TextEvidence, Trail, Upkeep, Vocabulary,
};
use riglm_domain::tool::ToolRef;

/// Predicts which tool is called next, and learns with each call.
///
/// Everything is a pure computation on what was learned: it neither blocks nor fails on what it is
/// given, and the same calls in the same order give the same forecasts. Predicting and explaining
/// change nothing. Tools are named by slots of the predictor's own vocabulary, and a trail belongs
/// to the predictor whose slots it holds. The probabilities of a forecast are finite, not negative,
/// and sum to one over the candidates; equal ones keep the order of their slots. After
/// [`Self::restore`] of a snapshot everything goes on as if there had been no pause.
pub trait Predictor: Send + Sync + fmt::Debug {
    /// Returns the name under which the predictor is configured.
    fn name(&self) -> &'static str;

    /// Returns the tools that were ever seen.
    fn vocabulary(&self) -> &Vocabulary;

    /// Returns the slot of a tool, a new one where it was never seen; `None` where there is no room
    /// for more ([`Vocabulary::MAX_TOOLS`]).
    fn intern(&mut self, tool: &ToolRef) -> Option<Slot>;

    /// Returns how likely each candidate, a tool that may be called now, is to be called next.
    fn predict(&self, trail: &Trail, candidates: &[Slot]) -> Forecast;

    /// Returns why each of these tools has its probability, in their order; `None` for one that is
    /// no candidate.
    fn explain(
        &self,
        trail: &Trail,
        candidates: &[Slot],
        tools: &[Slot],
    ) -> Vec<Option<Explanation>>;

    /// Returns how near the ten nearest earlier texts of the principal are, from 0 to 1.
    fn similarities(&self, trail: &Trail, text: &TextEvidence) -> Vec<f64>;

    /// Learns that a tool was called, of these candidates, and adds the call to the trail. Calls
    /// that failed are learned from like others: they show what was needed.
    fn learn(&mut self, trail: &mut Trail, candidates: &[Slot], called: Slot, lesson: Lesson);

    /// Learns from the whole of a session that is over.
    fn end_session(&mut self, trail: &Trail);

    /// Lets what was learned age until now, and forgets what counts almost nothing any more.
    fn upkeep(&mut self, now: Timestamp) -> Upkeep;

    /// Returns the format of snapshots: another number is another format.
    fn format(&self) -> u32;

    /// Returns what was learned, as bytes.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError::Unwritable`] where it cannot be written.
    fn snapshot(&self) -> Result<Vec<u8>, SnapshotError>;

    /// Replaces what was learned by a snapshot. What is refused changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError`] for another format, for bytes that are damaged, and for numbers
    /// that no learning gives.
    fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError>;
}
