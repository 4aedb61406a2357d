//! The intent of a session: its current task in words, from texts of several sources.
//!
//! Sources differ in reliability, so each has a weight. The weight of a text decays with time and
//! with the number of calls. Texts with the highest weights come first, newer ones before older
//! ones. Texts are held in memory only.

pub mod context;
mod declared_context;
mod shift;
mod texts;
mod weights;

use std::cmp::Reverse;
use std::collections::VecDeque;

use jiff::Timestamp;

pub use crate::intent::context::ContextSource as IntentSource;
use declared_context::DeclaredContexts;
pub use declared_context::{ContextShift, StatedIntent};
pub use shift::{RecentCall, similarity};
pub use texts::{path_words, prompt_text, sampling_text, string_values};
pub use weights::IntentWeights;

/// Maximum length of an intent, in characters.
pub const MAX_INTENT_CHARS: usize = 2_000;
/// Half-life of a text's weight in minutes.
const HALF_LIFE_MINUTES: f64 = 10.0;
/// Half-life of a text's weight in calls.
const HALF_LIFE_CALLS: f64 = 10.0;
/// Texts with a lower weight are ignored.
const MIN_WEIGHT: f64 = 0.02;
/// Maximum length of all texts of one session together, in characters.
const MAX_CHARS: usize = 2 * MAX_INTENT_CHARS;

/// The current intent of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownIntent {
    /// The texts by descending weight, one per line: at most [`MAX_INTENT_CHARS`] characters.
    pub text: String,
    /// The weight of the first text, above 0.
    pub weight: f64,
}

/// The texts about the intent of one session.
#[derive(Clone, Debug, Default)]
pub struct IntentMemory {
    /// Oldest first.
    notes: VecDeque<WeightedText>,
    n_calls: u64,
    contexts: DeclaredContexts,
}

#[derive(Clone, Debug)]
struct WeightedText {
    source: IntentSource,
    text: Box<str>,
    n_chars: usize,
    weight: f64,
    at: Timestamp,
    /// Number of calls before the text.
    n_calls: u64,
}

impl IntentMemory {
    /// Adds a text. A text of [`IntentSource::Arguments`] counts as a call, even if it is empty,
    /// and so lowers the weight of older texts. Empty texts, and texts of sources with weight 0,
    /// are not kept. Returns a shift if another context than before was declared.
    pub fn add_text(
        &mut self,
        source: IntentSource,
        text: &str,
        weights: &IntentWeights,
        now: Timestamp,
    ) -> Option<ContextShift> {
        if source == IntentSource::Arguments {
            self.n_calls = self.n_calls.saturating_add(1);
        }
        let text: Box<str> = truncate_chars(text.trim(), MAX_INTENT_CHARS)
            .trim_end()
            .into();
        let weight = weights.of(source);
        if text.is_empty() || weight <= 0.0 {
            return None;
        }
        let shift = self.contexts.declare(source, &text, now);
        self.notes
            .retain(|note| note.source != source || note.text != text);
        self.notes.push_back(WeightedText {
            source,
            n_chars: text.chars().count(),
            text,
            weight,
            at: now,
            n_calls: self.n_calls,
        });
        self.drop_excess_texts(source);
        shift
    }

    /// Adds a call and compares recent calls with the context. Returns a shift if their similarity
    /// is below `threshold` (0 to 1; 0 turns this off). These calls then become the context.
    pub fn add_call(&mut self, call: RecentCall, threshold: f64) -> Option<ContextShift> {
        self.contexts.add_call(call, threshold)
    }

    /// Returns the stated intent in its original words: the context, which holds until another one
    /// replaces it, and the recent searches and prompts.
    #[must_use]
    pub fn stated_intent(&self, now: Timestamp) -> StatedIntent {
        let tells = |source| {
            use IntentSource::{Prompt, Search};
            // Not Sampling: its text is written by the server, not by the client.
            matches!(source, Search | Prompt)
        };
        // Newest last: if several lines say something, the last one counts.
        let sought: Vec<&str> = (self.notes.iter())
            .filter(|note| tells(note.source) && self.weight(note, now) >= MIN_WEIGHT)
            .map(|note| &*note.text)
            .collect();
        self.contexts.stated_intent(sought.join("\n"))
    }

    /// Returns the current intent from the texts that still have weight.
    #[must_use]
    pub fn current_intent(&self, now: Timestamp) -> Option<KnownIntent> {
        let mut weighed: Vec<(f64, &WeightedText)> = (self.notes.iter().rev())
            .map(|note| (self.weight(note, now), note))
            .filter(|(weight, _)| *weight >= MIN_WEIGHT)
            .collect();
        // Stable sort: texts of equal weight stay newest first.
        weighed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let weight = weighed.first()?.0;
        let mut text = String::new();
        let mut room = MAX_INTENT_CHARS;
        let mut seen: Vec<&str> = Vec::new();
        for (_, note) in weighed {
            if seen.contains(&&*note.text) {
                continue;
            }
            seen.push(&note.text);
            let line = usize::from(!text.is_empty());
            if room <= line {
                break;
            }
            if line == 1 {
                text.push('\n');
            }
            text.push_str(truncate_chars(&note.text, room - line));
            room = room.saturating_sub(line + note.n_chars);
        }
        Some(KnownIntent { text, weight })
    }

    /// Returns the current weight of a text.
    fn weight(&self, note: &WeightedText, now: Timestamp) -> f64 {
        let minutes = now.duration_since(note.at).as_secs_f64().max(0.0) / 60.0;
        let calls = self.n_calls.saturating_sub(note.n_calls);
        let calls = u32::try_from(calls).map_or(f64::from(u32::MAX), f64::from);
        let n_halved = minutes / HALF_LIFE_MINUTES + calls / HALF_LIFE_CALLS;
        note.weight * 0.5_f64.powf(n_halved)
    }

    /// Removes the oldest texts of a source above its limit, and texts of any source above the
    /// total length.
    fn drop_excess_texts(&mut self, source: IntentSource) {
        let mut n_left = max_texts(source);
        let newest_first = self.notes.iter().rev();
        let mut kept: Vec<bool> = newest_first
            .map(|note| {
                let is_kept = note.source != source || n_left > 0;
                n_left -= usize::from(is_kept && note.source == source);
                is_kept
            })
            .collect();
        self.notes.retain(|_| kept.pop().unwrap_or(true));
        while self.notes.iter().map(|note| note.n_chars).sum::<usize>() > MAX_CHARS {
            // Removes the text with the lowest weight, the oldest one first.
            let least = self
                .notes
                .iter()
                .enumerate()
                .min_by(|(at, one), (other_at, other)| {
                    one.weight
                        .total_cmp(&other.weight)
                        .then_with(|| Reverse(other_at).cmp(&Reverse(at)))
                });
            let Some(least) = least.map(|(at, _)| at) else {
                return;
            };
            self.notes.remove(least);
        }
    }
}

/// Returns the maximum number of texts of a source. It is 1 for sources in which a client declares
/// its task, because each declaration replaces the one before.
fn max_texts(source: IntentSource) -> usize {
    match source {
        IntentSource::SetContext | IntentSource::Request | IntentSource::Control => 1,
        IntentSource::Search => 3,
        IntentSource::Prompt | IntentSource::Sampling => 2,
        IntentSource::Resource | IntentSource::Arguments => 5,
    }
}

/// Returns the first `n` characters of a text.
fn truncate_chars(text: &str, n: usize) -> &str {
    let end = text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests;
