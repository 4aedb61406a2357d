//! What was used before for what, and with what.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::semantic::dot;
use crate::embedding::Embedding;
use crate::tool::ToolKey;

/// How much the history counts, and how it is read.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryWeights {
    /// What is added for tools that were used after similar texts.
    pub memory: f64,
    /// What is added for tools that go with the best hits and with those used in the session.
    pub companions: f64,
    /// What is added for the tool that is called most.
    pub frequency: f64,
    /// The most similar texts that are remembered at once.
    pub n_neighbours: usize,
    /// The days after which a text counts half.
    pub half_life_days: f64,
}

impl Default for HistoryWeights {
    fn default() -> Self {
        Self {
            memory: 0.4,
            companions: 0.25,
            frequency: 0.05,
            n_neighbours: 12,
            half_life_days: 30.0,
        }
    }
}

/// A text that was searched for or given, and the tools that were used then.
#[derive(Clone, Debug, PartialEq)]
struct Memory {
    text: Embedding,
    used: Vec<(ToolKey, Trust)>,
    at: Timestamp,
    /// Who remembers it: [`UsageHistory::memory`] can leave one out.
    source: u64,
}

impl Memory {
    fn add(&mut self, used: &[(ToolKey, f32)]) {
        for (tool, trust) in used {
            let at = self.used.iter().position(|(known, _)| known == tool);
            let at = at.unwrap_or_else(|| {
                self.used.push((*tool, Trust::default()));
                self.used.len() - 1
            });
            self.used[at].1.add(*trust);
        }
    }
}

/// How much the uses of a tool after a text are trusted, on average: 1 after a search, negative
/// after failures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Trust {
    sum: f64,
    n: f64,
}

impl Trust {
    fn add(&mut self, trust: f32) {
        self.sum += f64::from(trust);
        self.n += 1.0;
    }

    fn mean(self) -> f64 {
        self.sum / f64::max(self.n, 1.0)
    }
}

/// What one principal used before: texts with the tools that followed, and counts of sessions.
#[derive(Clone, Debug)]
pub struct UsageHistory {
    memories: Vec<Memory>,
    capacity: usize,
    merges: bool,
    n_calls: BTreeMap<ToolKey, f64>,
    n_sessions: BTreeMap<ToolKey, f64>,
    n_together: BTreeMap<(ToolKey, ToolKey), f64>,
}

impl UsageHistory {
    /// The most texts that are remembered of one principal.
    pub const MAX_MEMORIES: usize = 2_000;
    /// Texts with a cosine above this are the same.
    const SAME: f64 = 0.97;
    /// The cosine from which on a text counts as similar, and how far above it counts in full.
    const SIMILAR: f64 = 0.25;
    const SIMILAR_SPAN: f64 = 0.5;
    /// How much it counts that the similar texts agree.
    const AGREEMENT: f64 = 0.5;
    /// How many sessions a tool must have been in for half of what is known of its companions to
    /// count.
    const SHRINKAGE: f64 = 2.0;

    /// Returns a history that remembers at most `capacity` texts, the newest ones, and holds texts
    /// that are almost the same as one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            memories: Vec::new(),
            capacity,
            merges: true,
            n_calls: BTreeMap::new(),
            n_sessions: BTreeMap::new(),
            n_together: BTreeMap::new(),
        }
    }

    /// Returns a history that forgets nothing and holds every text for itself, for evaluations
    /// that leave some of it out.
    #[must_use]
    pub fn exact() -> Self {
        Self {
            merges: false,
            ..Self::new(usize::MAX)
        }
    }

    /// Returns whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memories.is_empty() && self.n_calls.is_empty() && self.n_sessions.is_empty()
    }

    /// Returns how many texts are remembered.
    #[must_use]
    pub fn n_memories(&self) -> usize {
        self.memories.len()
    }

    /// Remembers that a tool was used after a text. `text` is its vector, centred, which is
    /// compared with those of the same model only; `trust` says how much that tells: 1 for a call
    /// after a search, less for one without, negative for one that failed.
    pub fn remember(&mut self, text: &Embedding, used: (ToolKey, f32), at: Timestamp, source: u64) {
        self.remember_all(text, &[used], at, source);
    }

    /// As [`Self::remember`], for all that was used after a text. What is said of a tool several
    /// times counts on average.
    pub fn remember_all(
        &mut self,
        text: &Embedding,
        used: &[(ToolKey, f32)],
        at: Timestamp,
        source: u64,
    ) {
        if used.is_empty() {
            return;
        }
        let same = self.memories.iter_mut().rev().find(|memory| {
            let is_known = memory.source == source && memory.text == *text;
            is_known || self.merges && nearness(&memory.text, text) > Self::SAME
        });
        if let Some(memory) = same {
            memory.at = memory.at.max(at);
            memory.add(used);
            return;
        }
        if self.memories.len() >= self.capacity {
            let oldest = (0..self.memories.len()).min_by_key(|at| self.memories[*at].at);
            if let Some(oldest) = oldest {
                self.memories.swap_remove(oldest);
            }
        }
        let mut memory = Memory {
            text: text.clone(),
            used: Vec::new(),
            at,
            source,
        };
        memory.add(used);
        self.memories.push(memory);
    }

    /// Counts `n` calls of a tool.
    pub fn count_calls(&mut self, tool: ToolKey, n: f64) {
        *self.n_calls.entry(tool).or_default() += n;
    }

    /// Returns how many calls of a tool were counted.
    #[must_use]
    pub fn calls(&self, tool: ToolKey) -> f64 {
        self.n_calls.get(&tool).copied().unwrap_or(0.0)
    }

    /// Counts `n` sessions that used a tool.
    pub fn count_sessions(&mut self, tool: ToolKey, n: f64) {
        *self.n_sessions.entry(tool).or_default() += n;
    }

    /// Counts `n` sessions that used both tools.
    pub fn count_together(&mut self, a: ToolKey, b: ToolKey, n: f64) {
        *self.n_together.entry((a, b)).or_default() += n;
        *self.n_together.entry((b, a)).or_default() += n;
    }

    /// Returns for tools that were used after similar texts a number from 0 to 1:
    /// `(1 - prod_j (1 - trust_j * w_j)) * sqrt(agreement)` over the nearest texts, with
    /// `w_j = clip((cos_j - 0.25) / 0.5, 0, 1) * decay_j`, and the share of the sum of the `w_j`
    /// that speaks for the tool as agreement: where every similar text was followed by something
    /// else, none of it tells much. Texts of the source `without` are left out. `texts` are
    /// vectors of one text by different models; a memory is compared with that of its own.
    #[must_use]
    pub fn memory(
        &self,
        texts: &[Embedding],
        weights: &HistoryWeights,
        now: Timestamp,
        without: Option<u64>,
    ) -> BTreeMap<ToolKey, f64> {
        let mut near: Vec<(f64, usize)> = (self.memories.iter().enumerate())
            .filter(|(_, memory)| without != Some(memory.source))
            .map(|(at, memory)| (nearest(&memory.text, texts), at))
            .filter(|(cosine, _)| *cosine > Self::SIMILAR)
            .collect();
        near.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        near.truncate(weights.n_neighbours);
        // Of each tool: what is left after all that speaks for it, and the weight of that.
        let mut tools: BTreeMap<ToolKey, (f64, f64)> = BTreeMap::new();
        let mut total = 0.0;
        for (cosine, at) in near {
            let memory = &self.memories[at];
            let similarity = ((cosine - Self::SIMILAR) / Self::SIMILAR_SPAN).min(1.0);
            let weight = similarity * decay(now, memory.at, weights.half_life_days);
            total += weight;
            for (tool, trust) in &memory.used {
                let (unused, support) = tools.entry(*tool).or_insert((1.0, 0.0));
                *unused *= 1.0 - trust.mean() * weight;
                *support += weight;
            }
        }
        let value = |(tool, (unused, support)): (ToolKey, (f64, f64))| {
            let agreement = (support / f64::max(total, f64::MIN_POSITIVE)).powf(Self::AGREEMENT);
            (tool, (1.0 - unused).clamp(0.0, 1.0) * agreement)
        };
        tools.into_iter().map(value).collect()
    }

    /// Returns for tools that were used in the same sessions as the anchors a number from 0 to 1:
    /// `1 - prod_a (1 - w_a * n_at / (n_a + 2))`, with `n_a` sessions that used the anchor and
    /// `n_at` that used both. The weights of anchors lie between 0 and 1.
    #[must_use]
    pub fn companions(&self, anchors: &[(ToolKey, f64)]) -> BTreeMap<ToolKey, f64> {
        let mut alone: BTreeMap<ToolKey, f64> = BTreeMap::new();
        for (anchor, weight) in anchors {
            let n_anchor = self.n_sessions.get(anchor).copied().unwrap_or(0.0);
            let first = (*anchor, ToolKey(i64::MIN));
            let last = (*anchor, ToolKey(i64::MAX));
            for ((_, other), n) in self.n_together.range(first..=last) {
                let share = (n / (n_anchor + Self::SHRINKAGE)).clamp(0.0, 1.0);
                *alone.entry(*other).or_insert(1.0) *= 1.0 - weight * share;
            }
        }
        alone
            .into_iter()
            .map(|(tool, alone)| (tool, 1.0 - alone))
            .collect()
    }

    /// Returns how often tools were called, from 0 to 1 for the most called one:
    /// `ln(1 + n) / ln(1 + max)`.
    #[must_use]
    pub fn frequencies(&self) -> HashMap<ToolKey, f64> {
        let largest = self.n_calls.values().copied().fold(0.0, f64::max);
        if largest <= 0.0 {
            return HashMap::new();
        }
        let relative = |n: &f64| n.max(0.0).ln_1p() / largest.ln_1p();
        (self.n_calls.iter())
            .map(|(tool, n)| (*tool, relative(n)))
            .collect()
    }
}

fn nearest(memory: &Embedding, texts: &[Embedding]) -> f64 {
    let nearness = texts.iter().map(|text| nearness(memory, text));
    nearness.fold(-1.0, f64::max)
}

/// Returns the cosine of two texts, of which the vectors have length 1; -1 for vectors of different
/// models.
#[must_use]
pub fn nearness(a: &Embedding, b: &Embedding) -> f64 {
    if a.model() != b.model() || a.vector().len() != b.vector().len() {
        return -1.0;
    }
    f64::from(dot(a.vector(), b.vector()))
}

/// Returns how much something of `then` still counts: half after each half-life.
fn decay(now: Timestamp, then: Timestamp, half_life_days: f64) -> f64 {
    let seconds = now.duration_since(then).as_secs_f64().max(0.0);
    0.5_f64.powf(seconds / (half_life_days * 86_400.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ToolKey = ToolKey(1);
    const B: ToolKey = ToolKey(2);
    const C: ToolKey = ToolKey(3);

    fn text(vector: [f32; 2]) -> Embedding {
        Embedding::new("m", vector.to_vec()).unwrap()
    }

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    fn remembered(
        history: &UsageHistory,
        text: &Embedding,
        now: Timestamp,
    ) -> BTreeMap<ToolKey, f64> {
        history.memory(
            std::slice::from_ref(text),
            &HistoryWeights::default(),
            now,
            None,
        )
    }

    #[test]
    fn what_was_used_after_a_similar_text_is_remembered() {
        let mut history = UsageHistory::new(10);
        history.remember(&text([1.0, 0.0]), (A, 1.0), day(0), 0);
        history.remember(&text([0.0, 1.0]), (B, 1.0), day(0), 0);
        let found = remembered(&history, &text([0.8, 0.6]), day(0));
        let agreed = |value: f64| value * (value / 1.7).powf(0.5);
        assert!((found[&A] - agreed(1.0)).abs() < 1e-6, "{found:?}");
        assert!((found[&B] - agreed(0.7)).abs() < 1e-6, "{found:?}");
        let later = remembered(&history, &text([0.8, 0.6]), day(30));
        assert!(later[&A] < 0.6 * found[&A], "{later:?}");
        assert!(
            history
                .memory(
                    &[text([1.0, 0.0])],
                    &HistoryWeights::default(),
                    day(0),
                    Some(0)
                )
                .is_empty()
        );
    }

    #[test]
    fn a_failed_call_takes_back_what_others_said() {
        let mut history = UsageHistory::exact();
        history.remember(&text([1.0, 0.0]), (A, 0.6), day(0), 0);
        let before = remembered(&history, &text([1.0, 0.0]), day(0))[&A];
        history.remember(&text([0.999, 0.044_7]), (A, -0.2), day(0), 1);
        let after = remembered(&history, &text([1.0, 0.0]), day(0))[&A];
        assert!(after < before, "{after} {before}");
        history.remember(&text([0.0, 1.0]), (B, -0.2), day(0), 2);
        assert!(remembered(&history, &text([0.0, 1.0]), day(0))[&B].abs() < 1e-9);
    }

    #[test]
    fn failures_after_the_same_text_take_back_what_a_success_said() {
        let mut history = UsageHistory::new(10);
        let same = text([1.0, 0.0]);
        history.remember(&same, (A, 1.0), day(0), 0);
        let before = remembered(&history, &same, day(0))[&A];
        history.remember_all(&same, &[(A, -0.2), (A, -0.2)], day(0), 0);
        let after = remembered(&history, &same, day(0))[&A];
        assert!(after < before / 2.0, "{after} {before}");
        for _ in 0..8 {
            history.remember(&same, (A, -0.2), day(0), 0);
        }
        assert!(remembered(&history, &same, day(0))[&A].abs() < 1e-9);
    }

    #[test]
    fn the_same_text_again_is_one_memory_and_the_oldest_makes_room() {
        let mut history = UsageHistory::new(2);
        history.remember(&text([1.0, 0.0]), (A, 1.0), day(0), 0);
        history.remember(&text([0.999, 0.044_7]), (B, 1.0), day(1), 0);
        assert_eq!(history.n_memories(), 1);
        history.remember(&text([0.0, 1.0]), (B, 1.0), day(2), 0);
        history.remember(&text([0.0, -1.0]), (C, 1.0), day(3), 0);
        assert_eq!(history.n_memories(), 2);
        assert!(!remembered(&history, &text([1.0, 0.0]), day(3)).contains_key(&A));
    }

    #[test]
    fn companions_of_a_rare_tool_count_less() {
        let mut history = UsageHistory::new(0);
        for (tool, n) in [(A, 2.0), (B, 8.0), (C, 8.0)] {
            history.count_sessions(tool, n);
        }
        history.count_together(A, B, 2.0);
        history.count_together(B, C, 8.0);
        let found = history.companions(&[(A, 1.0)]);
        assert!((found[&B] - 0.5).abs() < 1e-9 && !found.contains_key(&C));
        let found = history.companions(&[(B, 1.0)]);
        assert!((found[&C] - 0.8).abs() < 1e-9 && (found[&A] - 0.2).abs() < 1e-9);
    }

    #[test]
    fn the_most_called_tool_has_frequency_one() {
        let mut history = UsageHistory::new(0);
        assert!(history.frequencies().is_empty());
        history.count_calls(A, 7.0);
        history.count_calls(B, 1.0);
        let found = history.frequencies();
        assert!((found[&A] - 1.0).abs() < 1e-12);
        assert!((found[&B] - 1.0 / 3.0).abs() < 1e-12);
    }
}
