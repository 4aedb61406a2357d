//! How many tokens definitions have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use riglm_ports::token_counter::TokenCounter;
use sha2::{Digest, Sha256};

use crate::search::Offer;

/// The most definitions whose size is remembered; beyond it the memory begins anew.
const MAX_KNOWN: usize = 20_000;
/// How many bytes a token has about, of a definition that was not counted yet.
const BYTES_PER_TOKEN: u64 = 4;
/// A longer definition is not counted: that would take long, and no list of its own is chosen by
/// the last token of it.
const MAX_COUNTED_BYTES: usize = 64 << 10;

/// The sizes of definitions in tokens, each counted once.
#[derive(Debug)]
pub(super) struct Sizes {
    counter: Arc<dyn TokenCounter>,
    known: Mutex<HashMap<[u8; 16], u64>>,
    totals: Mutex<HashMap<[u8; 32], u64>>,
}

impl Sizes {
    pub(super) fn new(counter: Arc<dyn TokenCounter>) -> Self {
        Self {
            counter,
            known: Mutex::default(),
            totals: Mutex::default(),
        }
    }

    /// Returns how many tokens a definition has.
    pub(super) fn of(&self, definition: &str) -> u64 {
        if definition.len() > MAX_COUNTED_BYTES {
            return estimated(definition);
        }
        let mut key = [0; 16];
        key.copy_from_slice(&Sha256::digest(definition)[..16]);
        let known = |known: &HashMap<[u8; 16], u64>| known.get(&key).copied();
        if let Some(size) = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return size;
        }
        let size = self.counter.count(definition);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, size);
        size
    }

    /// Returns how many tokens the definitions of an offer have together: as they were counted, or
    /// an estimate while they are not. They are counted in the background then.
    pub(super) fn total(self: &Arc<Self>, offer: &Arc<Offer>) -> u64 {
        let id = offer.id();
        {
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(total) = totals.get(&id) {
                return *total;
            }
            let estimate: u64 = offer
                .tools()
                .iter()
                .map(|tool| estimated(&tool.definition))
                .sum();
            if totals.len() >= 256 {
                totals.clear();
            }
            totals.insert(id, estimate);
        }
        let (sizes, offer) = (Arc::clone(self), Arc::clone(offer));
        let count = move || {
            let total = offer
                .tools()
                .iter()
                .map(|tool| sizes.of(&tool.definition))
                .sum();
            let mut totals = sizes.totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.insert(id, total);
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(count);
        } else {
            count();
        }
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.get(&id).copied().unwrap_or_default()
    }
}

fn estimated(definition: &str) -> u64 {
    (definition.len() as u64).div_ceil(BYTES_PER_TOKEN)
}
