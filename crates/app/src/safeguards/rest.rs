//! Results that are longer than a model should be given at once: their beginning is passed on, the rest
//! is kept for who asks for it.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use riglm_domain::edit::{member, with_member};
use riglm_domain::prediction::NamePattern;
use riglm_domain::principal::Principal;
use riglm_domain::scan::unescaped;
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::GuardedCall;
use super::names::Names;

/// How many results are kept at a time.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999);
/// How many bytes they have in all.
const MAX_BYTES: usize = 64 << 20;
/// How long one is kept.
const LASTS: Duration = Duration::from_hours(1);
/// A cut is made at the end of a paragraph, a line, a sentence or a word, where one ends within the
/// last part of what there is room for: one of this many.
const LAST_PART: usize = 4;

/// How long results are cut.
#[derive(Clone, Debug, PartialEq)]
pub struct LongResultOptions {
    /// The most bytes of text that a model is given at once, at least 1.
    pub max_bytes: usize,
    /// Tools whose results are never cut.
    pub except: Vec<NamePattern>,
    /// The name of the tool that returns the rest.
    pub read_more: String,
}

/// Long results, and the rests of those that were cut.
#[derive(Debug)]
pub(crate) struct LongResults {
    options: LongResultOptions,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    of: LruCache<(Principal, String), Whole>,
    n_bytes: usize,
}

#[derive(Debug)]
struct Whole {
    text: Arc<str>,
    until: Instant,
}

/// A part of a result that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The text.
    pub(crate) text: String,
    /// The place behind it, in bytes; `None` at the end.
    pub(crate) next: Option<usize>,
    /// How many bytes there are in all.
    pub(crate) n_all: usize,
}

impl LongResults {
    pub(super) fn new(options: LongResultOptions) -> Self {
        Self {
            options,
            kept: Mutex::new(Kept {
                of: LruCache::new(MAX_KEPT),
                n_bytes: 0,
            }),
        }
    }

    /// Returns whether the results of a tool with these names stay whole.
    pub(super) fn excepts(&self, names: &Names) -> bool {
        names.fit_any(&self.options.except)
    }

    /// Returns the beginning of a result whose texts are too long, with how to read on; `None` of any
    /// other. Results with structured content stay whole: a client checks the one against the other.
    /// What is no text stays as well.
    pub(super) fn cut(&self, call: &GuardedCall<'_>, result: &str) -> Option<String> {
        let max_bytes = self.options.max_bytes;
        if call.own.is_some() || result.len() <= max_bytes {
            return None;
        }
        if member(result, "structuredContent").is_some() {
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
        let read_more = &self.options.read_more;
        let told = format!(
            "[Cut: these are the first {end} of {n_all} bytes of text. For the rest call \
             {read_more} with {{\"handle\": \"{handle}\", \"offset\": {end}}}.]"
        );
        push(
            &mut content,
            &json!({"type": "text", "text": told}).to_string(),
        );
        content.push(']');
        Some(with_member(result, "content", &content))
    }

    /// Returns a part of a result that was cut for the same principal, from a place on; `None` where
    /// there is none by this handle, or no more of it.
    pub(super) fn rest(&self, call: &GuardedCall<'_>, handle: &str, offset: usize) -> Option<Rest> {
        let text = {
            let mut kept = self.lock();
            let whole = (kept.of).get(&(call.principal.clone(), handle.to_owned()))?;
            (call.at < whole.until).then(|| Arc::clone(&whole.text))?
        };
        if offset >= text.len() {
            return None;
        }
        let start = text.floor_char_boundary(offset);
        let end = end_of_part(&text, start, self.options.max_bytes);
        Some(Rest {
            text: text[start..end].to_owned(),
            next: (end < text.len()).then_some(end),
            n_all: text.len(),
        })
    }

    /// Keeps a text for the caller and returns its handle: the same one for the same text.
    fn keep(&self, call: &GuardedCall<'_>, text: &str) -> String {
        let digest = Sha256::digest(text.as_bytes());
        let handle = digest[..6].iter().fold(String::new(), |mut handle, byte| {
            let _ = write!(handle, "{byte:02x}"); // Writing to a String cannot fail.
            handle
        });
        let mut kept = self.lock();
        kept.n_bytes += text.len();
        let whole = Whole {
            text: text.into(),
            until: call.at + LASTS,
        };
        let key = (call.principal.clone(), handle.clone());
        if let Some((_, earlier)) = kept.of.push(key, whole) {
            kept.n_bytes -= earlier.text.len();
        }
        while kept.n_bytes > MAX_BYTES {
            let Some((_, oldest)) = kept.of.pop_lru() else {
                break;
            };
            kept.n_bytes -= oldest.text.len();
        }
        handle
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds an element to the text of an array that has begun.
fn push(array: &mut String, element: &str) {
    if array.len() > 1 {
        array.push(',');
    }
    array.push_str(element);
}

/// Returns the text of an element of `content` that is one.
fn text_of(element: &str) -> Option<String> {
    let is_text = member(element, "type") == Some(r#""text""#);
    let text = member(element, "text").filter(|_| is_text)?;
    unescaped(text).map(std::borrow::Cow::into_owned)
}

/// Returns where a part of a text ends that begins at `start` and has at most `max_bytes`: behind a
/// paragraph, else behind a line, a sentence, a word, where one ends in its last quarter; else between
/// two characters. At least one character is in it.
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
