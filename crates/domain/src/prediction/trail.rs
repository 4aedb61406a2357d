//! What happened in a session so far, as far as it tells what comes next.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::number::text_key;
use super::vocabulary::{Slot, Vocabulary};
use crate::embedding::Embedding;
use crate::principal::Principal;
use crate::retrieval::words;

/// Whose session it is, as keys: what is learned is kept for each principal, for each kind of
/// client, and for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Party {
    pub(super) principal: u64,
    pub(super) client: u64,
}

impl Party {
    /// Returns the party of a principal that uses a client; `client` is the name that the client
    /// gives itself, or a hash of it.
    #[must_use]
    pub fn new(principal: &Principal, client: &str) -> Self {
        Self {
            principal: text_key(principal.as_str()),
            client: text_key(client),
        }
    }

    /// Returns the key of the principal, whatever its client.
    pub(crate) fn of_principal(self) -> (u64, u64) {
        (self.principal, 0)
    }

    /// Returns the key of the client of the principal.
    pub(crate) fn of_client(self) -> (u64, u64) {
        (self.principal, self.client)
    }
}

/// What is known of what the client is doing, in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextEvidence {
    /// Keys of the different words, ascending.
    pub(super) words: Vec<u64>,
    /// How well tools fit the text: see [`Self::with_scores`].
    pub(super) scores: Vec<(Slot, f64)>,
    pub(super) vector: Option<Embedding>,
}

impl TextEvidence {
    /// The most different words of a text that count.
    pub const MAX_WORDS: usize = 512;

    /// Reads a text. Only keys of its words are kept.
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

    /// Returns what is known of a text whose words are not: the vector that an encoder made of it,
    /// of unit length.
    #[must_use]
    pub fn of_vector(vector: Embedding) -> Self {
        Self::default().with_vector(vector)
    }

    /// Adds how well tools fit the text, as a search ranks them: the larger the better, on any
    /// scale. Scores that are not finite or not above zero are left out.
    #[must_use]
    pub fn with_scores(mut self, scores: impl IntoIterator<Item = (Slot, f64)>) -> Self {
        self.scores = (scores.into_iter())
            .filter(|(_, score)| score.is_finite() && *score > 0.0)
            .collect();
        self
    }

    /// Adds the vector that an encoder made of the text, of unit length.
    #[must_use]
    pub fn with_vector(mut self, vector: Embedding) -> Self {
        self.vector = Some(vector);
        self
    }
}

/// A tool that a session used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Used {
    pub(super) slot: Slot,
    pub(super) n_calls: u32,
    /// The number of the first call, from 0.
    pub(super) first_call: usize,
    /// The number of the last call.
    pub(super) last_call: usize,
    /// The sum of `0.7^age` over the calls, at the last call; ages in calls.
    pub(super) recency: f64,
}

/// A text with the tools that were used while it stood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Episode {
    pub(super) text: TextEvidence,
    pub(super) used: Vec<(Slot, u32)>,
}

/// The calls of a session so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trail {
    pub(super) party: Party,
    pub(super) n_calls: usize,
    /// The last calls, the newest last.
    pub(super) last: Vec<Slot>,
    /// The last calls with runs of one tool as one, the newest last.
    pub(super) changes: Vec<Slot>,
    /// The different tools in the order of their first calls.
    pub(super) used: Vec<Used>,
    /// How often the last tool was called in a row.
    pub(super) run_length: u32,
    pub(super) episodes: Vec<Episode>,
    pub(super) now: Option<Timestamp>,
}

impl Trail {
    /// How many of the last calls are remembered in their order.
    pub(super) const MAX_LAST: usize = 8;
    /// The most texts of one session that are learned from.
    const MAX_EPISODES: usize = 64;
    /// The most tools of a session that a further one is paired with, the newest ones.
    pub(super) const MAX_PARTNERS: usize = 64;
    /// What a call counts of the one after it, for the recency of a tool.
    pub(super) const RECENCY: f64 = 0.7;

    /// Returns the trail of a session without calls.
    #[must_use]
    pub fn new(party: Party) -> Self {
        Self {
            party,
            n_calls: 0,
            last: Vec::new(),
            changes: Vec::new(),
            used: Vec::new(),
            run_length: 0,
            episodes: Vec::new(),
            now: None,
        }
    }

    /// Says what the client is doing from now on.
    pub fn set_text(&mut self, text: TextEvidence) {
        if let Some(current) = self.episodes.last_mut()
            && current.used.is_empty()
        {
            current.text = text;
            return;
        }
        if self.episodes.len() >= Self::MAX_EPISODES {
            self.episodes.remove(0);
        }
        self.episodes.push(Episode {
            text,
            used: Vec::new(),
        });
    }

    /// Sets the time for what is predicted next. Times that go back count as the latest one.
    pub fn set_time(&mut self, at: Timestamp) {
        self.now = Some(self.now.map_or(at, |now| now.max(at)));
    }

    /// Returns whether the trail can be one over a vocabulary. One that was read from bytes may be
    /// of another one, or have numbers that no calls give.
    #[must_use]
    pub fn is_over(&self, vocabulary: &Vocabulary) -> bool {
        let is_known = |slot: &Slot| slot.index() < vocabulary.len();
        let is_sound = |used: &Used| {
            let is_before = used.first_call <= used.last_call && used.last_call < self.n_calls;
            is_known(&used.slot) && is_before && used.recency.is_finite() && used.recency >= 0.0
        };
        let texts = self.episodes.iter();
        (self.last.iter().chain(&self.changes)).all(is_known)
            && self.last.len() <= Self::MAX_LAST
            && self.changes.len() <= Self::MAX_LAST
            && self.used.iter().all(is_sound)
            && texts
                .clone()
                .all(|it| it.used.iter().all(|(slot, _)| is_known(slot)))
            && (texts.flat_map(|it| &it.text.scores))
                .all(|(slot, score)| is_known(slot) && score.is_finite() && *score > 0.0)
    }

    /// Returns how many calls there were.
    #[must_use]
    pub fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Returns the different tools that were called, in the order of their first calls.
    pub fn used(&self) -> impl ExactSizeIterator<Item = Slot> {
        self.used.iter().map(|used| used.slot)
    }

    /// Returns the last tool that was called.
    #[must_use]
    pub fn last(&self) -> Option<Slot> {
        self.last.last().copied()
    }

    /// Returns what is known of what the client is doing.
    #[must_use]
    pub fn text(&self) -> Option<&TextEvidence> {
        self.episodes.last().map(|episode| &episode.text)
    }

    /// Returns the trail with nothing but what tells what comes next: of the texts the one that
    /// stands.
    pub(super) fn situation(&self) -> Self {
        let text = self.text().map(|text| Episode {
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
        }
    }

    pub(super) fn has_used(&self, slot: Slot) -> bool {
        self.used.iter().any(|used| used.slot == slot)
    }

    /// Adds a call.
    pub fn push(&mut self, slot: Slot) {
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
        match self.used.iter_mut().find(|used| used.slot == slot) {
            Some(used) => {
                used.recency = 1.0 + used.recency * decayed(self.n_calls - used.last_call);
                used.n_calls = used.n_calls.saturating_add(1);
                used.last_call = self.n_calls;
            }
            None => self.used.push(Used {
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
    pub(super) fn recency(&self, used: &Used) -> f64 {
        used.recency * decayed(self.n_calls.saturating_sub(used.last_call + 1))
    }
}

fn decayed(n_calls: usize) -> f64 {
    Trail::RECENCY.powi(i32::try_from(n_calls.min(1_000)).unwrap_or(1_000))
}
