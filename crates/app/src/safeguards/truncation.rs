//! Truncation and paging: the beginning of a long result is passed on, and the rest is kept for
//! reading on.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::id::check_own_tool_name;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::prediction::NamePattern;
use riglm_domain::privacy::principal::Principal;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use validator::{Validate, ValidationError};

use super::names::ToolNames;
use super::{GuardedCall, check_patterns};

/// The most results in memory.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);
/// The most bytes of all results in memory.
const MAX_BYTES: usize = 64 << 20;
/// Time to live of a result.
const LASTS: Duration = Duration::from_hours(1);
// A cut is made after a paragraph, line, sentence or word, if one ends in the last quarter of the
// part.
const LAST_PART: usize = 4;

/// The subsection `safeguards.long_results`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct LongResultsConfig {
    /// The longest text that a model gets at once, in bytes; 0 switches truncation off.
    #[validate(custom(function = "check_max_bytes"))]
    pub max_bytes: usize,
    /// Tools whose results are never truncated.
    #[validate(custom(function = "check_patterns"))]
    pub except: Vec<NamePattern>,
    /// The name of the tool that returns the next part.
    #[validate(custom(function = "check_own_tool_name"))]
    pub tool_name: String,
}

impl Default for LongResultsConfig {
    fn default() -> Self {
        Self {
            max_bytes: 0,
            except: Vec::new(),
            tool_name: "read_more".into(),
        }
    }
}

impl LongResultsConfig {
    /// Returns whether long results are truncated.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.max_bytes > 0
    }
}

fn check_max_bytes(n: usize) -> Result<(), ValidationError> {
    if n == 0 || (500..=100_000_000).contains(&n) {
        return Ok(());
    }
    let message = "expected 0, for all, or a number from 500 to 100000000";
    Err(ValidationError::new("range").with_message(message.into()))
}

/// The truncated results with their whole texts.
#[derive(Debug)]
pub(crate) struct LongResults {
    config: LongResultsConfig,
    kept: Mutex<StoredRemainders>,
}

#[derive(Debug)]
struct StoredRemainders {
    of: LruCache<(Principal, String), StoredResult>,
    n_bytes: usize,
}

#[derive(Debug)]
struct StoredResult {
    text: Arc<str>,
    until: Instant,
}

/// A part of a truncated result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remainder {
    pub(crate) text: String,
    /// The offset of the next part in bytes; `None` at the end.
    pub(crate) next: Option<usize>,
    /// The number of bytes of the whole text.
    pub(crate) n_all: usize,
}

impl LongResults {
    pub(super) fn new(config: LongResultsConfig) -> Self {
        Self {
            config,
            kept: Mutex::new(StoredRemainders {
                of: LruCache::new(MAX_KEPT),
                n_bytes: 0,
            }),
        }
    }

    /// Returns whether both have the same configuration.
    pub(super) fn has_config_of(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// Returns whether results of a tool with these names are never truncated.
    pub(super) fn is_never_truncated(&self, names: &ToolNames) -> bool {
        names.fit_any(&self.config.except)
    }

    /// Returns the beginning of a result whose texts are too long, with a text about reading on;
    /// `None` for any other result. Results with structured content are not truncated, because a
    /// client compares it with the text. Content other than text is kept.
    pub(super) fn cut(&self, call: &GuardedCall<'_>, result: &str) -> Option<String> {
        let max_bytes = self.config.max_bytes;
        let is_short = result.len() <= max_bytes;
        if call.own.is_some() || is_short || member(result, "structuredContent").is_some() {
            return None;
        }
        let content = member(result, "content").filter(|content| content.starts_with('['))?;
        let elements: Vec<&RawValue> = serde_json::from_str(content).ok()?;
        let texts: Vec<Option<String>> = elements.iter().map(|it| text_of(it.get())).collect();
        let all: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
        let whole = all.join("\n");
        if whole.len() <= max_bytes {
            return None;
        }
        let end = end_of_part(&whole, 0, max_bytes);
        let handle = self.keep(call, &whole);
        let mut content = String::from("[");
        let mut at = 0;
        for (element, text) in elements.iter().zip(&texts) {
            let Some(text) = text else {
                push(&mut content, element.get());
                continue;
            };
            let (from, to) = (at, at + text.len());
            at = to + 1;
            if to <= end {
                push(&mut content, element.get());
            } else if from < end {
                let text = json!(&text[..end - from]).to_string();
                push(&mut content, &with_member(element.get(), "text", &text));
            }
        }
        let n_all = whole.len();
        let read_more = &self.config.tool_name;
        let told = format!(
            "[Truncated: first {end} of {n_all} bytes of text. For the rest call {read_more} with \
             {{\"handle\": \"{handle}\", \"offset\": {end}}}.]"
        );
        let told = json!({"type": "text", "text": told}).to_string();
        push(&mut content, &told);
        content.push(']');
        Some(with_member(result, "content", &content))
    }

    /// Returns the part of a truncated result from `offset` on. `None` if the principal has no
    /// result with this handle, or at its end.
    pub(super) fn rest(
        &self,
        call: &GuardedCall<'_>,
        handle: &str,
        offset: usize,
    ) -> Option<Remainder> {
        let text = {
            let mut kept = self.kept.lock();
            let whole = (kept.of).get(&(call.principal.clone(), handle.to_owned()))?;
            (call.at < whole.until).then(|| Arc::clone(&whole.text))?
        };
        if offset >= text.len() {
            return None;
        }
        let start = text.floor_char_boundary(offset);
        let end = end_of_part(&text, start, self.config.max_bytes);
        Some(Remainder {
            text: text[start..end].to_owned(),
            next: (end < text.len()).then_some(end),
            n_all: text.len(),
        })
    }

    /// Stores a text for the principal and returns its handle, which is the same for the same text.
    fn keep(&self, call: &GuardedCall<'_>, text: &str) -> String {
        let digest = Sha256::digest(text.as_bytes());
        // A short handle is enough, because the key also has the principal.
        let handle = hex::encode(&digest[..6]);
        let mut kept = self.kept.lock();
        kept.n_bytes += text.len();
        let whole = StoredResult {
            text: text.into(),
            until: call.at + LASTS,
        };
        let key = (call.principal.clone(), handle.clone());
        if let Some((_, earlier)) = kept.of.push(key, whole) {
            kept.n_bytes -= earlier.text.len();
        }
        while kept.n_bytes > MAX_BYTES
            && let Some((_, oldest)) = kept.of.pop_lru()
        {
            kept.n_bytes -= oldest.text.len();
        }
        handle
    }
}

/// Appends an element to the text of an open JSON array.
fn push(array: &mut String, element: &str) {
    if array.len() > 1 {
        array.push(',');
    }
    array.push_str(element);
}

/// Returns the text of an element of `content`, if it is a text.
fn text_of(element: &str) -> Option<String> {
    let is_text = member(element, "type") == Some(r#""text""#);
    let text = member(element, "text").filter(|_| is_text)?;
    unescape(text).map(std::borrow::Cow::into_owned)
}

/// Returns the end of a part that begins at `start` and has at most `max_bytes`. It is after a
/// paragraph, else a line, a sentence or a word, if one ends in the last quarter; else between two
/// characters. A part has at least one character.
fn end_of_part(text: &str, start: usize, max_bytes: usize) -> usize {
    let limit = start.saturating_add(max_bytes);
    if limit >= text.len() {
        return text.len();
    }
    let hard = text.floor_char_boundary(limit);
    if hard <= start {
        return text.ceil_char_boundary(start + 1);
    }
    let from = text.ceil_char_boundary(hard - (hard - start) / LAST_PART);
    let last = &text[from..hard];
    let behind = |end: &str| last.rfind(end).map(|at| from + at + end.len());
    let ends = ["\n\n", "\n", ". ", " "];
    ends.into_iter().find_map(behind).unwrap_or(hard)
}

#[cfg(test)]
mod tests;
