//! The trace that a request belongs to, as it is passed from program to program: W3C Trace Context,
//! the recommendation of November 2021, with the flag for random trace ids of Level 2.
//!
//! What is malformed is no context: it is ignored, as the recommendation wants it. Nothing here
//! fails.

mod state;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::edit::{member, with_meta, without_meta};
use crate::message::Message;
use crate::scan::{members, unescaped};

pub use state::TraceState;

/// The name of the header, and of the entry of `_meta`, with the place in a trace.
pub const TRACEPARENT: &str = "traceparent";
/// The name of the header, and of the entry of `_meta`, with what tracing systems add to it.
pub const TRACESTATE: &str = "tracestate";

/// The version that is written.
const VERSION: &str = "00";
/// The version that no header has.
const NO_VERSION: &str = "ff";
/// The length of a `traceparent` of version 00, with which those of later versions begin.
const LENGTH: usize = 55;

/// Identifies a trace: 16 bytes, not all of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Identifies a part of a trace: 8 bytes, not all of them 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// What is known of a trace as a whole. Flags that the recommendation does not define are dropped.
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

    /// Returns the same flags, sampled or not.
    #[must_use]
    pub fn with_sampled(self, is_sampled: bool) -> Self {
        Self(self.0 & !Self::SAMPLED | u8::from(is_sampled))
    }
}

/// A place in a trace: what a request says of the one who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The part of it that the request was made in.
    pub span: SpanId,
    /// What is known of the trace.
    pub flags: TraceFlags,
    /// What tracing systems add.
    pub state: Option<Arc<TraceState>>,
}

impl TraceContext {
    /// Reads a `traceparent` and, where there is one, a `tracestate`; `None` where the first is
    /// malformed. A malformed `tracestate` is as good as none.
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let text = trimmed(traceparent);
        if !text.is_ascii() || text.len() < LENGTH {
            return None;
        }
        let (known, rest) = text.split_at(LENGTH);
        let mut fields = known.split('-');
        let mut field = |length| fields.next().filter(|field: &&str| field.len() == length);
        let version = field(2)?;
        let (trace, span, flags) = (field(32)?, field(16)?, field(2)?);
        hexadecimal::<1>(version)?;
        // What follows in a later version is not known here.
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

    /// Reads `_meta` of the JSON text of `params`.
    #[must_use]
    pub fn of_params(params: &str) -> Option<Self> {
        // Looking for the name anywhere is cheaper than reading the members, and mostly enough.
        memchr::memmem::find(params.as_bytes(), TRACEPARENT.as_bytes())?;
        let meta = member(params, "_meta")?;
        let text = |key| member(meta, key).and_then(unescaped);
        let state: Option<Cow<'_, str>> = text(TRACESTATE);
        Self::parse(&text(TRACEPARENT)?, state.as_deref())
    }

    /// Returns the place of a part of the same trace that was made in this one.
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

    /// Returns the request with this place in its `_meta`, and there alone: the rest of the message
    /// keeps its bytes. What has no room for it is returned as it is: batches, responses, and
    /// messages whose `params` or `_meta` are no objects.
    #[must_use]
    pub fn put_into(&self, message: &Message) -> Message {
        let Some(envelope) = message.single().filter(|part| part.method().is_some()) else {
            return message.clone();
        };
        let params = message.params(envelope).unwrap_or("{}");
        let is_object = |text: &str| text.starts_with('{');
        if !is_object(params) || !member(params, "_meta").is_none_or(is_object) {
            return message.clone();
        }
        // Neither text has anything that JSON escapes but quotes and backslashes of the second.
        let parent = format!(r#""{self}""#);
        let state = self
            .tracestate()
            .map(|state| serde_json::Value::from(state).to_string());
        let params = match &state {
            Some(state) => with_meta(params, &[(TRACEPARENT, &parent), (TRACESTATE, state)]),
            // One that is there is another trace's, or malformed.
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

/// Returns a value without the white space that may stand around one in a header.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Returns the bytes that a text of lower case hexadecimal digits stands for.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes().chunks_exact(2);
    if digits.len() != N || text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    for (byte, pair) in bytes.iter_mut().zip(digits) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
