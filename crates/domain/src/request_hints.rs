//! What a client that knows of the proxy says about a request, beside the protocol: which work it
//! belongs to, what is being done, how much room there is.
//!
//! Each can be said in `_meta` of the request or in a header of its POST; `_meta` wins. What is
//! meant for the proxy ends here; the entries of W3C trace context, of which two tell what belongs
//! together as well, go on unchanged.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::edit::{member, without_meta};
use crate::mcp_header::decode_value;
use crate::message::Message;
use crate::scan::{members, unescaped};
use crate::trace_context::{TRACEPARENT, TraceContext, TraceId};

/// The entry of `_meta` with the key of the work that a request belongs to.
pub const SESSION: &str = "io.github.riglm/session";
/// The entry of `_meta` with the text of what is being done.
pub const CONTEXT: &str = "io.github.riglm/context";
/// The entry of `_meta` with the most tokens that a list of tools may have.
pub const TOKEN_BUDGET: &str = "io.github.riglm/token-budget";
/// The header that says what [`SESSION`] says.
pub const SESSION_HEADER: &str = "x-riglm-session";
/// The header that says what [`CONTEXT`] says.
pub const CONTEXT_HEADER: &str = "x-riglm-context";
/// The header that says what [`TOKEN_BUDGET`] says.
pub const TOKEN_BUDGET_HEADER: &str = "x-riglm-token-budget";

/// The entry of `_meta` with properties that travel with a request (W3C Baggage).
const BAGGAGE: &str = "baggage";
/// The property of baggage that names a session (the name that OpenTelemetry gives it).
const BAGGAGE_SESSION: &str = "session.id";

/// The entries that end here.
const OWN: [&str; 3] = [SESSION, CONTEXT, TOKEN_BUDGET];

/// The longest key of a session, in bytes.
pub const MAX_SESSION_BYTES: usize = 256;
/// The longest text of what is being done, in bytes.
pub const MAX_CONTEXT_BYTES: usize = 8 << 10;

/// What a request says about itself. What is too long or has the wrong form is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHints {
    /// A key that the client chose for the work that the request belongs to: 1 to
    /// [`MAX_SESSION_BYTES`] bytes, not blank.
    pub session: Option<Box<str>>,
    /// What is being done, in words: 1 to [`MAX_CONTEXT_BYTES`] bytes, not blank.
    pub context: Option<Box<str>>,
    /// The most tokens that a list of tools may have, at least 1.
    pub token_budget: Option<u64>,
    /// `session.id` of the baggage, of the same form as [`Self::session`].
    pub baggage_session: Option<Box<str>>,
    /// The trace that the request belongs to.
    pub trace: Option<TraceId>,
    /// The names of what was said in a form that cannot be read, or at too great a length.
    pub ignored: Vec<&'static str>,
}

impl RequestHints {
    /// Returns what the headers of a POST say, by their values as they are written there.
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
            let key = text(value).and_then(|text| bounded(&text, MAX_SESSION_BYTES));
            read.session = read.kept(SESSION_HEADER, key);
        }
        if let Some(value) = context {
            let said = text(value).and_then(|text| bounded(&text, MAX_CONTEXT_BYTES));
            read.context = read.kept(CONTEXT_HEADER, said);
        }
        if let Some(value) = token_budget {
            let budget = text(value).and_then(|text| tokens(&text));
            read.token_budget = read.kept(TOKEN_BUDGET_HEADER, budget);
        }
        read
    }

    /// Returns what `_meta` of the JSON text of `params` says.
    #[must_use]
    pub fn of_params(params: &str) -> Self {
        let mut read = Self::default();
        let text = |json: &str| unescaped(json).map(Cow::into_owned);
        for (key, value) in member(params, "_meta").into_iter().flat_map(members) {
            match key.as_ref() {
                SESSION => {
                    let key = text(value).and_then(|text| bounded(&text, MAX_SESSION_BYTES));
                    read.session = read.kept(SESSION, key);
                }
                CONTEXT => {
                    let said = text(value).and_then(|text| bounded(&text, MAX_CONTEXT_BYTES));
                    read.context = read.kept(CONTEXT, said);
                }
                TOKEN_BUDGET => {
                    let budget = tokens(&text(value).unwrap_or_else(|| value.to_owned()));
                    read.token_budget = read.kept(TOKEN_BUDGET, budget);
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
                    read.trace = read.kept(TRACEPARENT, context.map(|context| context.trace));
                }
                _ => {}
            }
        }
        read
    }

    /// Returns these hints, with those of `other` where these say nothing.
    #[must_use]
    pub fn or(mut self, other: &Self) -> Self {
        for name in &other.ignored {
            self.ignore(name);
        }
        Self {
            session: self.session.or_else(|| other.session.clone()),
            context: self.context.or_else(|| other.context.clone()),
            token_budget: self.token_budget.or(other.token_budget),
            baggage_session: (self.baggage_session).or_else(|| other.baggage_session.clone()),
            trace: self.trace.or(other.trace),
            ignored: self.ignored,
        }
    }

    /// Returns hints that say nothing.
    #[must_use]
    pub fn none() -> &'static Self {
        static NONE: OnceLock<RequestHints> = OnceLock::new();
        NONE.get_or_init(Self::default)
    }

    fn kept<T>(&mut self, name: &'static str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.ignore(name);
        }
        value
    }

    /// Notes that a hint cannot be used, once however often it stands there.
    fn ignore(&mut self, name: &'static str) {
        if !self.ignored.contains(&name) {
            self.ignored.push(name);
        }
    }
}

/// Returns a message of a client without what is meant for the proxy, which is in its hints then,
/// before what they said already. Of a batch, whose parts come at once, the first part that says
/// something speaks for all. Everything else of the message keeps its bytes.
#[must_use]
pub fn taken_out(message: Message) -> Message {
    let names = ["riglm", BAGGAGE, TRACEPARENT];
    // Looking for the names anywhere is cheaper than reading the members, and mostly enough.
    let has_any = names
        .iter()
        .any(|name| memchr::memmem::find(message.raw(), name.as_bytes()).is_some());
    if !has_any {
        return message;
    }
    let parts = message.envelopes().iter();
    let params = parts.filter(|part| part.method().is_some());
    let params = params.filter_map(|part| message.params(part));
    let said = params.fold(RequestHints::default(), |said, params| {
        said.or(&RequestHints::of_params(params))
    });
    if said == RequestHints::default() {
        return message;
    }
    let hints = said.or(message.hints());
    message.with_each_params(without_own).with_hints(hints)
}

/// Returns `params` without the entries that end here; `None` if there are none.
fn without_own(params: &str) -> Option<String> {
    let meta = member(params, "_meta")?;
    let has_any = members(meta).any(|(key, _)| OWN.contains(&key.as_ref()));
    has_any.then(|| {
        let own = OWN.iter();
        own.fold(params.to_owned(), |params, key| {
            match member(&params, "_meta") {
                Some(meta) if member(meta, key).is_some() => without_meta(&params, key),
                _ => params,
            }
        })
    })
}

/// Returns a text without white space around it; `None` if nothing is left, or too much.
fn bounded(text: &str, max_bytes: usize) -> Option<Box<str>> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= max_bytes).then(|| text.into())
}

fn tokens(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|tokens| *tokens > 0)
}

/// Returns `session.id` of a baggage, if it has one; an error if its value cannot be used.
fn baggage_session(baggage: &str) -> Result<Option<Box<str>>, ()> {
    for entry in baggage.split(',') {
        // What follows a semicolon are properties of the entry.
        let entry = entry.split(';').next().unwrap_or_default();
        let Some((name, value)) = entry.split_once('=') else {
            continue;
        };
        if name.trim() == BAGGAGE_SESSION {
            let value = percent_decoded(value.trim()).ok_or(())?;
            return bounded(&value, MAX_SESSION_BYTES).map(Some).ok_or(());
        }
    }
    Ok(None)
}

/// Returns a text with its `%XX` decoded; `None` if they are broken or make no UTF-8.
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
