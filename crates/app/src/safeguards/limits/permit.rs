//! The places of a call that runs.

use super::state::Place;

/// The places of a call among those that may run at the same time; given up when it is dropped, however
/// the call came to its end.
#[derive(Debug)]
pub(crate) struct LimitPermit {
    _places: Vec<Place>,
}

impl LimitPermit {
    /// Returns the permit of a call that took these places.
    pub(super) fn new(places: Vec<Place>) -> Self {
        Self { _places: places }
    }
}
