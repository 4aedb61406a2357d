//! Calls that repeat another one of their work session: answered with the result that is known, where
//! the tool only reads and gives the same for the same.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use riglm_domain::canonical::write_canonical;
use riglm_domain::edit::member;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::prediction::NamePattern;
use riglm_domain::principal::Principal;
use riglm_domain::tool_result::is_error;
use sha2::{Digest, Sha256};

use super::names::Names;
use super::{GuardedCall, Notice};

/// How many results are known at a time.
const MAX_RESULTS: usize = 10_000;
/// How many bytes they have in all.
const MAX_BYTES: usize = 64 << 20;
/// The largest result that is kept, in bytes.
const MAX_RESULT_BYTES: usize = 1 << 20;
/// Of how many work sessions it is remembered that they changed something.
const MAX_CHANGED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// How calls are answered that repeat another.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatedOptions {
    /// How long a result is the answer to the same call.
    pub keep: Duration,
    /// Tools of which the operator knows that they only read, and give the same for the same, beside
    /// those that say so themselves with `readOnlyHint` and `idempotentHint`.
    pub tools: Vec<NamePattern>,
}

/// What a call may be answered with, in place of being made.
#[derive(Debug)]
pub(super) enum Begun {
    /// The result of the same call, which is JSON text, and a notice that it is that.
    Known(Arc<str>, Notice),
    /// It is to be made.
    Goes(Trace),
}

/// What a call that is made leaves for others.
#[derive(Debug, Default)]
pub(super) enum Trace {
    /// Nothing.
    #[default]
    None,
    /// Its result is the answer to the same call.
    Keeps(Box<Key>),
    /// It may change something there, for its work session.
    Changes(CallSession, UpstreamName),
}

/// What a result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    together: CallSession,
    principal: Principal,
    upstream: UpstreamName,
    /// The way in which the upstream is reached, its credentials among it.
    fingerprint: Box<str>,
    tool: ToolName,
    arguments: [u8; 32],
    /// Counts what the work session may have changed there.
    changes: u64,
}

#[derive(Debug)]
struct Result {
    text: Arc<str>,
    at: Instant,
}

/// The results of calls that may be made again.
#[derive(Debug)]
pub(crate) struct RepeatedCalls {
    options: RepeatedOptions,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    results: LruCache<Key, Result>,
    n_bytes: usize,
    changes: LruCache<(CallSession, UpstreamName), u64>,
}

/// What a tool does, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effect {
    /// It reads, and gives the same for the same.
    Repeatable,
    /// It reads.
    Reads,
    /// It may change something.
    #[default]
    Unknown,
}

impl RepeatedCalls {
    pub(super) fn new(options: RepeatedOptions) -> Self {
        Self {
            options,
            known: Mutex::new(Known {
                results: LruCache::unbounded(),
                n_bytes: 0,
                changes: LruCache::new(MAX_CHANGED),
            }),
        }
    }

    /// Returns the result of the same call a moment before, or what comes of a call that is made.
    ///
    /// A call that may change something makes what was read of its upstream before unknown, to its
    /// work session: whatever becomes of it.
    pub(super) fn begin(&self, call: &GuardedCall<'_>, effect: Effect) -> Begun {
        let Some(upstream) = call
            .upstream
            .filter(|_| effect == Effect::Repeatable && !call.is_task)
        else {
            return Begun::Goes(self.begin_again(call, effect));
        };
        let Some(arguments) = digest(call.arguments) else {
            return Begun::Goes(Trace::None); // They cannot be told from others.
        };
        let mut known = self.lock();
        let key = known.key(call, upstream, arguments);
        let Some(result) = known.results.get(&key) else {
            return Begun::Goes(Trace::Keeps(Box::new(key)));
        };
        let age = call.at.saturating_duration_since(result.at);
        if age >= self.options.keep {
            known.forget(&key);
            return Begun::Goes(Trace::Keeps(Box::new(key)));
        }
        let text = Arc::clone(&result.text);
        drop(known);
        let notice = Notice {
            kind: "repeated",
            text: format!(
                "[This is the result of the same call {} ago; it was not made again.]",
                in_words(age)
            ),
        };
        Begun::Known(text, notice)
    }

    /// Returns what comes of a call whose result is no answer to others, since it goes on with what was
    /// begun before or is answered later.
    pub(super) fn begin_again(&self, call: &GuardedCall<'_>, effect: Effect) -> Trace {
        match (call.upstream, effect) {
            (Some(upstream), Effect::Unknown) => {
                let whose = (call.together, upstream.clone());
                self.lock().changed(whose);
                Trace::Changes(call.together, upstream.clone())
            }
            _ => Trace::None,
        }
    }

    /// Notes the result of a call that was received at a moment, which is JSON text.
    pub(super) fn ended(&self, trace: &Trace, at: Instant, result: &str) {
        let Trace::Keeps(key) = trace else {
            return;
        };
        if result.len() > MAX_RESULT_BYTES || !is_final(result) {
            return;
        }
        let text: Arc<str> = result.into();
        let mut known = self.lock();
        if known.n_changes(key.together, &key.upstream) != key.changes {
            return; // It may be from before the change.
        }
        known.forget(key);
        known.n_bytes += text.len();
        known.results.put(Key::clone(key), Result { text, at });
        known.keep_bounds();
    }

    /// Notes that a call is over, whatever came of it: what was read while it was under way may be from
    /// before what it changed.
    pub(super) fn over(&self, trace: &Trace) {
        if let Trace::Changes(together, upstream) = trace {
            self.lock().changed((*together, upstream.clone()));
        }
    }

    /// Returns what the tool of a call does, which has these names.
    pub(super) fn effect(&self, call: &GuardedCall<'_>, names: &Names) -> Effect {
        if call.upstream.is_none() {
            return Effect::Reads;
        }
        if names.fit_any(&self.options.tools) {
            return Effect::Repeatable;
        }
        let hints = (call.offered()).and_then(|tool| member(&tool.definition, "annotations"));
        let says = |hint| hints.and_then(|hints| member(hints, hint)) == Some("true");
        match (says("readOnlyHint"), says("idempotentHint")) {
            (true, true) => Effect::Repeatable,
            (true, false) => Effect::Reads,
            (false, _) => Effect::Unknown,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Returns what the result of a call depends on.
    fn key(&mut self, call: &GuardedCall<'_>, upstream: &UpstreamName, arguments: [u8; 32]) -> Key {
        Key {
            together: call.together,
            principal: call.principal.clone(),
            changes: self.n_changes(call.together, upstream),
            upstream: upstream.clone(),
            fingerprint: call.fingerprint.into(),
            tool: call.tool.clone(),
            arguments,
        }
    }

    /// Returns how often a work session may have changed something of an upstream.
    fn n_changes(&mut self, together: CallSession, upstream: &UpstreamName) -> u64 {
        let changes = self.changes.get(&(together, upstream.clone()));
        changes.copied().unwrap_or_default()
    }

    fn changed(&mut self, whose: (CallSession, UpstreamName)) {
        *self.changes.get_or_insert_mut(whose, || 0) += 1;
    }

    fn forget(&mut self, key: &Key) {
        if let Some(result) = self.results.pop(key) {
            self.n_bytes -= result.text.len();
        }
    }

    fn keep_bounds(&mut self) {
        while self.results.len() > MAX_RESULTS || self.n_bytes > MAX_BYTES {
            let Some((_, oldest)) = self.results.pop_lru() else {
                return;
            };
            self.n_bytes -= oldest.text.len();
        }
    }
}

/// Returns the digest of arguments, which are JSON text, by which those that mean the same are the same;
/// `None` where they cannot be told from others.
fn digest(arguments: Option<&str>) -> Option<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut add = |bytes: &[u8]| digest.update(bytes);
    write_canonical(arguments.unwrap_or("{}"), &mut add).ok()?;
    Some(digest.finalize().into())
}

/// Returns whether a result is the end of a call that went well, and not a task or a question.
fn is_final(result: &str) -> bool {
    let kind = member(result, "resultType");
    let has_content = member(result, "content").is_some_and(|content| content.starts_with('['));
    !is_error(result) && has_content && kind.is_none_or(|kind| kind == r#""complete""#)
}

/// Returns a time in words, in whole seconds.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        0 => "less than a second".into(),
        1 => "1 second".into(),
        n => format!("{n} seconds"),
    }
}

#[cfg(test)]
mod tests;
