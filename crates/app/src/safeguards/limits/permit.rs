//! The places of a call that runs.

use std::sync::{Arc, Mutex, PoisonError};

use super::state::{PlaceKey, State};

/// The places of a call among those that may run at the same time; given up when it is dropped, however
/// the call came to its end.
#[derive(Debug, Default)]
pub(crate) struct LimitPermit(Option<(Arc<Mutex<State>>, Vec<PlaceKey>)>);

impl LimitPermit {
    /// Returns the permit of a call that took these places.
    pub(super) fn new(state: &Arc<Mutex<State>>, places: Vec<PlaceKey>) -> Self {
        Self((!places.is_empty()).then(|| (Arc::clone(state), places)))
    }
}

impl Drop for LimitPermit {
    fn drop(&mut self) {
        if let Some((state, places)) = self.0.take() {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.release(&places);
        }
    }
}
