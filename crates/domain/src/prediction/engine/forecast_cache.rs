//! A cache of the inputs of the latest forecast: learning from the next call needs the same inputs.

use std::fmt;
use std::sync::Mutex;

use crate::prediction::mixers::{MixInputs, MixOutput};
use crate::prediction::session_history::SessionHistory;

/// The inputs and outputs of one forecast.
#[derive(Debug)]
pub(super) struct CachedForecast {
    /// The session history and the candidates (ascending) of the forecast: the key of the cache.
    situation: SessionHistory,
    candidates: Vec<usize>,
    pub(super) scene: MixInputs,
    pub(super) outcome: MixOutput,
}

impl CachedForecast {
    pub(super) fn new(
        history: &SessionHistory,
        candidates: Vec<usize>,
        scene: MixInputs,
        outcome: MixOutput,
    ) -> Self {
        Self {
            situation: history.prediction_state(),
            candidates,
            scene,
            outcome,
        }
    }

    /// Returns whether it is valid for this key, as long as nothing was learned since.
    fn matches_key(&self, history: &SessionHistory, candidates: &[usize]) -> bool {
        self.candidates == candidates && self.situation == history.prediction_state()
    }
}

/// A cache with one entry: the inputs of the latest forecast. Any change of the learned state must
/// clear it. A clone of an engine starts with an empty cache.
#[derive(Default)]
pub(super) struct ForecastCache(Mutex<Option<CachedForecast>>);

impl ForecastCache {
    /// Stores an entry. If the cache is in use by another thread, the entry is dropped: it is only
    /// an optimisation.
    pub(super) fn store(&self, prepared: CachedForecast) {
        if let Ok(mut latest) = self.0.try_lock() {
            let before = latest.replace(prepared);
            // The old entry is freed after the lock is released.
            drop(latest);
            drop(before);
        }
    }

    /// Takes the entry out if it is for this key and the cache is not in use by another thread.
    pub(super) fn try_take(
        &self,
        history: &SessionHistory,
        candidates: &[usize],
    ) -> Option<CachedForecast> {
        let mut latest = self.0.try_lock().ok()?;
        latest.take_if(|latest| latest.matches_key(history, candidates))
    }

    /// Takes the entry out if it is for this key.
    pub(super) fn take(
        &mut self,
        history: &SessionHistory,
        candidates: &[usize],
    ) -> Option<CachedForecast> {
        let latest = self.0.get_mut().ok()?.take();
        latest.filter(|latest| latest.matches_key(history, candidates))
    }

    pub(super) fn clear(&mut self) {
        if let Ok(latest) = self.0.get_mut() {
            *latest = None;
        }
    }
}

impl Clone for ForecastCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for ForecastCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latest").finish_non_exhaustive()
    }
}
