//! A predictor that can be made to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use riglm_domain::prediction::{
    Engine, Expert, Explanation, Forecast, Lesson, Method, Slot, SnapshotError, TextEvidence,
    Trail, Upkeep, Vocabulary,
};
use riglm_domain::tool::ToolRef;

use crate::predictor::Predictor;

/// Predicts with an engine, by what followed the last calls unless it is given another one, and
/// panics when it is told to fail.
#[derive(Debug)]
pub struct FailingPredictor {
    engine: Engine,
    is_failing: Arc<AtomicBool>,
}

impl FailingPredictor {
    /// Returns one that learned nothing, and fails as long as `is_failing` is set.
    #[must_use]
    pub fn new(is_failing: Arc<AtomicBool>) -> Self {
        Self {
            engine: Engine::new(Method::Expert(Expert::Markov), 30.0),
            is_failing,
        }
    }

    /// Returns one that predicts with an engine, and does not fail.
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

    fn intern(&mut self, tool: &ToolRef) -> Option<Slot> {
        self.engine.intern(tool)
    }

    fn predict(&self, trail: &Trail, candidates: &[Slot]) -> Forecast {
        self.engine().predict(trail, candidates)
    }

    fn explain(
        &self,
        trail: &Trail,
        candidates: &[Slot],
        tools: &[Slot],
    ) -> Vec<Option<Explanation>> {
        self.engine().explain_each(trail, candidates, tools)
    }

    fn similarities(&self, trail: &Trail, text: &TextEvidence) -> Vec<f64> {
        self.engine().similarities(trail, text)
    }

    fn learn(&mut self, trail: &mut Trail, candidates: &[Slot], called: Slot, lesson: Lesson) {
        self.engine_mut().learn(trail, candidates, called, lesson);
    }

    fn end_session(&mut self, trail: &Trail) {
        self.engine_mut().end_session(trail);
    }

    fn upkeep(&mut self, now: Timestamp) -> Upkeep {
        self.engine_mut().upkeep(now)
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
