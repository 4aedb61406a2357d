//! Registry of catalogs that are being embedded, so that only one task embeds each catalog.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

type Ids = Arc<Mutex<HashSet<[u8; 32]>>>;

/// Catalogs that are being embedded or wait for it.
#[derive(Debug, Default)]
pub(in crate::search) struct EmbeddingTasks(Ids);

impl EmbeddingTasks {
    /// Starts the work on a catalog. It ends when the returned guard is dropped. Returns `None` if
    /// another task works on this catalog.
    pub(in crate::search) fn begin(&self, catalog: [u8; 32]) -> Option<EmbeddingTask> {
        let mut ids = self.0.lock();
        ids.insert(catalog).then(|| EmbeddingTask {
            ids: Arc::clone(&self.0),
            catalog,
        })
    }
}

/// Guard of the work on a catalog.
#[derive(Debug)]
pub(in crate::search) struct EmbeddingTask {
    ids: Ids,
    catalog: [u8; 32],
}

impl Drop for EmbeddingTask {
    fn drop(&mut self) {
        let mut ids = self.ids.lock();
        ids.remove(&self.catalog);
    }
}
