//! Usage history: the tools that were used after earlier texts, and the tools that were used
//! together.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::semantic::dot_product;
use crate::catalog::tool::ToolKey;
use crate::retrieval::embedding::Embedding;

/// The maximum number of similar texts that are read at once.
const N_NEIGHBOURS: usize = 12;

/// A searched or given text, with the tools that were used after it.
#[derive(Clone, Debug, PartialEq)]
struct TextMemory {
    text: Embedding,
    used: Vec<(ToolKey, MeanTrust)>,
    at: Timestamp,
    /// The source of the text. [`UsageHistory::memory`] can exclude one source.
    source: u64,
}

impl TextMemory {
    fn add(&mut self, used: &[(ToolKey, f32)]) {
        for (tool, trust) in used {
            let at = self.used.iter().position(|(known, _)| known == tool);
            let at = at.unwrap_or_else(|| {
                self.used.push((*tool, MeanTrust::default()));
                self.used.len() - 1
            });
            self.used[at].1.add(*trust);
        }
    }
}

/// The mean trust in the uses of a tool after a text: 1 after a search, negative after failures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MeanTrust {
    sum: f64,
    n: f64,
}

impl MeanTrust {
    fn add(&mut self, trust: f32) {
        self.sum += f64::from(trust);
        self.n += 1.0;
    }

    fn mean(self) -> f64 {
        self.sum / f64::max(self.n, 1.0)
    }
}

/// The usage history of one principal: texts with the tools that followed, and counts of sessions.
#[derive(Clone, Debug)]
pub struct UsageHistory {
    memories: Vec<TextMemory>,
    capacity: usize,
    merges: bool,
    n_calls: BTreeMap<ToolKey, f64>,
    n_sessions: BTreeMap<ToolKey, f64>,
    n_together: BTreeMap<(ToolKey, ToolKey), f64>,
}

impl UsageHistory {
    /// The maximum number of texts of one principal.
    pub const MAX_MEMORIES: usize = 2_000;
    /// Texts with a cosine above this count as the same.
    const SAME: f64 = 0.97;
    /// The cosine from which on a text is similar, and the span above it over which its weight
    /// grows to 1.
    const SIMILAR: f64 = 0.25;
    const SIMILAR_SPAN: f64 = 0.5;
    /// The exponent of the agreement of similar texts.
    const AGREEMENT: f64 = 0.5;
    /// The number of sessions of a tool at which its companion counts have half of their weight.
    const SHRINKAGE: f64 = 2.0;

    /// Returns a history of at most `capacity` texts, the newest ones. Texts that are almost the
    /// same are merged.
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

    /// Returns a history that keeps every text and merges none, for evaluations that exclude some
    /// of them.
    #[must_use]
    pub fn exact() -> Self {
        Self {
            merges: false,
            ..Self::new(usize::MAX)
        }
    }

    /// Returns whether the history is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memories.is_empty() && self.n_calls.is_empty() && self.n_sessions.is_empty()
    }

    /// Returns the number of texts.
    #[must_use]
    pub fn n_memories(&self) -> usize {
        self.memories.len()
    }

    /// Adds the use of a tool after a text.
    ///
    /// `text` is its centred vector, which is compared only with vectors of the same model. The
    /// second part of `used` is the trust: 1 for a call after a search, less for a call without a
    /// search, negative for a failed call.
    pub fn remember(&mut self, text: &Embedding, used: (ToolKey, f32), at: Timestamp, source: u64) {
        self.remember_all(text, &[used], at, source);
    }

    /// Adds all uses of tools after a text, as [`Self::remember`] does for one. Several uses of one
    /// tool count with their mean.
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
            is_known || self.merges && cosine_of(&memory.text, text) > Self::SAME
        });
        if let Some(memory) = same {
            memory.at = memory.at.max(at);
            memory.add(used);
            return;
        }
        if self.memories.len() >= self.capacity {
            // The oldest text makes room for the new one.
            let oldest = (0..self.memories.len()).min_by_key(|at| self.memories[*at].at);
            if let Some(oldest) = oldest {
                self.memories.swap_remove(oldest);
            }
        }
        let mut memory = TextMemory {
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

    /// Returns the number of counted calls of a tool.
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

    /// Returns a number from 0 to 1 for each tool that was used after similar texts.
    ///
    /// The number is `(1 - prod_j (1 - trust_j * w_j)) * sqrt(agreement)` over the nearest texts,
    /// with `w_j = clip((cos_j - 0.25) / 0.5, 0, 1) * decay_j`. The agreement is the share of the
    /// sum of the `w_j` at texts that the tool was used after: if every similar text was followed
    /// by another tool, none of them says much. Texts of the source `without` are excluded. `texts`
    /// are the vectors of one text by different models; each text of the history is compared with
    /// the vector of its own model.
    #[must_use]
    pub fn memory(
        &self,
        texts: &[Embedding],
        half_life_days: f64,
        now: Timestamp,
        without: Option<u64>,
    ) -> BTreeMap<ToolKey, f64> {
        let mut near: Vec<(f64, usize)> = (self.memories.iter().enumerate())
            .filter(|(_, memory)| without != Some(memory.source))
            .map(|(at, memory)| (max_cosine(&memory.text, texts), at))
            .filter(|(cosine, _)| *cosine > Self::SIMILAR)
            .collect();
        near.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        near.truncate(N_NEIGHBOURS);
        // For each tool: the product over its texts, and the sum of their weights.
        let mut tools: BTreeMap<ToolKey, (f64, f64)> = BTreeMap::new();
        let mut total = 0.0;
        for (cosine, at) in near {
            let memory = &self.memories[at];
            let similarity = ((cosine - Self::SIMILAR) / Self::SIMILAR_SPAN).min(1.0);
            let weight = similarity * decay(now, memory.at, half_life_days);
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

    /// Returns a number from 0 to 1 for each tool that was used in the same sessions as the
    /// anchors.
    ///
    /// The number is `1 - prod_a (1 - w_a * n_at / (n_a + 2))`, with `n_a` sessions that used the
    /// anchor and `n_at` sessions that used both. The weights of anchors are between 0 and 1.
    #[must_use]
    pub fn companions(&self, anchors: &[(ToolKey, f64)]) -> BTreeMap<ToolKey, f64> {
        let mut alone: BTreeMap<ToolKey, f64> = BTreeMap::new();
        for (anchor, weight) in anchors {
            let n_anchor = self.n_sessions.get(anchor).copied().unwrap_or(0.0);
            // All pairs with the anchor lie between these two keys.
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

    /// Returns the relative frequency of tools, 1 for the most called one:
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

fn max_cosine(memory: &Embedding, texts: &[Embedding]) -> f64 {
    let nearness = texts.iter().map(|text| cosine_of(memory, text));
    nearness.fold(-1.0, f64::max)
}

/// Returns the cosine of two texts, whose vectors must have length 1; -1 for vectors of different
/// models.
#[must_use]
pub fn cosine_of(a: &Embedding, b: &Embedding) -> f64 {
    if a.model() != b.model() || a.vector().len() != b.vector().len() {
        return -1.0;
    }
    f64::from(dot_product(a.vector(), b.vector()))
}

/// Returns the decay factor of an event at `then`: one half after each half-life.
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

    fn memory_values(
        history: &UsageHistory,
        text: &Embedding,
        now: Timestamp,
    ) -> BTreeMap<ToolKey, f64> {
        history.memory(std::slice::from_ref(text), 30.0, now, None)
    }

    #[test]
    fn tools_used_after_similar_texts_are_remembered() {
        let mut history = UsageHistory::new(10);
        history.remember(&text([1.0, 0.0]), (A, 1.0), day(0), 0);
        history.remember(&text([0.0, 1.0]), (B, 1.0), day(0), 0);
        let found = memory_values(&history, &text([0.8, 0.6]), day(0));
        let agreed = |value: f64| value * (value / 1.7).powf(0.5);
        assert!((found[&A] - agreed(1.0)).abs() < 1e-6, "{found:?}");
        assert!((found[&B] - agreed(0.7)).abs() < 1e-6, "{found:?}");
        let later = memory_values(&history, &text([0.8, 0.6]), day(30));
        assert!(later[&A] < 0.6 * found[&A], "{later:?}");
        assert!(
            history
                .memory(&[text([1.0, 0.0])], 30.0, day(0), Some(0))
                .is_empty()
        );
    }

    #[test]
    fn a_failed_call_lowers_the_memory_of_similar_texts() {
        let mut history = UsageHistory::exact();
        history.remember(&text([1.0, 0.0]), (A, 0.6), day(0), 0);
        let before = memory_values(&history, &text([1.0, 0.0]), day(0))[&A];
        history.remember(&text([0.999, 0.044_7]), (A, -0.2), day(0), 1);
        let after = memory_values(&history, &text([1.0, 0.0]), day(0))[&A];
        assert!(after < before, "{after} {before}");
        history.remember(&text([0.0, 1.0]), (B, -0.2), day(0), 2);
        assert!(memory_values(&history, &text([0.0, 1.0]), day(0))[&B].abs() < 1e-9);
    }

    #[test]
    fn failures_after_the_same_text_cancel_a_success() {
        let mut history = UsageHistory::new(10);
        let same = text([1.0, 0.0]);
        history.remember(&same, (A, 1.0), day(0), 0);
        let before = memory_values(&history, &same, day(0))[&A];
        history.remember_all(&same, &[(A, -0.2), (A, -0.2)], day(0), 0);
        let after = memory_values(&history, &same, day(0))[&A];
        assert!(after < before / 2.0, "{after} {before}");
        for _ in 0..8 {
            history.remember(&same, (A, -0.2), day(0), 0);
        }
        assert!(memory_values(&history, &same, day(0))[&A].abs() < 1e-9);
    }

    #[test]
    fn equal_texts_share_a_memory_and_the_oldest_is_evicted() {
        let mut history = UsageHistory::new(2);
        history.remember(&text([1.0, 0.0]), (A, 1.0), day(0), 0);
        history.remember(&text([0.999, 0.044_7]), (B, 1.0), day(1), 0);
        assert_eq!(history.n_memories(), 1);
        history.remember(&text([0.0, 1.0]), (B, 1.0), day(2), 0);
        history.remember(&text([0.0, -1.0]), (C, 1.0), day(3), 0);
        assert_eq!(history.n_memories(), 2);
        assert!(!memory_values(&history, &text([1.0, 0.0]), day(3)).contains_key(&A));
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
