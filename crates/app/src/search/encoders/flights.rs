//! What is being embedded: the same offer is embedded by one task at a time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

type Ids = Arc<Mutex<HashSet<[u8; 32]>>>;

/// The offers that are being embedded, or wait for their turn.
#[derive(Debug, Default)]
pub(in crate::search) struct Flights(Ids);

impl Flights {
    /// Begins the work on an offer, which lasts until the flight is dropped; `None` when it is under
    /// way.
    pub(in crate::search) fn begin(&self, offer: [u8; 32]) -> Option<Flight> {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(offer).then(|| Flight {
            ids: Arc::clone(&self.0),
            offer,
        })
    }
}

/// The work on an offer.
#[derive(Debug)]
pub(in crate::search) struct Flight {
    ids: Ids,
    offer: [u8; 32],
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.remove(&self.offer);
    }
}
