//! Lists with a conformal threshold, which is adjusted to reach a target coverage.

use super::list_simulation::{CallMoment, ListRule};
use super::tool_set::ToolSet;
use riglm_domain::selection::conformal::ConformalThreshold;

/// Lists every tool that the threshold admits, and always the most likely one.
#[derive(Debug)]
pub(super) struct ConformalRule {
    /// `None` if the coverage cannot be guaranteed: then all tools are listed.
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
    fn list(&mut self, moment: &CallMoment<'_>, listed: &mut ToolSet) -> bool {
        let forecast = moment.forecast;
        let admitted = |tool: &usize| {
            let probability = forecast.probability(*tool);
            (self.threshold.as_ref()).is_none_or(|threshold| threshold.admits(probability))
        };
        // The threshold is monotone in the probability, so admitted tools are a prefix of the
        // ranking.
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
