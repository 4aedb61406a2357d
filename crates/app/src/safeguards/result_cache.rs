//! Cache of results for repeated calls of a work session. It is used only for tools that read, and
//! that return the same result for the same arguments.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::tool_result::is_error;
use riglm_domain::prediction::NamePattern;
use riglm_domain::privacy::canonical::write_canonical;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use validator::{Validate, ValidationError};

use super::names::ToolNames;
use super::{GuardedCall, Notice, check_patterns};

/// The most results in memory.
const MAX_RESULTS: usize = 10_000;
/// The most bytes of all results in memory.
const MAX_BYTES: usize = 64 << 20;
/// The largest cached result, in bytes.
const MAX_RESULT_BYTES: usize = 1 << 20;
/// The most pairs of work session and upstream for which changes are counted.
const MAX_CHANGED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// The longest lifetime of a cached result.
const MAX_TTL: Duration = Duration::from_hours(24);

/// The subsection `safeguards.result_cache`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct ResultCacheConfig {
    /// Whether a call that repeats an earlier one of its work session gets the cached result.
    pub enabled: bool,
    /// The lifetime of a cached result.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "check_ttl"))]
    pub ttl: Duration,
    /// Read-only tools with repeatable results. Tools with `readOnlyHint` and `idempotentHint` need
    /// no entry.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<NamePattern>,
}

impl Default for ResultCacheConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            ttl: Duration::from_mins(5),
            tools: Vec::new(),
        }
    }
}

fn check_ttl(ttl: &Duration) -> Result<(), ValidationError> {
    if (Duration::from_secs(1)..=MAX_TTL).contains(ttl) {
        return Ok(());
    }
    Err(ValidationError::new("range").with_message("expected a time from 1s to 24h".into()))
}

/// The decision about a call: cached or made.
#[derive(Debug)]
pub(super) enum CacheLookup {
    /// The cached result, which is JSON text, with a notice.
    Known(Arc<str>, Notice),
    /// The call is made.
    Goes(CacheEffect),
}

#[derive(Debug, Default)]
pub(super) enum CacheEffect {
    #[default]
    None,
    /// Its result is cached.
    Keeps(Box<CacheKey>),
    /// It may change data of the upstream, so cached results of the work session become invalid.
    Changes(SessionKey, UpstreamName),
}

/// The key of a cached result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    session_key: SessionKey,
    principal: Principal,
    upstream: UpstreamName,
    /// Identifies the configuration and credentials with which the upstream is reached.
    fingerprint: Box<str>,
    tool: ToolName,
    arguments: [u8; 32],
    /// The number of possible changes by the work session at this upstream.
    changes: u64,
}

#[derive(Debug)]
struct CachedResult {
    text: Arc<str>,
    at: Instant,
}

#[derive(Debug)]
pub(crate) struct ResultCache {
    config: ResultCacheConfig,
    known: Mutex<CacheState>,
}

#[derive(Debug)]
struct CacheState {
    results: LruCache<CacheKey, CachedResult>,
    n_bytes: usize,
    changes: LruCache<(SessionKey, UpstreamName), u64>,
}

/// The effect of calls of a tool, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolEffect {
    /// Reads, and returns the same result for the same arguments.
    Repeatable,
    Reads,
    /// May change data.
    #[default]
    Unknown,
}

impl ResultCache {
    pub(super) fn new(config: ResultCacheConfig) -> Self {
        Self {
            config,
            known: Mutex::new(CacheState {
                results: LruCache::unbounded(),
                n_bytes: 0,
                changes: LruCache::new(MAX_CHANGED),
            }),
        }
    }

    /// Returns whether both have the same configuration.
    pub(super) fn has_config_of(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// Returns the cached result of the same call, or the effect of the call on the cache.
    ///
    /// A call that may change data invalidates the cached results of its upstream for the work
    /// session, even if the call fails.
    pub(super) fn begin(&self, call: &GuardedCall<'_>, effect: ToolEffect) -> CacheLookup {
        let is_kept = effect == ToolEffect::Repeatable && !call.is_task;
        let Some(upstream) = call.upstream.filter(|_| is_kept) else {
            return CacheLookup::Goes(self.begin_again(call, effect));
        };
        let Some(arguments) = digest(call.arguments) else {
            return CacheLookup::Goes(CacheEffect::None); // They cannot be told from others.
        };
        let mut known = self.known.lock();
        let key = known.key(call, upstream, arguments);
        let Some(result) = known.results.get(&key) else {
            return CacheLookup::Goes(CacheEffect::Keeps(Box::new(key)));
        };
        let age = call.at.saturating_duration_since(result.at);
        if age >= self.config.ttl {
            known.remove_result(&key);
            return CacheLookup::Goes(CacheEffect::Keeps(Box::new(key)));
        }
        let text = Arc::clone(&result.text);
        drop(known);
        let notice = Notice {
            kind: "repeated",
            text: format!(
                "[Cached result of the same call {} ago. The tool was not called again.]",
                in_words(age)
            ),
        };
        CacheLookup::Known(text, notice)
    }

    /// Returns the effect of a call whose result cannot be cached, because it continues an earlier
    /// one or is answered later.
    pub(super) fn begin_again(&self, call: &GuardedCall<'_>, effect: ToolEffect) -> CacheEffect {
        match (call.upstream, effect) {
            (Some(upstream), ToolEffect::Unknown) => {
                let whose = (call.session_key, upstream.clone());
                self.known.lock().count_change(whose);
                CacheEffect::Changes(call.session_key, upstream.clone())
            }
            _ => CacheEffect::None,
        }
    }

    /// Records the result of a call, which is JSON text, with the time of receipt of the call.
    pub(super) fn record_result(&self, trace: &CacheEffect, at: Instant, result: &str) {
        let CacheEffect::Keeps(key) = trace else {
            return;
        };
        // Errors, tasks and questions are not the final result of a call, so a repeated call must
        // be made.
        if result.len() > MAX_RESULT_BYTES || !is_final(result) {
            return;
        }
        let text: Arc<str> = result.into();
        let mut known = self.known.lock();
        if known.n_changes(key.session_key, &key.upstream) != key.changes {
            return; // It may be from before the change.
        }
        known.remove_result(key);
        known.n_bytes += text.len();
        let result = CachedResult { text, at };
        known.results.put(CacheKey::clone(key), result);
        known.keep_bounds();
    }

    /// Records the end of a call, successful or not. Results that were read while it ran may be
    /// from before its change, so they become invalid.
    pub(super) fn record_end(&self, trace: &CacheEffect) {
        if let CacheEffect::Changes(session_key, upstream) = trace {
            let whose = (*session_key, upstream.clone());
            self.known.lock().count_change(whose);
        }
    }

    pub(super) fn effect(&self, call: &GuardedCall<'_>, names: &ToolNames) -> ToolEffect {
        if call.upstream.is_none() {
            return ToolEffect::Reads;
        }
        if names.fit_any(&self.config.tools) {
            return ToolEffect::Repeatable;
        }
        let hints = (call.catalog_tool()).and_then(|tool| member(&tool.definition, "annotations"));
        let says = |hint| hints.and_then(|hints| member(hints, hint)) == Some("true");
        match (says("readOnlyHint"), says("idempotentHint")) {
            (true, true) => ToolEffect::Repeatable,
            (true, false) => ToolEffect::Reads,
            (false, _) => ToolEffect::Unknown,
        }
    }
}

impl CacheState {
    fn key(
        &mut self,
        call: &GuardedCall<'_>,
        upstream: &UpstreamName,
        arguments: [u8; 32],
    ) -> CacheKey {
        CacheKey {
            session_key: call.session_key,
            principal: call.principal.clone(),
            changes: self.n_changes(call.session_key, upstream),
            upstream: upstream.clone(),
            fingerprint: call.fingerprint.into(),
            tool: call.tool.clone(),
            arguments,
        }
    }

    /// Returns the number of possible changes by a work session at an upstream.
    fn n_changes(&mut self, session_key: SessionKey, upstream: &UpstreamName) -> u64 {
        let changes = self.changes.get(&(session_key, upstream.clone()));
        changes.copied().unwrap_or_default()
    }

    fn count_change(&mut self, whose: (SessionKey, UpstreamName)) {
        *self.changes.get_or_insert_mut(whose, || 0) += 1;
    }

    fn remove_result(&mut self, key: &CacheKey) {
        if let Some(result) = self.results.pop(key) {
            self.n_bytes -= result.text.len();
        }
    }

    fn keep_bounds(&mut self) {
        while (self.results.len() > MAX_RESULTS || self.n_bytes > MAX_BYTES)
            && let Some((_, oldest)) = self.results.pop_lru()
        {
            self.n_bytes -= oldest.text.len();
        }
    }
}

/// Returns the digest of arguments, which are JSON text; equivalent arguments have the same digest.
/// `None` if they have no canonical form.
fn digest(arguments: Option<&str>) -> Option<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut add = |bytes: &[u8]| digest.update(bytes);
    write_canonical(arguments.unwrap_or("{}"), &mut add).ok()?;
    Some(digest.finalize().into())
}

/// Returns whether a result is the final one of a successful call, and not a task or a question.
fn is_final(result: &str) -> bool {
    let kind = member(result, "resultType");
    let has_content = member(result, "content").is_some_and(|content| content.starts_with('['));
    !is_error(result) && has_content && kind.is_none_or(|kind| kind == r#""complete""#)
}

/// Returns a duration in words, in whole seconds.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        0 => "less than a second".into(),
        1 => "1 second".into(),
        n => format!("{n} seconds"),
    }
}

#[cfg(test)]
mod tests;
