//! Token counts of definitions.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_ports::token_counter::TokenCounter;
use sha2::{Digest, Sha256};

use riglm_discovery::search::Catalog;

/// Size of the cache of token counts; a full cache is cleared.
const MAX_KNOWN: usize = 20_000;
/// Bytes per token, as an estimate for definitions that are not counted yet.
const BYTES_PER_TOKEN: u64 = 4;
/// Longer definitions are estimated: counting them takes long, and their exact size hardly changes
/// a list.
const MAX_COUNTED_BYTES: usize = 64 << 10;

/// Token counts of definitions, each counted once.
#[derive(Debug)]
pub(super) struct DefinitionSizes {
    counter: Arc<dyn TokenCounter>,
    known: Mutex<HashMap<[u8; 16], u64>>,
    totals: Mutex<HashMap<[u8; 32], u64>>,
}

impl DefinitionSizes {
    pub(super) fn new(counter: Arc<dyn TokenCounter>) -> Self {
        Self {
            counter,
            known: Mutex::default(),
            totals: Mutex::default(),
        }
    }

    /// Returns the number of tokens of a definition.
    pub(super) fn of(&self, definition: &str) -> u64 {
        if definition.len() > MAX_COUNTED_BYTES {
            return estimate_tokens(definition);
        }
        let mut key = [0; 16];
        key.copy_from_slice(&Sha256::digest(definition)[..16]);
        let known = |known: &HashMap<[u8; 16], u64>| known.get(&key).copied();
        if let Some(size) = known(&self.known.lock()) {
            return size;
        }
        // Counting takes time, so it happens without the lock.
        let size = self.counter.count(definition);
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, size);
        size
    }

    /// Returns the number of tokens of all definitions of a catalog. It is an estimate until a
    /// background task has counted them.
    pub(super) fn total(self: &Arc<Self>, catalog: &Arc<Catalog>) -> u64 {
        let id = catalog.id();
        {
            let mut totals = self.totals.lock();
            if let Some(total) = totals.get(&id) {
                return *total;
            }
            let tools = catalog.tools().iter();
            let estimate: u64 = tools.map(|tool| estimate_tokens(&tool.definition)).sum();
            if totals.len() >= 256 {
                totals.clear();
            }
            totals.insert(id, estimate);
        }
        let (sizes, catalog) = (Arc::clone(self), Arc::clone(catalog));
        let count = move || {
            let tools = catalog.tools().iter();
            let total = tools.map(|tool| sizes.of(&tool.definition)).sum();
            sizes.totals.lock().insert(id, total);
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(count);
        } else {
            count();
        }
        let totals = self.totals.lock();
        totals.get(&id).copied().unwrap_or_default()
    }
}

fn estimate_tokens(definition: &str) -> u64 {
    (definition.len() as u64).div_ceil(BYTES_PER_TOKEN)
}
