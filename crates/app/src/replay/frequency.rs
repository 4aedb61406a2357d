//! The predictor that everything else is compared with: how often each tool was called.

use super::forecaster::{CallContext, Called, Forecaster, SessionContext};

/// What every tool counts before its first call.
const PRIOR: f64 = 0.1;

/// Counts of calls over all sessions that were learned from.
#[derive(Debug)]
pub(super) struct Frequency {
    counts: Vec<f64>,
}

impl Frequency {
    pub(super) fn new(n_tools: usize) -> Self {
        Self {
            counts: vec![PRIOR; n_tools],
        }
    }
}

impl Forecaster for Frequency {
    fn begin_session(&mut self, _session: &SessionContext<'_>) {}

    fn predict(&mut self, _call: &CallContext<'_>, scores: &mut [f64]) {
        for (score, count) in scores.iter_mut().zip(&self.counts) {
            *score = *count;
        }
    }

    fn observe(&mut self, called: &Called, learns: bool) {
        if let Some(count) = self.counts.get_mut(called.tool).filter(|_| learns) {
            *count += 1.0;
        }
    }

    fn end_session(&mut self, _learns: bool) {}
}
