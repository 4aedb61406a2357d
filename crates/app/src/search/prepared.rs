//! Offers made ready to be searched, and held for the next search.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lru::LruCache;
use riglm_domain::retrieval::{Centre, IndexedTool, ToolIndex, ToolText, ToolVectors};
use sha2::{Digest, Sha256};

use super::alike::Alike;
use super::ladder::{NoteRules, PreparedNotes, Warned};
use super::offer::{Offer, OfferedTool};

/// How many different offers are held. There are as many as there are sets of upstreams that
/// principals are shown, and now and then one that has just changed.
const MAX_OFFERS: usize = 16;
/// How many read definitions are held, so that a change of one tool has one read again.
const MAX_DEFINITIONS: usize = 20_000;

/// An offer with its index.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) by_words: ToolIndex,
    pub(super) alike: Alike,
    /// The same with vectors, for each encoder that is done with it.
    with_vectors: Vec<OnceLock<ToolIndex>>,
    /// What operators know about its tools.
    pub(super) notes: Option<PreparedNotes>,
}

impl Prepared {
    /// Returns whether the vectors of an encoder are made.
    pub(super) fn is_embedded(&self, tier: usize) -> bool {
        let place = self.with_vectors.get(tier);
        place.is_some_and(|place| place.get().is_some())
    }

    /// Returns the index with the vectors of all encoders that are done, the better ones first.
    pub(super) fn index(&self) -> ToolIndex {
        let done = self.with_vectors.iter().filter_map(OnceLock::get);
        done.fold(self.by_words.clone(), ToolIndex::with_vectors_of)
    }

    /// Adds the vectors of an encoder.
    pub(super) fn add_vectors(
        &self,
        (tier, model): (usize, &str),
        vectors: &[ToolVectors],
        centre: &Centre,
    ) {
        if let Some(place) = self.with_vectors.get(tier) {
            // Two of the same offer make the same vectors.
            let _ = place.set(self.by_words.with_vectors(model, vectors, centre));
        }
    }
}

/// The offers that were searched or listed last.
#[derive(Debug)]
pub(super) struct Offers {
    n_tiers: usize,
    notes: NoteRules,
    warned: Warned,
    held: Mutex<LruCache<[u8; 32], Arc<Prepared>>>,
    read: Mutex<LruCache<[u8; 32], IndexedTool>>,
}

impl Offers {
    pub(super) fn new(n_tiers: usize, notes: NoteRules) -> Self {
        let cache = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            n_tiers,
            notes,
            warned: Warned::default(),
            held: Mutex::new(LruCache::new(cache(MAX_OFFERS))),
            read: Mutex::new(LruCache::new(cache(MAX_DEFINITIONS))),
        }
    }

    /// Returns an offer that was prepared before.
    pub(super) fn get(&self, offer: &Offer) -> Option<Arc<Prepared>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&offer.id()).cloned()
    }

    /// Prepares an offer. Takes milliseconds for a thousand tools; run it where that does not
    /// hold up anybody.
    pub(super) fn prepare(&self, offer: &Arc<Offer>) -> Arc<Prepared> {
        if let Some(prepared) = self.get(offer) {
            return prepared;
        }
        let tools = offer.tools().iter().map(|tool| self.read(offer, tool));
        let by_words = ToolIndex::new(tools.collect());
        let prepared = Arc::new(Prepared {
            alike: Alike::new(by_words.tools()),
            notes: PreparedNotes::new(
                (&self.notes, &self.warned),
                offer,
                by_words.tools(),
                self.n_tiers,
            ),
            by_words,
            with_vectors: (0..self.n_tiers).map(|_| OnceLock::new()).collect(),
        });
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = held.get_or_insert(offer.id(), || prepared);
        Arc::clone(kept)
    }

    fn read(&self, offer: &Offer, tool: &OfferedTool) -> IndexedTool {
        let server = offer
            .server(&tool.tool.upstream)
            .cloned()
            .unwrap_or_default();
        let mut digest = Sha256::new();
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
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            read.get(&key).cloned()
        };
        if let Some(known) = known(&self.read) {
            return known;
        }
        let name = tool.tool.tool.as_str();
        let text = ToolText::of_definition(name, &tool.definition);
        let text = text.on_server(&server.name, &server.title, &server.instructions);
        let indexed = IndexedTool::new(tool.tool.clone(), text);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.put(key, indexed.clone());
        indexed
    }
}
