//! Example of a predictor in Rust: the successors of the last call.
//!
//! It counts which tool followed which, and predicts the tools that followed the last one; tools that
//! never did, by how often they were called. The contract suite of riglm tests it
//! (`tests/contract.rs`), and `main.rs` makes a program of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{
    Explanation, Forecast, LearningScope, MaintenanceReport, ScoreTerm, SessionHistory,
    SnapshotError, TextEvidence, ToolIx, Vocabulary,
};
use riglm_ports::predictor::{Learner, Predictor};

/// The form of the snapshots.
const FORMAT: u32 = 1;

/// Counts of calls, by the index of the tool.
type Counts = BTreeMap<usize, f64>;

/// Predicts the successors of the last call.
#[derive(Debug, Default)]
pub struct Successors {
    vocabulary: Vocabulary,
    /// Calls of each tool.
    calls: Counts,
    /// Calls of each tool right after each tool.
    after: BTreeMap<usize, Counts>,
}

impl Successors {
    /// Returns the weights of the candidates, each once: the share after the last call, mixed with
    /// the share of all calls as if that was one more call (Witten and Bell 1991, method C).
    fn weights(&self, history: &SessionHistory, candidates: &[ToolIx]) -> Vec<(ToolIx, f64)> {
        let mut known = candidates.to_vec();
        known.sort_unstable();
        known.dedup();
        known.retain(|tool| self.vocabulary.tool(*tool).is_some());
        let total: f64 = self.calls.values().sum();
        let none = Counts::new();
        let after = history
            .last()
            .and_then(|last| self.after.get(&last.index()));
        let after = after.unwrap_or(&none);
        let n_kinds = after.values().map(|_| 1.0).sum::<f64>().max(1.0);
        let weight = |tool: &ToolIx| {
            let count = |counts: &Counts| counts.get(&tool.index()).copied().unwrap_or(0.0);
            // No tool has the weight 0: a tool that was never called may be called next.
            let share = (count(&self.calls) + 0.1) / (total + 1.0);
            count(after) + n_kinds * share
        };
        known.iter().map(|tool| (*tool, weight(tool))).collect()
    }
}

impl Predictor for Successors {
    fn name(&self) -> &'static str {
        "successors"
    }

    fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    fn predict(&self, history: &SessionHistory, candidates: &[ToolIx]) -> Forecast {
        let weights = self.weights(history, candidates);
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let shares = weights
            .into_iter()
            .map(|(tool, weight)| (tool, weight / sum));
        Forecast::new(shares).unwrap_or_default()
    }

    fn explain(
        &self,
        history: &SessionHistory,
        candidates: &[ToolIx],
        tools: &[ToolIx],
    ) -> Vec<Option<Explanation>> {
        let forecast = self.predict(history, candidates);
        let last = history.last().and_then(|last| self.vocabulary.tool(last));
        let explain = |tool: &ToolIx| {
            forecast.rank(*tool)?;
            let probability = forecast.probability(*tool);
            let score = ScoreTerm::leaf("successors", probability.ln());
            let sentence = last.map_or_else(
                || "often called".to_owned(),
                |last| format!("often called after {}", last.tool),
            );
            Explanation::new(probability, score, sentence).ok()
        };
        tools.iter().map(explain).collect()
    }

    fn similarities(&self, _: &SessionHistory, _: &TextEvidence) -> Vec<f64> {
        Vec::new()
    }
}

impl Learner for Successors {
    fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx> {
        self.vocabulary.intern(tool)
    }

    fn learn(
        &mut self,
        history: &mut SessionHistory,
        _: &[ToolIx],
        called: ToolIx,
        scope: LearningScope,
    ) {
        let is_known = self.vocabulary.tool(called).is_some();
        if is_known && scope == LearningScope::Everything {
            *self.calls.entry(called.index()).or_default() += 1.0;
            if let Some(last) = history.last() {
                let after = self.after.entry(last.index()).or_default();
                *after.entry(called.index()).or_default() += 1.0;
            }
        }
        if is_known {
            history.push(called);
        }
    }

    fn end_session(&mut self, _: &SessionHistory) {}

    fn maintain(&mut self, _: Timestamp) -> MaintenanceReport {
        MaintenanceReport::new(self.after.len())
    }

    fn format(&self) -> u32 {
        FORMAT
    }

    fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        serde_json::to_vec(&(&self.vocabulary, &self.calls, &self.after))
            .map_err(|error| SnapshotError::Unwritable(error.into()))
    }

    fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        if format != FORMAT {
            return Err(SnapshotError::Format {
                expected: FORMAT,
                found: format,
            });
        }
        let (vocabulary, calls, after): (Vocabulary, Counts, BTreeMap<usize, Counts>) =
            serde_json::from_slice(bytes).map_err(|error| SnapshotError::Damaged(error.into()))?;
        let is_sound = |counts: &Counts| {
            let mut each = counts.iter();
            each.all(|(tool, count)| *tool < vocabulary.len() && count.is_finite() && *count >= 0.0)
        };
        if !is_sound(&calls) || !after.values().all(is_sound) {
            return Err(SnapshotError::Unsound);
        }
        *self = Self {
            vocabulary,
            calls,
            after,
        };
        Ok(())
    }
}
