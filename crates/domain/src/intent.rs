//! What is being done, in words, as far as anybody said so.
//!
//! Texts come from several sources, some of which say it better than others. Each counts for some
//! time and for some calls; what was said last and what says most comes first. Texts are held in
//! memory alone.

mod shift;
mod stated;
mod texts;
mod weights;

use std::cmp::Reverse;
use std::collections::VecDeque;

use jiff::Timestamp;

pub use crate::context::ContextSource as IntentSource;
pub use shift::{RecentCall, similarity};
use stated::Contexts;
pub use stated::{ContextShift, StatedIntent};
pub use texts::{path_words, prompt_text, sampling_text, string_values};
pub use weights::{IntentWeights, WeightError};

/// The longest text of what is being done, in characters.
pub const MAX_INTENT_CHARS: usize = 2_000;
/// The minutes after which a text counts half.
const HALF_LIFE_MINUTES: f64 = 10.0;
/// The calls after which a text counts half.
const HALF_LIFE_CALLS: f64 = 10.0;
/// What counts less than this is forgotten.
const MIN_WEIGHT: f64 = 0.02;
/// The most characters of all texts of one session together.
const MAX_CHARS: usize = 2 * MAX_INTENT_CHARS;

/// What is being done, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownIntent {
    /// The texts, those that count most first, a line for each: at most [`MAX_INTENT_CHARS`]
    /// characters.
    pub text: String,
    /// How much the first of them counts, above 0.
    pub weight: f64,
}

/// What was said in one session of what is being done.
#[derive(Clone, Debug, Default)]
pub struct IntentMemory {
    /// Oldest first.
    notes: VecDeque<Note>,
    n_calls: u64,
    contexts: Contexts,
}

#[derive(Clone, Debug)]
struct Note {
    source: IntentSource,
    text: Box<str>,
    n_chars: usize,
    weight: f64,
    at: Timestamp,
    /// How many calls were made before.
    n_calls: u64,
}

impl IntentMemory {
    /// Notes a text. One of [`IntentSource::Arguments`] is a call of its own, empty or not, and so
    /// makes older texts count less. A text that is empty, or whose source does not count, is not
    /// kept. Returns the shift where another context than before was declared.
    pub fn note(
        &mut self,
        source: IntentSource,
        text: &str,
        weights: &IntentWeights,
        now: Timestamp,
    ) -> Option<ContextShift> {
        if source == IntentSource::Arguments {
            self.n_calls = self.n_calls.saturating_add(1);
        }
        let text: Box<str> = cut(text.trim(), MAX_INTENT_CHARS).trim_end().into();
        let weight = weights.of(source);
        if text.is_empty() || weight <= 0.0 {
            return None;
        }
        let shift = self.contexts.declare(source, &text, now);
        self.notes
            .retain(|note| note.source != source || note.text != text);
        self.notes.push_back(Note {
            source,
            n_chars: text.chars().count(),
            text,
            weight,
            at: now,
            n_calls: self.n_calls,
        });
        self.forget(source);
        shift
    }

    /// Notes a call, as far as it tells whether the context still holds. Returns the shift where
    /// recent calls are less like the context than `threshold` (0 to 1; 0 for never): they are the
    /// context from then on.
    pub fn called(&mut self, call: RecentCall, threshold: f64) -> Option<ContextShift> {
        self.contexts.called(call, threshold)
    }

    /// Returns what was said of what is wanted, as it was said: the context, which holds until
    /// another one takes its place, and what was looked for lately.
    #[must_use]
    pub fn stated(&self, now: Timestamp) -> StatedIntent {
        let tells = |source| {
            use IntentSource::{Prompt, Search};
            // What a server asks the client's model is written by the server.
            matches!(source, Search | Prompt)
        };
        // The newest last: of lines that say it, the last one counts.
        let sought: Vec<&str> = (self.notes.iter())
            .filter(|note| tells(note.source) && self.weight(note, now) >= MIN_WEIGHT)
            .map(|note| &*note.text)
            .collect();
        self.contexts.stated(sought.join("\n"))
    }

    /// Returns what is being done, of the texts that still count.
    #[must_use]
    pub fn current(&self, now: Timestamp) -> Option<KnownIntent> {
        let mut weighed: Vec<(f64, &Note)> = (self.notes.iter().rev())
            .map(|note| (self.weight(note, now), note))
            .filter(|(weight, _)| *weight >= MIN_WEIGHT)
            .collect();
        // Of those that count the same, the newest stay first.
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
            text.push_str(cut(&note.text, room - line));
            room = room.saturating_sub(line + note.n_chars);
        }
        Some(KnownIntent { text, weight })
    }

    /// Returns how much a text counts now.
    fn weight(&self, note: &Note, now: Timestamp) -> f64 {
        let minutes = now.duration_since(note.at).as_secs_f64().max(0.0) / 60.0;
        let calls = self.n_calls.saturating_sub(note.n_calls);
        let calls = u32::try_from(calls).map_or(f64::from(u32::MAX), f64::from);
        let n_halved = minutes / HALF_LIFE_MINUTES + calls / HALF_LIFE_CALLS;
        note.weight * 0.5_f64.powf(n_halved)
    }

    /// Forgets the oldest texts of a source that has too many, and of all where they are too long
    /// together.
    fn forget(&mut self, source: IntentSource) {
        let mut n_left = most_of(source);
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
            // What counts least goes first, and the oldest of those.
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

/// Returns how many texts of a source are kept: of those by which a client says itself what it does,
/// the last one, as it takes the place of what it said before.
fn most_of(source: IntentSource) -> usize {
    match source {
        IntentSource::SetContext | IntentSource::Request | IntentSource::Control => 1,
        IntentSource::Search => 3,
        IntentSource::Prompt | IntentSource::Sampling => 2,
        IntentSource::Resource | IntentSource::Arguments => 5,
    }
}

/// Returns the first `n` characters of a text.
fn cut(text: &str, n: usize) -> &str {
    let end = text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests;
