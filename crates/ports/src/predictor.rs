//! The prediction of the next tool.
//!
//! A [`Predictor`] reads learned state: it names the probabilities of tools and explains them. A
//! [`Learner`] is a predictor whose state can change: it learns from calls, ages what it learned,
//! and writes it to snapshots. Users that only predict take a [`Predictor`].
//!
//! # Promises
//!
//! - **Pure.** All methods are computations on the learned state. They do no I/O, read no clock,
//!   draw no random numbers, and do not block. The same calls in the same order give the same
//!   predictions.
//! - **Total.** No input makes a method fail or panic. Indexes of another vocabulary and repeated
//!   candidates are ignored.
//! - **Reading changes nothing.** Methods of [`Predictor`] do not change predictions or snapshots.
//! - **Own indexes.** Tools are named by indexes of the predictor's own vocabulary, and a session
//!   history belongs to the predictor whose indexes it holds. An index is never used for another
//!   tool.
//! - **A forecast is a distribution** over the candidates, as [`Forecast`] states. Equal
//!   probabilities keep the order of their indexes.
//! - **A restart is no pause.** After [`Learner::restore`] of a snapshot, predictions and learning
//!   continue as if there had been none. A refused snapshot changes nothing.
//!
//! `contract::predictor` tests these, as far as a test can.
//!
//! # Examples
//!
//! A predictor of the tool that was called most often:
//!
//! ```
//! use jiff::Timestamp;
//! use riglm_domain::catalog::tool::ToolRef;
//! use riglm_domain::id::UpstreamName;
//! use riglm_domain::prediction::{
//!     ClientKey, Explanation, Forecast, LearningScope, MaintenanceReport, ScoreTerm,
//!     SessionHistory, SnapshotError, TextEvidence, ToolIx, Vocabulary,
//! };
//! use riglm_domain::privacy::principal::Principal;
//! use riglm_ports::predictor::{Learner, Predictor};
//!
//! #[derive(Debug, Default)]
//! struct MostFrequent {
//!     vocabulary: Vocabulary,
//!     // The number of calls of each tool, by index.
//!     n_calls: Vec<u32>,
//! }
//!
//! impl MostFrequent {
//!     // Returns the candidates of the vocabulary with their counts and one, each once.
//!     fn counts(&self, candidates: &[ToolIx]) -> Vec<(ToolIx, f64)> {
//!         let mut known = candidates.to_vec();
//!         known.sort_unstable();
//!         known.dedup();
//!         let count = |tool: ToolIx| Some((tool, f64::from(*self.n_calls.get(tool.index())?) + 1.0));
//!         known.into_iter().filter_map(count).collect()
//!     }
//! }
//!
//! impl Predictor for MostFrequent {
//!     fn name(&self) -> &'static str {
//!         "most_frequent"
//!     }
//!
//!     fn vocabulary(&self) -> &Vocabulary {
//!         &self.vocabulary
//!     }
//!
//!     fn predict(&self, _: &SessionHistory, candidates: &[ToolIx]) -> Forecast {
//!         let counts = self.counts(candidates);
//!         let sum: f64 = counts.iter().map(|(_, count)| count).sum();
//!         let shares = counts.into_iter().map(|(tool, count)| (tool, count / sum));
//!         Forecast::new(shares).unwrap_or_default()
//!     }
//!
//!     fn explain(
//!         &self,
//!         history: &SessionHistory,
//!         candidates: &[ToolIx],
//!         tools: &[ToolIx],
//!     ) -> Vec<Option<Explanation>> {
//!         let forecast = self.predict(history, candidates);
//!         let explain = |tool: &ToolIx| {
//!             forecast.rank(*tool)?;
//!             let probability = forecast.probability(*tool);
//!             let score = ScoreTerm::leaf("frequency", probability.ln());
//!             Explanation::new(probability, score, "share of the calls").ok()
//!         };
//!         tools.iter().map(explain).collect()
//!     }
//!
//!     fn similarities(&self, _: &SessionHistory, _: &TextEvidence) -> Vec<f64> {
//!         Vec::new()
//!     }
//! }
//!
//! impl Learner for MostFrequent {
//!     fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx> {
//!         let index = self.vocabulary.intern(tool)?;
//!         self.n_calls.resize(self.vocabulary.len(), 0);
//!         Some(index)
//!     }
//!
//!     fn learn(
//!         &mut self,
//!         history: &mut SessionHistory,
//!         _: &[ToolIx],
//!         called: ToolIx,
//!         scope: LearningScope,
//!     ) {
//!         if scope == LearningScope::Everything
//!             && let Some(n) = self.n_calls.get_mut(called.index())
//!         {
//!             *n = n.saturating_add(1);
//!         }
//!         history.push(called);
//!     }
//!
//!     fn end_session(&mut self, _: &SessionHistory) {}
//!
//!     fn maintain(&mut self, _: Timestamp) -> MaintenanceReport {
//!         MaintenanceReport::new(0)
//!     }
//!
//!     fn format(&self) -> u32 {
//!         1
//!     }
//!
//!     fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
//!         serde_json::to_vec(&(&self.vocabulary, &self.n_calls))
//!             .map_err(|error| SnapshotError::Unwritable(error.into()))
//!     }
//!
//!     fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
//!         if format != self.format() {
//!             let expected = self.format();
//!             return Err(SnapshotError::Format { expected, found: format });
//!         }
//!         let (vocabulary, n_calls): (Vocabulary, Vec<u32>) = serde_json::from_slice(bytes)
//!             .map_err(|error| SnapshotError::Damaged(error.into()))?;
//!         if vocabulary.len() != n_calls.len() {
//!             return Err(SnapshotError::Unsound);
//!         }
//!         *self = Self { vocabulary, n_calls };
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut learner = MostFrequent::default();
//! let upstream = UpstreamName::parse("files")?;
//! let mut tools = Vec::new();
//! for name in ["read", "write"] {
//!     let tool = ToolRef { upstream: upstream.clone(), tool: name.into() };
//!     tools.extend(learner.intern(&tool));
//! }
//! let mut history = SessionHistory::new(ClientKey::new(&Principal::local(), "editor"));
//! learner.learn(&mut history, &tools, tools[1], LearningScope::Everything);
//!
//! // A user that only predicts gets no more than a predictor.
//! let predictor: &dyn Predictor = &learner;
//! let forecast = predictor.predict(&history, &tools);
//! assert_eq!(forecast.rank(tools[1]), Some(1));
//! assert_eq!(forecast.mass(2), 1.0);
//!
//! let mut other = MostFrequent::default();
//! other.restore(learner.format(), &learner.snapshot()?)?;
//! assert_eq!(other.predict(&history, &tools), forecast);
//! # Ok(())
//! # }
//! ```

use std::fmt;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{
    Explanation, Forecast, LearningScope, MaintenanceReport, SessionHistory, SnapshotError,
    TextEvidence, ToolCounts, ToolIx, Vocabulary,
};

/// Predicts the next tool call from learned state. It keeps the [promises](self#promises) of the
/// module.
pub trait Predictor: Send + Sync + fmt::Debug {
    /// Returns the name of the predictor in the configuration.
    fn name(&self) -> &'static str;

    /// Returns all tools that the predictor has seen.
    fn vocabulary(&self) -> &Vocabulary;

    /// Returns the probability of each candidate to be called next. Candidates are the tools that
    /// can be called now.
    fn predict(&self, history: &SessionHistory, candidates: &[ToolIx]) -> Forecast;

    /// Returns the share of each candidate in the tools that the session has yet to use: how likely
    /// the session is to use it at all, relative to the others. Lists and answers of searches stay
    /// for a whole session, so their tools follow from this. `next` is the forecast of the next
    /// call for the same history and candidates. It is also the result of a predictor that predicts
    /// nothing else.
    fn predict_later(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        next: &Forecast,
    ) -> Forecast {
        let _ = (history, candidates);
        next.clone()
    }

    /// Returns explanations of the probabilities of these tools, in their order; `None` for a tool
    /// that is not a candidate.
    fn explain(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        tools: &[ToolIx],
    ) -> Vec<Option<Explanation>>;

    /// Returns the similarities of the ten most similar earlier texts of the principal, from 0 to
    /// 1.
    fn similarities(&self, history: &SessionHistory, text: &TextEvidence) -> Vec<f64>;

    /// Returns the learned counts of these tools in the situation of a session, in their order, for
    /// an [external predictor](crate::external_predictor). Zeros if the predictor has no counts.
    fn counts(&self, history: &SessionHistory, tools: &[ToolIx]) -> Vec<ToolCounts> {
        let _ = history;
        vec![ToolCounts::default(); tools.len()]
    }
}

/// A predictor that learns from each call. It keeps the [promises](self#promises) of the module.
pub trait Learner: Predictor {
    /// Returns the index of a tool, a new one for a new tool; `None` if the vocabulary is full
    /// ([`Vocabulary::MAX_TOOLS`]).
    fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx>;

    /// Learns that a tool was called out of these candidates, and adds the call to the session
    /// history. Failed calls count like others: they also show a need for the tool.
    fn learn(
        &mut self,
        history: &mut SessionHistory,
        candidates: &[ToolIx],
        called: ToolIx,
        lesson: LearningScope,
    );

    /// Learns from the complete history of a session that has ended.
    fn end_session(&mut self, history: &SessionHistory);

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

    /// Replaces the learned state by a snapshot.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError`] for another format, for damaged bytes, and for numbers that
    /// learning cannot produce.
    fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError>;
}
