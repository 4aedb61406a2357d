//! Cache of search indexes, one per catalog.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::retrieval::{IndexedTool, ToolIndex, ToolText, ToolVectors, VectorCentre};
use sha2::{Digest, Sha256};

use super::catalog::{Catalog, CatalogTool};
use super::duplicates::Duplicates;
use super::escalation::{IdleNoteWarning, NotesConfig, NotesIndex};

/// Maximum number of cached indexes. There is one per set of upstreams that principals can see, and
/// sometimes the previous one of a changed catalog.
const MAX_OFFERS: usize = 16;
/// Maximum number of parsed definitions, so that a change of one tool needs only one new parse.
const MAX_DEFINITIONS: usize = 20_000;

/// A catalog with its search index.
#[derive(Debug)]
pub(super) struct SearchIndex {
    pub(super) by_words: ToolIndex,
    pub(super) alike: Duplicates,
    /// The same index with vectors, one per encoder that has finished.
    with_vectors: Vec<OnceLock<ToolIndex>>,
    /// Notes of operators about the tools.
    pub(super) notes: Option<NotesIndex>,
}

impl SearchIndex {
    /// Returns whether the vectors of an encoder are computed.
    pub(super) fn is_embedded(&self, tier: usize) -> bool {
        let place = self.with_vectors.get(tier);
        place.is_some_and(|place| place.get().is_some())
    }

    /// Returns the index with the vectors of all finished encoders, the better ones first.
    pub(super) fn index(&self) -> ToolIndex {
        let done = self.with_vectors.iter().filter_map(OnceLock::get);
        done.fold(self.by_words.clone(), ToolIndex::with_vectors_of)
    }

    /// Adds the vectors of an encoder.
    pub(super) fn add_vectors(
        &self,
        tier: usize,
        model: &str,
        vectors: &[ToolVectors],
        centre: &VectorCentre,
    ) {
        if let Some(place) = self.with_vectors.get(tier) {
            // Two tasks with the same catalog compute the same vectors, so the first one wins.
            let _ = place.set(self.by_words.with_vectors(model, vectors, centre));
        }
    }
}

/// Indexes of the catalogs that were searched or listed last.
#[derive(Debug)]
pub(super) struct IndexCache {
    n_tiers: usize,
    notes: NotesConfig,
    warned: IdleNoteWarning,
    held: Mutex<LruCache<[u8; 32], Arc<SearchIndex>>>,
    read: Mutex<LruCache<[u8; 32], IndexedTool>>,
}

impl IndexCache {
    pub(super) fn new(n_tiers: usize, notes: NotesConfig) -> Self {
        let cache = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            n_tiers,
            notes,
            warned: IdleNoteWarning::default(),
            held: Mutex::new(LruCache::new(cache(MAX_OFFERS))),
            read: Mutex::new(LruCache::new(cache(MAX_DEFINITIONS))),
        }
    }

    /// Returns the cached index of a catalog.
    pub(super) fn get(&self, catalog: &Catalog) -> Option<Arc<SearchIndex>> {
        let mut held = self.held.lock();
        held.get(&catalog.id()).cloned()
    }

    /// Builds the index of a catalog. This takes milliseconds for a thousand tools and blocks the
    /// thread.
    pub(super) fn build(&self, catalog: &Arc<Catalog>) -> Arc<SearchIndex> {
        if let Some(prepared) = self.get(catalog) {
            return prepared;
        }
        let tools = catalog
            .tools()
            .iter()
            .map(|tool| self.index_tool(catalog, tool));
        let by_words = ToolIndex::new(tools.collect());
        let prepared = Arc::new(SearchIndex {
            alike: Duplicates::new(by_words.tools()),
            notes: NotesIndex::new(
                &self.notes,
                &self.warned,
                catalog,
                by_words.tools(),
                self.n_tiers,
            ),
            by_words,
            with_vectors: (0..self.n_tiers).map(|_| OnceLock::new()).collect(),
        });
        let mut held = self.held.lock();
        let kept = held.get_or_insert(catalog.id(), || prepared);
        Arc::clone(kept)
    }

    fn index_tool(&self, catalog: &Catalog, tool: &CatalogTool) -> IndexedTool {
        let server = catalog
            .server(&tool.tool.upstream)
            .cloned()
            .unwrap_or_default();
        let mut digest = Sha256::new();
        // The key has everything that the indexed text depends on.
        for text in [
            tool.tool.upstream.as_str(),
            tool.tool.tool.as_str(),
            &server.name,
            &server.title,
            &server.instructions,
            &tool.definition,
        ] {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        let key: [u8; 32] = digest.finalize().into();
        let known = |read: &Mutex<LruCache<[u8; 32], IndexedTool>>| {
            let mut read = read.lock();
            read.get(&key).cloned()
        };
        if let Some(known) = known(&self.read) {
            return known;
        }
        let name = tool.tool.tool.as_str();
        let text = ToolText::of_definition(name, &tool.definition);
        let text = text.on_server(&server.name, &server.title, &server.instructions);
        let indexed = IndexedTool::new(tool.tool.clone(), text);
        let mut read = self.read.lock();
        read.put(key, indexed.clone());
        indexed
    }
}
