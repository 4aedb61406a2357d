//! The slots of a running call.

use super::state::RunningSlot;

/// The slots of a running call. They are freed on drop, so also if the call is cancelled.
#[derive(Debug)]
pub(crate) struct LimitPermit {
    _places: Vec<RunningSlot>,
}

impl LimitPermit {
    pub(super) fn new(places: Vec<RunningSlot>) -> Self {
        Self { _places: places }
    }
}
