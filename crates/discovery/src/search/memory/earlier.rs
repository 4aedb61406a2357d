//! Earlier queries of a principal that led to successful calls, as a source of query variants.
//!
//! Texts are only in memory, and in the store if the operator has enabled the recording of texts. A
//! query that was deleted from the store is dropped here at the next read of the store.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{ExpansionRules, QueryVariant, VariantSource, cosine_of};

use crate::search::learning::{PastSearch, UseAfterText};

/// Maximum number of texts per principal.
const MAX_TEXTS: usize = 200;
/// Maximum length of a text in bytes. Longer texts describe a whole task and are not useful as
/// query variants.
const MAX_TEXT_BYTES: usize = 400;
/// Vectors with a larger cosine belong to the same text.
const SAME_TEXT_COSINE: f64 = 0.999;

/// A search of the store, and whether a successful call followed.
#[derive(Debug)]
pub(super) struct StoredSearch {
    text: Embedding,
    words: Option<Arc<str>>,
    at: Timestamp,
    led_to_success: bool,
}

impl StoredSearch {
    /// Summarizes a stored text and the calls after it.
    pub(super) fn of(text: &UseAfterText) -> Self {
        Self {
            text: text.text.clone(),
            words: text.words.as_deref().map(Arc::from),
            at: text.given_at,
            led_to_success: text.calls.iter().any(|(_, is_ok)| *is_ok),
        }
    }
}

/// Searches of one principal, oldest first.
#[derive(Debug, Default)]
pub(super) struct EarlierSearches(VecDeque<PastSearch>);

impl EarlierSearches {
    /// Adds a search that led to a successful call.
    pub(super) fn add(&mut self, search: PastSearch) {
        if search.words.len() > MAX_TEXT_BYTES {
            return;
        }
        self.0.retain(|known| known.words != search.words);
        if self.0.len() >= MAX_TEXTS {
            self.0.pop_front();
        }
        self.0.push_back(search);
    }

    /// Synchronizes with the store: adds its texts, and drops searches that it no longer has. A
    /// search younger than `new` stays, because it may not be in the store yet.
    pub(super) fn synchronize(
        &mut self,
        kept: Vec<StoredSearch>,
        now: Timestamp,
        new: SignedDuration,
    ) {
        self.0.retain(|known| {
            let is_new = now.duration_since(known.at) < new;
            let is_it = |kept: &StoredSearch| cosine_of(&kept.text, &known.text) > SAME_TEXT_COSINE;
            is_new || kept.iter().any(is_it)
        });
        // Stored searches are added first, so that the order stays oldest first.
        let newer = std::mem::take(&mut self.0);
        for kept in kept {
            if let (Some(words), true) = (kept.words, kept.led_to_success) {
                self.add(PastSearch {
                    text: kept.text,
                    words,
                    at: kept.at,
                });
            }
        }
        for search in newer {
            self.add(search);
        }
    }

    /// Returns at most `n` texts that are similar to this vector, the most similar first.
    pub(super) fn nearest(&self, text: &Embedding, n: usize) -> Vec<QueryVariant> {
        let near = self.0.iter().filter_map(|known| {
            let trust = ExpansionRules::history_trust(cosine_of(&known.text, text))?;
            Some((trust, &known.words))
        });
        let mut near: Vec<(f64, &Arc<str>)> = near.collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let variant = |(trust, words): (f64, &Arc<str>)| QueryVariant {
            text: words.to_string(),
            source: VariantSource::History,
            trust,
        };
        near.into_iter().take(n).map(variant).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: SignedDuration = SignedDuration::from_mins(10);

    fn vector(angle: f32) -> Embedding {
        Embedding::new("m", vec![angle.cos(), angle.sin()]).unwrap()
    }

    fn search(words: &str, angle: f32) -> PastSearch {
        PastSearch {
            text: vector(angle),
            words: words.into(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn texts(searches: &EarlierSearches, angle: f32, n: usize) -> Vec<String> {
        let near = searches.nearest(&vector(angle), n).into_iter();
        near.map(|variant| variant.text).collect()
    }

    #[test]
    fn the_nearest_different_searches_are_found() {
        let mut searches = EarlierSearches::default();
        for (words, angle) in [("same", 0.01), ("near", 0.5), ("nearer", 0.4), ("far", 1.5)] {
            searches.add(search(words, angle));
        }
        assert_eq!(texts(&searches, 0.0, 5), ["nearer", "near"]);
        assert_eq!(texts(&searches, 0.0, 1), ["nearer"]);
    }

    #[test]
    fn texts_are_few_short_and_different() {
        let mut searches = EarlierSearches::default();
        for number in 0..300 {
            searches.add(search(&format!("{}", number % 250), 0.5));
        }
        assert_eq!(searches.0.len(), 200);
        assert_eq!(&*searches.0.back().unwrap().words, "49");
        searches.add(search(&"x".repeat(401), 0.5));
        assert_eq!(&*searches.0.back().unwrap().words, "49");
        searches.add(search(&"x".repeat(400), 0.5));
        assert_eq!(searches.0.back().unwrap().words.len(), 400);
    }

    #[test]
    fn synchronization_drops_deleted_searches_and_adds_stored_ones() {
        let kept = |words: Option<&str>, angle, led_to_success| StoredSearch {
            text: vector(angle),
            words: words.map(Arc::from),
            at: Timestamp::UNIX_EPOCH,
            led_to_success,
        };
        let mut searches = EarlierSearches::default();
        searches.add(search("deleted", 0.4));
        searches.add(search("there", 0.6));
        let new = Timestamp::UNIX_EPOCH + NEW - SignedDuration::from_secs(1);
        searches.synchronize(Vec::new(), new, NEW);
        assert_eq!(searches.0.len(), 2, "the store may not have it yet");
        let old = Timestamp::UNIX_EPOCH + NEW;
        let stored = vec![
            kept(None, 0.6, true),
            kept(Some("kept"), 0.5, true),
            kept(Some("failed"), 0.5, false),
        ];
        searches.synchronize(stored, old, NEW);
        assert_eq!(texts(&searches, 0.0, 5), ["kept", "there"]);
    }
}
