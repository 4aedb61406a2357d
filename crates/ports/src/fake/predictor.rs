//! A predictor that can be made to panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{
    Engine, Expert, Explanation, Forecast, LearningScope, MaintenanceReport, PredictionMethod,
    SessionHistory, SnapshotError, TextEvidence, ToolCounts, ToolIx, Vocabulary,
};

use crate::predictor::{Learner, Predictor};

/// Predicts with an engine, by default the Markov expert, and panics on request.
#[derive(Debug)]
pub struct FailingPredictor {
    engine: Engine,
    is_failing: Arc<AtomicBool>,
}

impl FailingPredictor {
    /// Returns a predictor without learned state, which panics while `is_failing` is set.
    #[must_use]
    pub fn new(is_failing: Arc<AtomicBool>) -> Self {
        Self {
            engine: Engine::new(PredictionMethod::Expert(Expert::Markov), 30.0),
            is_failing,
        }
    }

    /// Returns a predictor that uses an engine and never panics.
    #[must_use]
    pub fn of(engine: Engine) -> Self {
        Self {
            engine,
            is_failing: Arc::default(),
        }
    }

    fn engine(&self) -> &Engine {
        assert!(!self.is_failing.load(Ordering::SeqCst), "told to fail");
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        assert!(!self.is_failing.load(Ordering::SeqCst), "told to fail");
        &mut self.engine
    }
}

impl Default for FailingPredictor {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Predictor for FailingPredictor {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.engine.vocabulary()
    }

    fn predict(&self, trail: &SessionHistory, candidates: &[ToolIx]) -> Forecast {
        self.engine().predict(trail, candidates)
    }

    fn explain(
        &self,
        trail: &SessionHistory,
        candidates: &[ToolIx],
        tools: &[ToolIx],
    ) -> Vec<Option<Explanation>> {
        self.engine().explain_each(trail, candidates, tools)
    }

    fn similarities(&self, trail: &SessionHistory, text: &TextEvidence) -> Vec<f64> {
        self.engine().similarities(trail, text)
    }

    fn counts(&self, trail: &SessionHistory, tools: &[ToolIx]) -> Vec<ToolCounts> {
        self.engine().counts(trail, tools)
    }
}

impl Learner for FailingPredictor {
    fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx> {
        self.engine.intern(tool)
    }

    fn learn(
        &mut self,
        trail: &mut SessionHistory,
        candidates: &[ToolIx],
        called: ToolIx,
        lesson: LearningScope,
    ) {
        self.engine_mut().learn(trail, candidates, called, lesson);
    }

    fn end_session(&mut self, trail: &SessionHistory) {
        self.engine_mut().end_session(trail);
    }

    fn maintain(&mut self, now: Timestamp) -> MaintenanceReport {
        self.engine_mut().maintain(now)
    }

    fn format(&self) -> u32 {
        Engine::FORMAT
    }

    fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        self.engine().snapshot()
    }

    fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.engine.restore(format, bytes)
    }
}
