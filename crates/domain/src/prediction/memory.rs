//! Memory of earlier sessions and texts of a principal, for nearest-neighbour experts.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::numeric::to_f32;
use super::session_history::{SessionHistory, TextEpisode, TextEvidence};
use crate::num::to_f64;
use crate::retrieval::embedding::Embedding;

/// A text of a session, and the tools used while it was current, with their shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredText {
    words: Vec<u64>,
    vector: Option<Embedding>,
    used: Vec<(u32, f32)>,
    /// The tools that the session used from this text on.
    later: Vec<u32>,
}

/// The tools of a session in the order of their first calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredSession {
    client: u64,
    tools: Vec<u32>,
}

/// The newest sessions and texts of one principal. They are private: predictions for other
/// principals do not use them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PrincipalMemory {
    sessions: VecDeque<StoredSession>,
    texts: VecDeque<StoredText>,
    /// Number of the first stored text. Texts are numbered consecutively.
    n_forgotten: u32,
    /// The numbers of the texts with each word, ascending.
    texts_with: BTreeMap<u64, VecDeque<u32>>,
}

impl PrincipalMemory {
    const MAX_SESSIONS: usize = 1_000;
    const MAX_TEXTS: usize = 300;
    /// Maximum number of stored tools of a session or a text.
    const MAX_TOOLS: usize = 64;
    /// Number of nearest texts that count.
    const N_NEIGHBOURS: usize = 10;
    /// Gain of a tool's probability in a similar session, relative to its frequency.
    const GAIN: f64 = 4.0;
    /// Decay per step back in the session, for the match of its last tools.
    const FADING: f64 = 0.8;
    /// Decay per step ahead, for the tools that followed.
    const FOLLOWING: f64 = 0.6;

    /// Stores an ended session.
    pub(super) fn learn(&mut self, history: &SessionHistory) {
        if history.used.is_empty() {
            return;
        }
        if self.sessions.len() >= Self::MAX_SESSIONS {
            self.sessions.pop_front();
        }
        let tools = history
            .used_tools()
            .take(Self::MAX_TOOLS)
            .map(|slot| slot.0);
        self.sessions.push_back(StoredSession {
            client: history.party.client,
            tools: tools.collect(),
        });
        for (at, episode) in history.episodes.iter().enumerate() {
            self.learn_text(episode, &history.episodes[at..]);
        }
    }

    /// Stores a text. `from_it` are its episode and all later ones.
    fn learn_text(&mut self, episode: &TextEpisode, from_it: &[TextEpisode]) {
        let is_silent = episode.text.words.is_empty() && episode.text.vector.is_none();
        if is_silent || episode.used.is_empty() {
            return;
        }
        if self.texts.len() >= Self::MAX_TEXTS {
            self.forget_text();
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(0) + self.n_forgotten;
        for word in &episode.text.words {
            self.texts_with.entry(*word).or_default().push_back(number);
        }
        // Square roots, so that a tool with many calls does not outweigh the others.
        let used = episode.used.iter().take(Self::MAX_TOOLS);
        let roots = used.map(|(slot, n)| (slot.0, f64::from(*n).sqrt()));
        let roots: Vec<(u32, f64)> = roots.collect();
        let total: f64 = roots.iter().map(|(_, root)| root).sum();
        let mut later: Vec<u32> = Vec::new();
        for (slot, _) in from_it.iter().flat_map(|episode| &episode.used) {
            if later.len() < Self::MAX_TOOLS && !later.contains(&slot.0) {
                later.push(slot.0);
            }
        }
        self.texts.push_back(StoredText {
            words: episode.text.words.clone(),
            vector: episode.text.vector.clone(),
            used: (roots.into_iter())
                .map(|(slot, root)| (slot, to_f32(root / total)))
                .collect(),
            later,
        });
    }

    fn forget_text(&mut self) {
        let Some(oldest) = self.texts.pop_front() else {
            return;
        };
        self.n_forgotten += 1;
        for word in oldest.words {
            if let Some(texts) = self.texts_with.get_mut(&word) {
                texts.pop_front();
                if texts.is_empty() {
                    self.texts_with.remove(&word);
                }
            }
        }
    }

    /// Adds the tools of the ten nearest earlier texts to `out`. Each text has the cube of its
    /// similarity as weight. The similarity is the share of the words of `text` that it has,
    /// weighted by their rarity, or the similarity of the vectors if that is larger. Returns whether
    /// any text is near.
    pub(super) fn add_nearest(&self, text: &TextEvidence, out: &mut [f64]) -> bool {
        let near = self.neighbours(text);
        for (nearness, at) in &near {
            let weight = nearness.powi(3);
            for (slot, share) in &self.texts[*at].used {
                if let Some(value) = out.get_mut(*slot as usize) {
                    *value += weight * f64::from(*share);
                }
            }
        }
        !near.is_empty()
    }

    /// Adds the tools that sessions used from the ten nearest earlier texts on to `out`. Each text
    /// has the cube of its similarity as weight. Returns the sum of the weights.
    pub(super) fn add_later(&self, text: &TextEvidence, out: &mut [f64]) -> f64 {
        let mut total = 0.0;
        for (nearness, at) in self.neighbours(text) {
            let weight = nearness.powi(3);
            total += weight;
            for slot in &self.texts[at].later {
                if let Some(value) = out.get_mut(*slot as usize) {
                    *value += weight;
                }
            }
        }
        total
    }

    pub(super) fn n_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the clients of the sessions with the tools in the order of their first calls, the
    /// oldest session first.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (u64, &[u32])> {
        (self.sessions.iter()).map(|session| (session.client, session.tools.as_slice()))
    }

    /// Returns the similarities of the ten nearest earlier texts, from 0 to 1, the nearest first.
    pub(super) fn similarities(&self, text: &TextEvidence) -> Vec<f64> {
        let near = self.neighbours(text).into_iter();
        near.map(|(nearness, _)| nearness).collect()
    }

    fn neighbours(&self, text: &TextEvidence) -> Vec<(f64, usize)> {
        let n = to_f64(self.texts.len());
        let mut shared = vec![0.0; self.texts.len()];
        let mut total = 0.0;
        for word in &text.words {
            let with = self.texts_with.get(word);
            let weight = (1.0 + n / to_f64(with.map_or(1, VecDeque::len).max(1))).ln();
            total += weight;
            for number in with.into_iter().flatten() {
                let at = number.wrapping_sub(self.n_forgotten) as usize;
                if let Some(shared) = shared.get_mut(at) {
                    *shared += weight;
                }
            }
        }
        let vectors = self.texts.iter().map(|known| known.vector.as_ref());
        let by_vector = vector_similarities(text.vector.as_ref(), vectors);
        let mut near: Vec<(f64, usize)> = (shared.iter().zip(by_vector).enumerate())
            .map(|(at, (shared, by_vector))| {
                let by_words = shared / f64::max(total, 1e-9);
                (f64::max(by_words, by_vector).min(1.0), at)
            })
            .filter(|(nearness, _)| *nearness > 0.0)
            .collect();
        near.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        near.truncate(Self::N_NEIGHBOURS);
        near
    }

    /// Adds the tools of the earlier sessions to `out`. Each session is weighted by the likelihood
    /// of the current tools in it: `prod_a (1 + 4 / (p_a |S|))` over the tools `a` that both have,
    /// with `p_a` the frequency. Returns whether there is any session.
    pub(super) fn add_similar(
        &self,
        history: &SessionHistory,
        frequency: &[f64],
        out: &mut [f64],
    ) -> bool {
        let mut gains = vec![0.0; out.len()];
        for used in &history.used {
            if let Some(gain) = gains.get_mut(used.slot.index()) {
                *gain = Self::GAIN / frequency[used.slot.index()].max(1e-6);
            }
        }
        for StoredSession { tools: session, .. } in &self.sessions {
            let (weight, _) = likelihood(session, &gains);
            let share = weight / to_f64(session.len().max(1));
            for slot in session {
                if let Some(value) = out.get_mut(*slot as usize) {
                    *value += share;
                }
            }
        }
        !self.sessions.is_empty()
    }

    /// Adds the tools that followed in earlier sessions to `out`: the tools after the last one that
    /// a session shares with the current one, with full weight for the next and less for each
    /// further one. Sessions are weighted as in [`Self::add_similar`], but only by the last few tools,
    /// the newer ones more. Returns whether there is any session.
    pub(super) fn add_following(
        &self,
        history: &SessionHistory,
        frequency: &[f64],
        out: &mut [f64],
    ) -> bool {
        let mut gains = vec![0.0; out.len()];
        let mut fading = Self::GAIN;
        for slot in history.changes.iter().rev() {
            if let Some(gain) = gains.get_mut(slot.index()) {
                *gain = f64::max(*gain, fading / frequency[slot.index()].max(1e-6));
            }
            fading *= Self::FADING;
        }
        let mut is_used = vec![false; out.len()];
        for used in &history.used {
            if let Some(is_used) = is_used.get_mut(used.slot.index()) {
                *is_used = true;
            }
        }
        for StoredSession { tools: session, .. } in &self.sessions {
            let (mut weight, at) = likelihood(session, &gains);
            for slot in &session[at..] {
                if is_used.get(*slot as usize) == Some(&false) {
                    out[*slot as usize] += weight;
                    weight *= Self::FOLLOWING;
                }
            }
        }
        !self.sessions.is_empty()
    }

    #[cfg(test)]
    pub(super) fn learn_invalid(&mut self) {
        self.texts.push_back(StoredText {
            words: Vec::new(),
            vector: None,
            used: vec![(0, f32::NAN)],
            later: Vec::new(),
        });
    }

    pub(super) fn is_sound(&self) -> bool {
        let shares = self.texts.iter().flat_map(|text| &text.used);
        let mut shares = shares.map(|(_, share)| *share);
        shares.all(|share| share.is_finite() && share >= 0.0)
    }
}

/// Returns the likelihood of the tools with a gain in a session, relative to other sessions, and
/// the position after the last of these tools.
fn likelihood(session: &[u32], gains: &[f64]) -> (f64, usize) {
    let size = to_f64(session.len().max(1));
    let mut weight = 1.0;
    let mut after = 0;
    for (at, slot) in session.iter().enumerate() {
        let gain = gains.get(*slot as usize).copied().unwrap_or(0.0);
        if gain > 0.0 {
            // The limit keeps the product finite in long sessions.
            weight = f64::min(weight * (1.0 + gain / size), 1e200);
            after = at + 1;
        }
    }
    (weight, after)
}

/// Returns the similarities of a vector to others, from 0 to 1; 0 without two vectors of the same
/// model.
///
/// Cosines of unrelated texts depend on the model: they are near 0.8 for E5, and near 0.3 for static
/// vectors. So a cosine counts from one standard deviation above the mean on, and 1 stays 1. Two
/// assumed cosines of 0 count in the mean, for a memory of few texts.
fn vector_similarities<'a>(
    vector: Option<&Embedding>,
    others: impl Iterator<Item = Option<&'a Embedding>>,
) -> Vec<f64> {
    const N_ASSUMED: f64 = 2.0;
    let cosines: Vec<Option<f64>> = others.map(|other| cosine(vector?, other?)).collect();
    let known = || cosines.iter().flatten();
    let n = to_f64(known().count());
    let sum: f64 = known().sum();
    let mean = sum / n.max(1.0);
    let squares: f64 = known().map(|cosine| (cosine - mean).powi(2)).sum();
    let deviation = (squares / n.max(1.0)).sqrt();
    let least = (sum / (n + N_ASSUMED) + deviation).min(1.0 - 1e-6);
    let rescale = |cosine: f64| ((cosine - least) / (1.0 - least)).clamp(0.0, 1.0);
    (cosines.iter())
        .map(|cosine| cosine.map_or(0.0, rescale))
        .collect()
}

/// Returns the cosine of two vectors of unit length; `None` if their models differ.
fn cosine(a: &Embedding, b: &Embedding) -> Option<f64> {
    if a.model() != b.model() || a.vector().len() != b.vector().len() {
        return None;
    }
    let products = a.vector().iter().zip(b.vector());
    Some(products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the similarities of a text to others with these cosines.
    fn similarities(cosines: &[f64]) -> Vec<f64> {
        let embedding = |vector: [f64; 2]| Embedding::new("m", vector.map(to_f32).to_vec());
        let own = embedding([1.0, 0.0]).unwrap();
        let others = cosines.iter().map(|cosine| {
            let angle = cosine.acos();
            embedding([angle.cos(), angle.sin()]).unwrap()
        });
        let others: Vec<Embedding> = others.collect();
        vector_similarities(Some(&own), others.iter().map(Some))
    }

    #[test]
    fn cosines_that_all_texts_have_do_not_count() {
        // A model whose cosines of unrelated texts are near 0.8.
        let mut cosines: Vec<f64> = (0..40).map(|n| 0.78 + 0.001 * f64::from(n)).collect();
        cosines.push(0.95);
        let found = similarities(&cosines);
        assert!(found[..40].iter().all(|value| *value < 0.2), "{found:?}");
        assert!(found[40] > 0.7, "{found:?}");
    }

    #[test]
    fn the_same_text_is_similar_in_a_memory_of_any_size() {
        for n in [0, 1, 5, 50] {
            let mut cosines = vec![0.3; n];
            cosines.push(1.0);
            let found = similarities(&cosines);
            assert!(found[n] > 0.999, "{n}: {found:?}");
        }
        let all_the_same = similarities(&[1.0; 300]);
        assert!(all_the_same[0] > 0.99, "{all_the_same:?}");
    }

    #[test]
    fn vectors_of_other_models_are_not_similar() {
        let of = |model: &str| Embedding::new(model, vec![1.0]).unwrap();
        let (own, other) = (of("m"), of("n"));
        let found = vector_similarities(Some(&own), [Some(&other), None, Some(&own)].into_iter());
        assert_eq!(found[..2], [0.0, 0.0]);
        assert!(found[2] > 0.999);
        assert_eq!(vector_similarities(None, [Some(&own)].into_iter()), [0.0]);
    }
}
