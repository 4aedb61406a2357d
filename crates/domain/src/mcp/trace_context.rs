//! Trace context of requests: W3C Trace Context, the recommendation of November 2021, with the flag
//! for random trace ids of Level 2.
//!
//! A malformed context counts as absent, as the recommendation demands. No function here returns an
//! error.

mod state;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::mcp::edit::{member, with_meta, without_meta};
use crate::mcp::message::Message;
use crate::mcp::scan::{members, unescape};

pub use state::TraceState;

/// The name of the header, and of the entry of `_meta`, with the position in a trace.
pub const TRACEPARENT: &str = "traceparent";
/// The name of the header, and of the entry of `_meta`, with additional data of tracing systems.
pub const TRACESTATE: &str = "tracestate";

/// The version that riglm writes.
const VERSION: &str = "00";
/// The version that no valid header has.
const NO_VERSION: &str = "ff";
/// The length of a `traceparent` of version 00. Later versions begin with the same fields.
const LENGTH: usize = 55;

/// Identifies a trace: 16 bytes, not all of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Identifies a span, a part of a trace: 8 bytes, not all of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// The flags of a trace. Flags that the recommendation does not define are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceFlags(u8);

impl TraceFlags {
    const SAMPLED: u8 = 1;
    const RANDOM: u8 = 2;

    /// Returns the flags in this byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Self {
        Self(byte & (Self::SAMPLED | Self::RANDOM))
    }

    /// Returns the flags as a byte.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        self.0
    }

    /// Returns whether the caller may have recorded the trace.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
    }

    /// Returns the flags with another value for sampled.
    #[must_use]
    pub fn with_sampled(self, is_sampled: bool) -> Self {
        Self(self.0 & !Self::SAMPLED | u8::from(is_sampled))
    }
}

/// A position in a trace: the trace and the span of the sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span in which the request was made.
    pub span: SpanId,
    /// The flags of the trace.
    pub flags: TraceFlags,
    /// The additional data of tracing systems.
    pub state: Option<Arc<TraceState>>,
}

impl TraceContext {
    /// Parses a `traceparent` and an optional `tracestate`. Returns `None` if the first is
    /// malformed. A malformed `tracestate` counts as absent.
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let text = trim_header_value(traceparent);
        if !text.is_ascii() || text.len() < LENGTH {
            return None;
        }
        let (known, rest) = text.split_at(LENGTH);
        let mut fields = known.split('-');
        let mut field = |length| fields.next().filter(|field: &&str| field.len() == length);
        let version = field(2)?;
        let (trace, span, flags) = (field(32)?, field(16)?, field(2)?);
        hexadecimal::<1>(version)?;
        // The further fields of a later version are not known.
        let is_whole = match version {
            NO_VERSION => false,
            VERSION => rest.is_empty(),
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let (trace, span) = (hexadecimal(trace)?, hexadecimal(span)?);
        let [flags] = hexadecimal(flags)?;
        if !is_whole || trace == [0; 16] || span == [0; 8] {
            return None;
        }
        Some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            flags: TraceFlags::from_byte(flags),
            state: tracestate.and_then(TraceState::parse).map(Arc::new),
        })
    }

    /// Reads the context in `_meta` of the JSON text of `params`.
    #[must_use]
    pub fn of_params(params: &str) -> Option<Self> {
        // A search for the name is cheaper than reading the members, and mostly sufficient.
        memchr::memmem::find(params.as_bytes(), TRACEPARENT.as_bytes())?;
        let meta = member(params, "_meta")?;
        let text = |key| member(meta, key).and_then(unescape);
        let state: Option<Cow<'_, str>> = text(TRACESTATE);
        Self::parse(&text(TRACEPARENT)?, state.as_deref())
    }

    /// Returns the context of a child span of this one.
    #[must_use]
    pub fn child(&self, span: SpanId, is_sampled: bool) -> Self {
        Self {
            span,
            flags: self.flags.with_sampled(is_sampled),
            ..self.clone()
        }
    }

    /// Returns whether the trace is recorded, as far as the sender of the request knows.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags.is_sampled()
    }

    /// Returns the `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.to_string()
    }

    /// Returns the `tracestate`.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref().map(TraceState::as_str)
    }

    /// Returns the request with this context in its `_meta`. All other bytes of the message stay
    /// the same.
    ///
    /// Messages that cannot carry it are returned unchanged: batches, responses, and messages whose
    /// `params` or `_meta` are no objects.
    #[must_use]
    pub fn inject(&self, message: &Message) -> Message {
        let Some(envelope) = message.single().filter(|part| part.method().is_some()) else {
            return message.clone();
        };
        let params = message.params(envelope).unwrap_or("{}");
        let is_object = |text: &str| text.starts_with('{');
        if !is_object(params) || !member(params, "_meta").is_none_or(is_object) {
            return message.clone();
        }
        // JSON escapes nothing in these texts but quotes and backslashes in `tracestate`.
        let parent = format!(r#""{self}""#);
        let state = self
            .tracestate()
            .map(|state| serde_json::Value::from(state).to_string());
        let params = match &state {
            Some(state) => with_meta(params, &[(TRACEPARENT, &parent), (TRACESTATE, state)]),
            // An existing `tracestate` belongs to another trace, or is malformed.
            None => without_state(with_meta(params, &[(TRACEPARENT, &parent)])),
        };
        message.with_params(&params)
    }
}

/// Writes the `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{VERSION}-{:032x}-{:016x}-{:02x}",
            u128::from_be_bytes(self.trace.0),
            u64::from_be_bytes(self.span.0),
            self.flags.to_byte()
        )
    }
}

fn without_state(params: String) -> String {
    let meta = member(&params, "_meta").unwrap_or_default();
    if members(meta).any(|(key, _)| key == TRACESTATE) {
        without_meta(&params, TRACESTATE)
    } else {
        params
    }
}

/// Returns a header value without the optional white space around it.
fn trim_header_value(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Returns the bytes of a text of lower-case hexadecimal digits.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.bytes().any(|digit| digit.is_ascii_uppercase()) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;
