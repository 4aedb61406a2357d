//! Lists of what is likely enough to hold a coverage.

use super::simulation::{ListRule, Moment};
use super::tool_set::ToolSet;
use crate::conformal::ConformalThreshold;

/// Every tool that the threshold admits, and the most likely one in any case.
#[derive(Debug)]
pub(super) struct ConformalRule {
    /// `None` when nothing can be promised: everything is listed.
    threshold: Option<ConformalThreshold>,
}

impl ConformalRule {
    pub(super) fn new(percent: u8, n_tools: usize) -> Self {
        let coverage = f64::from(percent) / 100.0;
        Self {
            threshold: ConformalThreshold::new(coverage, n_tools).ok(),
        }
    }
}

impl ListRule for ConformalRule {
    fn list(&mut self, moment: &Moment<'_>, listed: &mut ToolSet) -> bool {
        let forecast = moment.forecast;
        let admitted = |tool: &usize| {
            let probability = forecast.probability(*tool);
            (self.threshold.as_ref()).is_none_or(|threshold| threshold.admits(probability))
        };
        // What is admitted stands before what is not.
        let n_admitted = forecast.ranking().partition_point(admitted);
        let n_listed = n_admitted.max(1).min(forecast.n_tools());
        let likely = &forecast.ranking()[..n_listed];
        let stays = listed.len() == n_listed && likely.iter().all(|tool| listed.contains(*tool));
        if !stays {
            listed.clear();
            listed.extend(likely.iter().copied());
        }
        !stays
    }

    fn learn(&mut self, was_listed: bool) {
        if let Some(threshold) = &mut self.threshold {
            threshold.learn(!was_listed);
        }
    }
}
