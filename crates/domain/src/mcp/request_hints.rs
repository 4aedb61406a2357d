//! Hints of a client to riglm about a request, in addition to the protocol: its session key, its
//! context, its token budget and the vector of its query.
//!
//! A hint can be in `_meta` of the request or in a header of its POST; `_meta` wins. A vector is too
//! long for a header. Hints to riglm are not forwarded. The entries of W3C trace context are
//! forwarded unchanged; two of them also show which requests belong together.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::mcp::edit::{member, without_meta};
use crate::mcp::header::decode_value;
use crate::mcp::message::Message;
use crate::mcp::scan::{members, unescape};
use crate::mcp::trace_context::{TRACEPARENT, TraceContext, TraceId};
use crate::retrieval::embedding::Embedding;

/// The entry of `_meta` with the key that the client chose for the work session of a request.
pub const SESSION: &str = "io.github.riglm/session";
/// The entry of `_meta` with the context: the current task, in words.
pub const CONTEXT: &str = "io.github.riglm/context";
/// The entry of `_meta` with the maximum number of tokens of a tool list.
pub const TOKEN_BUDGET: &str = "io.github.riglm/token-budget";
/// The entry of `_meta` with the vector of the query of a search: `{"model", "vector"}`.
pub const EMBEDDING: &str = "io.github.riglm/embedding";
/// The header with the same meaning as [`SESSION`].
pub const SESSION_HEADER: &str = "x-riglm-session";
/// The header with the same meaning as [`CONTEXT`].
pub const CONTEXT_HEADER: &str = "x-riglm-context";
/// The header with the same meaning as [`TOKEN_BUDGET`].
pub const TOKEN_BUDGET_HEADER: &str = "x-riglm-token-budget";

/// The entry of `_meta` with properties that travel with a request (W3C Baggage).
const BAGGAGE: &str = "baggage";
/// The property of baggage that names a session (the name is from OpenTelemetry).
const BAGGAGE_SESSION: &str = "session.id";

/// The entries that are not forwarded.
const OWN_ENTRIES: [&str; 4] = [SESSION, CONTEXT, TOKEN_BUDGET, EMBEDDING];

/// The maximum length of a session key, in bytes.
pub const MAX_SESSION_BYTES: usize = 256;
/// The maximum length of a context, in bytes.
pub const MAX_CONTEXT_BYTES: usize = 8 << 10;
/// The maximum length of the JSON text of a vector with its model, in bytes. It is enough for
/// [`Embedding::MAX_DIMENSION`] numbers of 24 digits.
pub const MAX_EMBEDDING_BYTES: usize = 256 << 10;

/// The hints of a request. Hints that are too long or malformed are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHints {
    /// The key that the client chose for the work session of the request: 1 to
    /// [`MAX_SESSION_BYTES`] bytes, not blank.
    pub session: Option<Box<str>>,
    /// The current task, in words: 1 to [`MAX_CONTEXT_BYTES`] bytes, not blank.
    pub context: Option<Box<str>>,
    /// The maximum number of tokens of a tool list, at least 1.
    pub token_budget: Option<u64>,
    /// The vector of the query of a search, of the length 1.
    pub embedding: Option<Arc<Embedding>>,
    /// `session.id` of the baggage, in the same form as [`Self::session`].
    pub baggage_session: Option<Box<str>>,
    /// The trace that the request belongs to.
    pub trace: Option<TraceId>,
    /// The names of hints that were malformed or too long.
    pub ignored: Vec<&'static str>,
}

impl RequestHints {
    /// Returns the hints in the headers of a POST, from their raw values.
    #[must_use]
    pub fn of_headers(
        session: Option<&[u8]>,
        context: Option<&[u8]>,
        token_budget: Option<&[u8]>,
    ) -> Self {
        let mut read = Self::default();
        let text = |value: &[u8]| {
            let value = std::str::from_utf8(value).ok()?;
            decode_value(value.trim()).map(Cow::into_owned)
        };
        if let Some(value) = session {
            let key = text(value).and_then(|text| bounded_text(&text, MAX_SESSION_BYTES));
            read.session = read.valid_or_ignore(SESSION_HEADER, key);
        }
        if let Some(value) = context {
            let said = text(value).and_then(|text| bounded_text(&text, MAX_CONTEXT_BYTES));
            read.context = read.valid_or_ignore(CONTEXT_HEADER, said);
        }
        if let Some(value) = token_budget {
            let budget = text(value).and_then(|text| parse_tokens(&text));
            read.token_budget = read.valid_or_ignore(TOKEN_BUDGET_HEADER, budget);
        }
        read
    }

    /// Returns the hints in `_meta` of the JSON text of `params`.
    #[must_use]
    pub fn of_params(params: &str) -> Self {
        let mut read = Self::default();
        let text = |json: &str| unescape(json).map(Cow::into_owned);
        for (key, value) in member(params, "_meta").into_iter().flat_map(members) {
            match key.as_ref() {
                SESSION => {
                    let key = text(value).and_then(|text| bounded_text(&text, MAX_SESSION_BYTES));
                    read.session = read.valid_or_ignore(SESSION, key);
                }
                CONTEXT => {
                    let said = text(value).and_then(|text| bounded_text(&text, MAX_CONTEXT_BYTES));
                    read.context = read.valid_or_ignore(CONTEXT, said);
                }
                TOKEN_BUDGET => {
                    // The budget may be a JSON string or a JSON number.
                    let budget = parse_tokens(&text(value).unwrap_or_else(|| value.to_owned()));
                    read.token_budget = read.valid_or_ignore(TOKEN_BUDGET, budget);
                }
                EMBEDDING => {
                    let vector = parse_embedding(value).map(Arc::new);
                    read.embedding = read.valid_or_ignore(EMBEDDING, vector);
                }
                BAGGAGE => {
                    let baggage = text(value);
                    let of_session = baggage.as_deref().map(baggage_session);
                    match of_session {
                        Some(Ok(key)) => read.baggage_session = key,
                        Some(Err(())) | None => read.ignore(BAGGAGE),
                    }
                }
                TRACEPARENT => {
                    let context = text(value).and_then(|text| TraceContext::parse(&text, None));
                    read.trace =
                        read.valid_or_ignore(TRACEPARENT, context.map(|context| context.trace));
                }
                _ => {}
            }
        }
        read
    }

    /// Returns these hints. Missing ones are taken from `other`.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for name in &other.ignored {
            self.ignore(name);
        }
        Self {
            session: self.session.or_else(|| other.session.clone()),
            context: self.context.or_else(|| other.context.clone()),
            token_budget: self.token_budget.or(other.token_budget),
            embedding: self.embedding.or_else(|| other.embedding.clone()),
            baggage_session: (self.baggage_session).or_else(|| other.baggage_session.clone()),
            trace: self.trace.or(other.trace),
            ignored: self.ignored,
        }
    }

    /// Returns empty hints.
    #[must_use]
    pub fn none() -> &'static Self {
        static NONE: OnceLock<RequestHints> = OnceLock::new();
        NONE.get_or_init(Self::default)
    }

    fn valid_or_ignore<T>(&mut self, name: &'static str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.ignore(name);
        }
        value
    }

    /// Adds the name of an unusable hint, without repetition.
    fn ignore(&mut self, name: &'static str) {
        if !self.ignored.contains(&name) {
            self.ignored.push(name);
        }
    }
}

/// Extracts the hints from the `_meta` of a message of a client. Returns the message without
/// riglm's own entries and with the hints, which win over earlier hints of the message.
///
/// In a batch, the first part with a hint decides for all parts, since they arrive at once. The
/// exception is a vector, because it belongs to one query: it is ignored in a batch of several
/// parts. All other bytes of the message stay the same.
#[must_use]
pub fn extract_hints(message: Message) -> Message {
    let names = ["riglm", BAGGAGE, TRACEPARENT];
    let searched = match message.single() {
        Some(only) => message.member(only, "_meta").unwrap_or_default().as_bytes(),
        None => message.raw(),
    };
    // A search for the names is cheaper than reading the members, and mostly sufficient.
    let has_any = names
        .iter()
        .any(|name| memchr::memmem::find(searched, name.as_bytes()).is_some());
    if !has_any {
        return message;
    }
    let parts = message.envelopes().iter();
    let params = parts.filter(|part| part.method().is_some());
    let params = params.filter_map(|part| message.params(part));
    let mut said = params.fold(RequestHints::default(), |said, params| {
        said.or(&RequestHints::of_params(params))
    });
    if message.envelopes().len() > 1 && said.embedding.take().is_some() {
        said.ignore(EMBEDDING);
    }
    if said == RequestHints::default() {
        return message;
    }
    let hints = said.or(message.hints());
    message
        .with_each_params(without_own_entries)
        .with_hints(hints)
}

/// Returns `params` without the entries that are not forwarded; `None` if there are none.
fn without_own_entries(params: &str) -> Option<String> {
    let meta = member(params, "_meta")?;
    let has_any = members(meta).any(|(key, _)| OWN_ENTRIES.contains(&key.as_ref()));
    has_any.then(|| {
        let own = OWN_ENTRIES.iter();
        own.fold(params.to_owned(), |params, key| {
            match member(&params, "_meta") {
                Some(meta) if member(meta, key).is_some() => without_meta(&params, key),
                _ => params,
            }
        })
    })
}

/// Returns a text without surrounding white space; `None` if it is empty or too long.
fn bounded_text(text: &str, max_bytes: usize) -> Option<Box<str>> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= max_bytes).then(|| text.into())
}

fn parse_tokens(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|tokens| *tokens > 0)
}

/// Returns a vector of the length 1 from its JSON text; `None` if it is too long, malformed or without
/// a direction.
fn parse_embedding(json: &str) -> Option<Embedding> {
    if json.len() > MAX_EMBEDDING_BYTES {
        return None;
    }
    let read: Embedding = serde_json::from_str(json).ok()?;
    read.to_unit_length()
}

/// Returns `session.id` of a baggage, if it has one. Returns an error if the value cannot be used.
fn baggage_session(baggage: &str) -> Result<Option<Box<str>>, ()> {
    for entry in baggage.split(',') {
        // The properties of an entry follow a semicolon.
        let entry = entry.split(';').next().unwrap_or_default();
        let Some((name, value)) = entry.split_once('=') else {
            continue;
        };
        if name.trim() == BAGGAGE_SESSION {
            let value = percent_decoded(value.trim()).ok_or(())?;
            return bounded_text(&value, MAX_SESSION_BYTES).map(Some).ok_or(());
        }
    }
    Ok(None)
}

/// Returns a text with its `%XX` decoded; `None` for broken escapes or invalid UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
