//! The history of a session so far, as far as predictions use it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::advice::Advice;
use super::numeric::text_key;
use super::vocabulary::{ToolIx, Vocabulary};
use crate::privacy::principal::Principal;
use crate::retrieval::embedding::Embedding;
use crate::retrieval::words;

/// The owner of a session, as hash keys of the principal and its client. Learned data is kept for
/// each principal, for each kind of client, and for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientKey {
    pub(super) principal: u64,
    pub(super) client: u64,
}

impl ClientKey {
    /// Returns the key of a principal with a client. `client` is the name that the client reports,
    /// or a hash of it.
    #[must_use]
    pub fn new(principal: &Principal, client: &str) -> Self {
        Self {
            principal: text_key(principal.as_str()),
            client: text_key(client),
        }
    }

    /// Returns the hash key of the principal, which is the same for all its clients.
    #[must_use]
    pub fn principal_key(self) -> u64 {
        self.principal
    }

    /// Returns the key of the principal, for all its clients.
    pub(crate) fn of_principal(self) -> (u64, u64) {
        (self.principal, 0)
    }

    /// Returns the key of the client of the principal.
    pub(crate) fn of_client(self) -> (u64, u64) {
        (self.principal, self.client)
    }
}

/// The text about the current task of a client, as evidence for predictions.
///
/// It holds hashes of the words and not the words. Scores are finite and above 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextEvidence {
    /// Hashes of the different words, ascending.
    pub(super) words: Vec<u64>,
    /// Scores of the fit of tools to the text: see [`Self::with_scores`].
    pub(super) scores: Vec<(ToolIx, f64)>,
    pub(super) vector: Option<Embedding>,
}

impl TextEvidence {
    /// Maximum number of different words of a text that count.
    pub const MAX_WORDS: usize = 512;

    /// Reads a text. Only hashes of its words are stored.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut keys: Vec<u64> = (words(text).iter())
            .take(4 * Self::MAX_WORDS)
            .map(|word| text_key(word))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(Self::MAX_WORDS);
        Self {
            words: keys,
            ..Self::default()
        }
    }

    /// Returns the evidence of a text without its words: the vector from an encoder, of unit
    /// length.
    #[must_use]
    pub fn of_vector(vector: Embedding) -> Self {
        Self::default().with_vector(vector)
    }

    /// Adds scores of the fit of tools to the text, as in a search: larger is better, on any scale.
    /// Scores that are not finite or not above 0 are dropped.
    #[must_use]
    pub fn with_scores(mut self, scores: impl IntoIterator<Item = (ToolIx, f64)>) -> Self {
        self.scores = (scores.into_iter())
            .filter(|(_, score)| score.is_finite() && *score > 0.0)
            .collect();
        self
    }

    /// Adds the vector of the text from an encoder, of unit length.
    #[must_use]
    pub fn with_vector(mut self, vector: Embedding) -> Self {
        self.vector = Some(vector);
        self
    }

    /// Returns the hashes of the different words, ascending, at most [`Self::MAX_WORDS`]. Two texts
    /// with a word in common have its hash in common.
    #[must_use]
    pub fn word_keys(&self) -> &[u64] {
        &self.words
    }

    /// Returns the scores of the fit of tools to the text, in the order in which they were given.
    #[must_use]
    pub fn scores(&self) -> &[(ToolIx, f64)] {
        &self.scores
    }

    /// Returns the vector of the text from an encoder.
    #[must_use]
    pub fn vector(&self) -> Option<&Embedding> {
        self.vector.as_ref()
    }
}

/// A tool that a session used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolUsage {
    pub(super) slot: ToolIx,
    pub(super) n_calls: u32,
    /// Number of the first call, from 0.
    pub(super) first_call: usize,
    /// Number of the last call.
    pub(super) last_call: usize,
    /// Sum of `0.7^age` over the calls, as of the last call; ages are in calls.
    pub(super) recency: f64,
}

/// A text with the tools that were used while it was current.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TextEpisode {
    pub(super) text: TextEvidence,
    pub(super) used: Vec<(ToolIx, u32)>,
}

/// The history of a session: its client, its calls and texts so far.
///
/// Its indexes belong to the vocabulary of the predictor that it is given to. Calls are only added,
/// by [`Self::push`], and the time of the next prediction never goes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionHistory {
    pub(super) party: ClientKey,
    pub(super) n_calls: usize,
    /// The last calls, the newest last.
    pub(super) last: Vec<ToolIx>,
    /// The last calls, with consecutive calls of one tool as one, the newest last.
    pub(super) changes: Vec<ToolIx>,
    /// The different tools in the order of their first calls.
    pub(super) used: Vec<ToolUsage>,
    /// Number of consecutive calls of the last tool.
    pub(super) run_length: u32,
    pub(super) episodes: Vec<TextEpisode>,
    pub(super) now: Option<Timestamp>,
    /// The advice for the next call.
    advice: Option<Advice>,
}

impl SessionHistory {
    /// Number of last calls that are kept in their order.
    pub const MAX_LAST: usize = 8;
    /// Maximum number of texts of one session that are learned from.
    const MAX_EPISODES: usize = 64;
    /// Maximum number of tools of a session, the newest ones, with which a new tool is paired.
    pub(super) const MAX_PARTNERS: usize = 64;
    /// Decay of the recency of a tool with each later call.
    pub(super) const RECENCY: f64 = 0.7;

    /// Returns the history of a session without calls.
    #[must_use]
    pub fn new(party: ClientKey) -> Self {
        Self {
            party,
            n_calls: 0,
            last: Vec::new(),
            changes: Vec::new(),
            used: Vec::new(),
            run_length: 0,
            episodes: Vec::new(),
            now: None,
            advice: None,
        }
    }

    /// Sets the text about the current task.
    pub fn set_text(&mut self, text: TextEvidence) {
        if let Some(current) = self.episodes.last_mut()
            && current.used.is_empty()
        {
            // No call was made with the text before, so there is nothing to learn from it.
            current.text = text;
            return;
        }
        if self.episodes.len() >= Self::MAX_EPISODES {
            self.episodes.remove(0);
        }
        self.episodes.push(TextEpisode {
            text,
            used: Vec::new(),
        });
    }

    /// Sets the advice of another predictor for the next call, or removes it. A call removes it, too.
    pub fn set_advice(&mut self, advice: Option<Advice>) {
        self.advice = advice;
    }

    /// Sets the time for the next prediction. Times that go back are ignored.
    pub fn set_time(&mut self, at: Timestamp) {
        self.now = Some(self.now.map_or(at, |now| now.max(at)));
    }

    /// Returns whether the history is valid for a vocabulary. A history that was read from bytes
    /// may belong to another vocabulary, or have impossible numbers.
    #[must_use]
    pub fn is_over(&self, vocabulary: &Vocabulary) -> bool {
        let is_known = |slot: &ToolIx| slot.index() < vocabulary.len();
        let is_sound = |used: &ToolUsage| {
            let is_before = used.first_call <= used.last_call && used.last_call < self.n_calls;
            is_known(&used.slot) && is_before && used.recency.is_finite() && used.recency >= 0.0
        };
        let texts = self.episodes.iter();
        (self.last.iter().chain(&self.changes)).all(is_known)
            && self.last.len() <= Self::MAX_LAST
            && self.changes.len() <= Self::MAX_LAST
            && self.used.iter().all(is_sound)
            && self
                .advice
                .as_ref()
                .is_none_or(|advice| advice.is_over(vocabulary.len()))
            && texts
                .clone()
                .all(|it| it.used.iter().all(|(slot, _)| is_known(slot)))
            && (texts.flat_map(|it| &it.text.scores))
                .all(|(slot, score)| is_known(slot) && score.is_finite() && *score > 0.0)
    }

    /// Returns the principal and the client of the session.
    #[must_use]
    pub fn party(&self) -> ClientKey {
        self.party
    }

    /// Returns the advice of another predictor for the next call.
    #[must_use]
    pub fn advice(&self) -> Option<&Advice> {
        self.advice.as_ref()
    }

    /// Returns the time for the next prediction; `None` if it was never set.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        self.now
    }

    /// Returns the tools of the last calls, at most [`Self::MAX_LAST`], the newest last.
    #[must_use]
    pub fn last_calls(&self) -> &[ToolIx] {
        &self.last
    }

    /// Returns the number of calls of a tool.
    #[must_use]
    pub fn n_calls_of(&self, slot: ToolIx) -> u32 {
        let used = self.used.iter().find(|used| used.slot == slot);
        used.map_or(0, |used| used.n_calls)
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Returns the different tools that were called, in the order of their first calls.
    pub fn used_tools(&self) -> impl ExactSizeIterator<Item = ToolIx> {
        self.used.iter().map(|used| used.slot)
    }

    /// Returns the tool of the last call.
    #[must_use]
    pub fn last(&self) -> Option<ToolIx> {
        self.last.last().copied()
    }

    /// Returns the text about the current task.
    #[must_use]
    pub fn text(&self) -> Option<&TextEvidence> {
        self.episodes.last().map(|episode| &episode.text)
    }

    /// Returns a copy with only the parts that predictions depend on: of the texts, the current
    /// one.
    pub(super) fn prediction_state(&self) -> Self {
        let text = self.text().map(|text| TextEpisode {
            text: text.clone(),
            used: Vec::new(),
        });
        Self {
            party: self.party,
            n_calls: self.n_calls,
            last: self.last.clone(),
            changes: self.changes.clone(),
            used: self.used.clone(),
            run_length: self.run_length,
            episodes: text.into_iter().collect(),
            now: self.now,
            advice: self.advice.clone(),
        }
    }

    /// Returns the last tool of a server that was called.
    pub(super) fn last_on_server(&self, server: u32, vocabulary: &Vocabulary) -> Option<ToolIx> {
        let of_server = self.used.iter();
        let of_server = of_server.filter(|used| vocabulary.server(used.slot) == Some(server));
        let last = of_server.max_by_key(|used| used.last_call)?;
        Some(last.slot)
    }

    pub(super) fn has_used(&self, slot: ToolIx) -> bool {
        self.used.iter().any(|used| used.slot == slot)
    }

    /// Returns the history as if the session called this tool next. The advice of another predictor
    /// stays, because it is still the newest.
    #[must_use]
    pub fn with_assumed_call(&self, slot: ToolIx) -> Self {
        let mut history = self.clone();
        history.push(slot);
        history.advice.clone_from(&self.advice);
        history
    }

    /// Adds a call.
    pub fn push(&mut self, slot: ToolIx) {
        self.run_length = if self.last() == Some(slot) {
            self.run_length.saturating_add(1)
        } else {
            1
        };
        if self.last.len() == Self::MAX_LAST {
            self.last.remove(0);
        }
        if self.last() != Some(slot) {
            if self.changes.len() == Self::MAX_LAST {
                self.changes.remove(0);
            }
            self.changes.push(slot);
        }
        self.last.push(slot);
        self.advice = None;
        match self.used.iter_mut().find(|used| used.slot == slot) {
            Some(used) => {
                used.recency = 1.0 + used.recency * recency_decay(self.n_calls - used.last_call);
                used.n_calls = used.n_calls.saturating_add(1);
                used.last_call = self.n_calls;
            }
            None => self.used.push(ToolUsage {
                slot,
                n_calls: 1,
                first_call: self.n_calls,
                last_call: self.n_calls,
                recency: 1.0,
            }),
        }
        if let Some(episode) = self.episodes.last_mut() {
            match episode.used.iter_mut().find(|(used, _)| *used == slot) {
                Some((_, n)) => *n = n.saturating_add(1),
                None => episode.used.push((slot, 1)),
            }
        }
        self.n_calls += 1;
    }

    /// Returns the recency of a used tool before the next call.
    pub(super) fn recency(&self, used: &ToolUsage) -> f64 {
        used.recency * recency_decay(self.n_calls.saturating_sub(used.last_call + 1))
    }
}

fn recency_decay(n_calls: usize) -> f64 {
    SessionHistory::RECENCY.powi(i32::try_from(n_calls.min(1_000)).unwrap_or(1_000))
}
