//! The context of a session: the last declaration of its client, until there is a new one or its
//! calls show another task.
//!
//! Unlike other texts, a context does not decay: what is forbidden to a client because of its
//! context must not become allowed by waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use strum::{IntoStaticStr, VariantArray};

use super::IntentSource;
use super::shift::{RecentCall, similarity};

/// Number of recent calls that are compared together.
const N_CALLS: usize = 5;
/// Fewer calls are too little evidence.
const MIN_CALLS: usize = 3;

/// The reason for a change of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ContextShift {
    /// The client declared another task.
    Declared,
    /// The calls of the client show another task.
    Drifted,
}

impl ContextShift {
    /// All reasons.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the label of the reason in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The intent of a session in its original words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatedIntent {
    /// The context: the last declaration of the client, or the names of later calls that drifted
    /// from it.
    pub context: Option<Arc<str>>,
    /// The last declaration of the client, whatever it called since.
    pub declared: Option<Arc<str>>,
    /// Time of the last declaration.
    pub declared_at: Option<Timestamp>,
    /// Texts of recent searches and prompts, one per line, the oldest first within one place.
    pub sought: String,
}

impl StatedIntent {
    /// Merges the intents of two places of the same session. The later declaration counts.
    #[must_use]
    pub fn merged_with(self, other: Self) -> Self {
        let (newest, other) = if other.declared_at > self.declared_at {
            (other, self)
        } else {
            (self, other)
        };
        let texts = [newest.sought, other.sought];
        let sought: Vec<String> = texts.into_iter().filter(|it| !it.is_empty()).collect();
        Self {
            context: newest.context.or(other.context),
            sought: sought.join("\n"),
            ..newest
        }
    }
}

/// The declared contexts of a client, by source.
#[derive(Clone, Debug, Default)]
pub(super) struct DeclaredContexts {
    declared: Vec<Declaration>,
    /// The context from later calls, in the words of their tool names.
    shown: Option<Arc<str>>,
    /// Calls since the start of the context, oldest first.
    calls: VecDeque<RecentCall>,
}

#[derive(Clone, Debug)]
struct Declaration {
    source: IntentSource,
    text: Arc<str>,
    at: Timestamp,
}

impl DeclaredContexts {
    /// Adds a declaration. The same text again from the same source, as a header with each request,
    /// is not a new declaration.
    pub(super) fn declare(
        &mut self,
        source: IntentSource,
        text: &str,
        now: Timestamp,
    ) -> Option<ContextShift> {
        use IntentSource::{Control, Request, SetContext};
        if !matches!(source, SetContext | Request | Control) {
            return None;
        }
        let known = self.declared.iter().position(|one| one.source == source);
        if known.is_some_and(|at| &*self.declared[at].text == text) && source != SetContext {
            return None;
        }
        let before = self.context();
        if let Some(known) = known {
            self.declared.remove(known);
        }
        // Ordered by arrival and not by time, because clocks may go back.
        self.declared.push(Declaration {
            source,
            text: text.into(),
            at: now,
        });
        self.shown = None;
        self.calls.clear();
        let is_another = before.is_some_and(|before| &*before != text);
        is_another.then_some(ContextShift::Declared)
    }

    pub(super) fn add_call(&mut self, call: RecentCall, threshold: f64) -> Option<ContextShift> {
        let context = self.context()?;
        if self.calls.len() >= N_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
        let is_other =
            self.calls.len() >= MIN_CALLS && similarity(&context, &self.calls) < threshold;
        if !is_other {
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        for call in self.calls.drain(..) {
            // As separate clauses, so that each begins with its verb.
            let name = call.tool.replace(['_', '-', '.', '/'], " ");
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.shown = Some(names.join(", ").into());
        Some(ContextShift::Drifted)
    }

    fn context(&self) -> Option<Arc<str>> {
        let declared = || self.declared.last().map(|one| Arc::clone(&one.text));
        self.shown.clone().or_else(declared)
    }

    pub(super) fn stated_intent(&self, sought: String) -> StatedIntent {
        let declared = self.declared.last();
        StatedIntent {
            context: self.context(),
            declared: declared.map(|one| Arc::clone(&one.text)),
            declared_at: declared.map(|one| one.at),
            sought,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::{IntentMemory, IntentWeights};
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn note(memory: &mut IntentMemory, source: IntentSource, text: &str) -> Option<ContextShift> {
        memory.add_text(source, text, &IntentWeights::default(), NOW)
    }

    fn context(memory: &IntentMemory) -> Option<String> {
        memory
            .stated_intent(NOW)
            .context
            .map(|text| text.to_string())
    }

    #[test]
    fn a_context_is_kept_until_another_is_declared() {
        use IntentSource::{Request, Search, SetContext};
        let mut memory = IntentMemory::default();
        assert_eq!(note(&mut memory, Search, "boats"), None);
        assert_eq!(context(&memory), None);
        assert_eq!(memory.stated_intent(NOW).sought, "boats");
        assert_eq!(note(&mut memory, Request, "of the harbour"), None);
        let declared = Some(ContextShift::Declared);
        assert_eq!(note(&mut memory, SetContext, "list boats"), declared);
        // A header that is repeated with each request is not a new declaration.
        assert_eq!(note(&mut memory, Request, "of the harbour"), None);
        assert_eq!(context(&memory).as_deref(), Some("list boats"));
        assert_eq!(note(&mut memory, SetContext, "list boats"), None);
        assert_eq!(note(&mut memory, Request, "of the ferry"), declared);
        for _ in 0..1_000 {
            note(&mut memory, IntentSource::Arguments, "anything");
        }
        let later = NOW + SignedDuration::from_hours(1_000);
        let stated = memory.stated_intent(later);
        assert_eq!(stated.context.as_deref(), Some("of the ferry"));
        assert_eq!(stated.sought, "", "what was looked for fades");
    }

    #[test]
    fn a_source_with_weight_zero_declares_no_context() {
        let weights = IntentWeights {
            request: 0.0,
            ..IntentWeights::default()
        };
        let mut memory = IntentMemory::default();
        memory.add_text(IntentSource::Request, "boats", &weights, NOW);
        assert_eq!(context(&memory), None);
    }

    #[test]
    fn calls_below_the_similarity_threshold_replace_the_context() {
        // Each call shares one of its two terms with the two of the context.
        let half = || RecentCall::new("get_boat", "crew");
        let other = || RecentCall::new("get_crew", "");
        let run = |threshold: f64, calls: &[RecentCall]| {
            let mut memory = IntentMemory::default();
            note(&mut memory, IntentSource::SetContext, "sail boats");
            let mut shifts = calls.iter().cloned();
            let shift = shifts.find_map(|call| memory.add_call(call, threshold));
            (shift, context(&memory).unwrap())
        };
        let drifted = (Some(ContextShift::Drifted), "get crew".to_owned());
        let same = (None, "sail boats".to_owned());
        assert_eq!(run(0.5, &[half(), half(), half()]), same, "as like as that");
        let one = (Some(ContextShift::Drifted), "get boat".to_owned());
        assert_eq!(run(0.51, &[half(), half(), half()]), one);
        assert_eq!(
            run(0.51, &[other(), other()]),
            same,
            "two calls tell nothing"
        );
        assert_eq!(run(0.1, &[other(), other(), other()]), drifted);
        assert_eq!(run(0.0, &[other(), other(), other()]), same, "off");
        // Without a context there is no drift.
        let mut memory = IntentMemory::default();
        for _ in 0..9 {
            assert_eq!(memory.add_call(other(), 1.0), None);
        }
    }

    #[test]
    fn after_a_shift_calls_are_compared_with_the_new_context() {
        let mut memory = IntentMemory::default();
        note(&mut memory, IntentSource::SetContext, "list boats\nread");
        let call = |tool: &str| RecentCall::new(tool, "");
        for _ in 0..2 {
            assert_eq!(memory.add_call(call("list_crews"), 0.3), None);
        }
        let shift = memory.add_call(call("update_crew"), 0.3);
        assert_eq!(shift, Some(ContextShift::Drifted));
        assert_eq!(context(&memory).as_deref(), Some("list crews, update crew"));
        // The declaration of the client is kept.
        let stated = memory.stated_intent(NOW);
        assert_eq!(stated.declared.as_deref(), Some("list boats\nread"));
        for _ in 0..9 {
            assert_eq!(memory.add_call(call("get_crew"), 0.3), None);
        }
        note(&mut memory, IntentSource::SetContext, "list boats");
        assert_eq!(context(&memory).as_deref(), Some("list boats"));
    }

    #[test]
    fn the_latest_of_two_merged_contexts_counts() {
        let at = |seconds| Some(NOW + SignedDuration::from_secs(seconds));
        let stated = |text: &str, seconds, sought: &str| StatedIntent {
            context: Some(text.into()),
            declared: Some(text.into()),
            declared_at: at(seconds),
            sought: sought.into(),
        };
        let older = stated("older", 1, "a");
        let newer = stated("newer", 2, "b");
        for both in [
            older.clone().merged_with(newer.clone()),
            newer.clone().merged_with(older.clone()),
        ] {
            assert_eq!(both.context.as_deref(), Some("newer"));
            assert_eq!(both.sought, "b\na");
        }
        let nothing = StatedIntent::default();
        assert_eq!(nothing.merged_with(older.clone()), older);
    }
}
