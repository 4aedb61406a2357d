//! A JSON-RPC 2.0 message: its bytes as received, with an index of its envelope.
//!
//! The proxy forwards these bytes and does not serialize a body again. Parsing records the
//! positions of `id`, `params`, `result` and `error` in the text. A reader can access a part
//! without a copy, and an edit (see [`Message::with_id`]) changes only the bytes of one part.
//!
//! # Examples
//!
//! A message keeps its bytes; the index of its envelope says what it is:
//!
//! ```
//! use riglm_domain::bytes::Bytes;
//! use riglm_domain::mcp::message::Message;
//!
//! let text = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","x":1.0}}"#;
//! let message = Message::parse(&Bytes::from(text)).unwrap();
//! let envelope = message.single().unwrap();
//! assert_eq!(envelope.method(), Some("tools/call"));
//! assert_eq!(message.params(envelope), Some(r#"{"name":"t","x":1.0}"#));
//! assert_eq!(message.raw(), text.as_bytes());
//! ```

mod compose;
mod outline;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use self::compose::failure_text;
use self::outline::Outline;
use crate::mcp::edit;
use crate::mcp::method;
use crate::mcp::request_hints::RequestHints;
use crate::mcp::scan;
use crate::mcp::trace_context::TraceContext;

/// An identifier that was chosen by a peer: the `id` of a request or a `progressToken`.
///
/// Strings and numbers are different identifiers even if they print alike (`1`, `"1"`). Numbers
/// keep their original text, because a peer may use any JSON number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// A JSON number, as written.
    Number(Box<str>),
    /// A JSON string, unescaped.
    Text(Box<str>),
}

impl RequestId {
    /// Parses the JSON text of an identifier; `None` unless it is a number or a string.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'"' => serde_json::from_str::<String>(json)
                .ok()
                .map(|text| Self::Text(text.into())),
            b'-' | b'0'..=b'9' => Some(Self::Number(json.into())),
            _ => None,
        }
    }

    /// Returns the identifier as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.as_ref().into(),
            Self::Text(text) => serde_json::Value::from(text.as_ref()).to_string(),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Has a method and an id: expects a response.
    Request,
    /// Has a method and no id: expects no response.
    Notification,
    /// A response to a request with a result.
    Success,
    /// A response to a request with an error.
    Failure,
}

/// Bytes are not a JSON-RPC message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The bytes are not UTF-8.
    #[error("message is not UTF-8")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// The text is not JSON.
    #[error("message is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// The JSON is not a JSON-RPC 2.0 message.
    #[error("message is not JSON-RPC 2.0: {reason}")]
    NotJsonRpc {
        /// The missing or wrong part.
        reason: &'static str,
        /// The id of the message, if readable.
        id: Option<RequestId>,
    },
}

/// The parts of one JSON-RPC object, as positions in the text of its [`Message`].
#[derive(Clone, Debug)]
pub struct Envelope {
    kind: MessageKind,
    id: Option<RequestId>,
    method: Option<Box<str>>,
    id_at: Option<Range<usize>>,
    params_at: Option<Range<usize>>,
    result_at: Option<Range<usize>>,
    error_at: Option<Range<usize>>,
    is_version_2: bool,
}

impl Envelope {
    /// Returns the kind of the message.
    #[must_use]
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// Returns the id; absent on notifications and on errors without a request.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// Returns the method; present on requests and notifications.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Returns whether the message has `"jsonrpc": "2.0"`.
    #[must_use]
    pub fn is_version_2(&self) -> bool {
        self.is_version_2
    }

    /// Returns the method and the id if the message is a request.
    #[must_use]
    pub fn as_request(&self) -> Option<(&str, &RequestId)> {
        match (self.kind, &self.method, &self.id) {
            (MessageKind::Request, Some(method), Some(id)) => Some((method, id)),
            _ => None,
        }
    }

    /// Returns the position of `params`, `result` or `error`.
    fn body_at(&self) -> Option<&Range<usize>> {
        match self.kind {
            MessageKind::Request | MessageKind::Notification => self.params_at.as_ref(),
            MessageKind::Success => self.result_at.as_ref(),
            MessageKind::Failure => self.error_at.as_ref(),
        }
    }

    /// Sets the id, whose text was at `at` and has `n_bytes` now, and moves the parts after it.
    fn replace_id(&mut self, id: RequestId, at: &Range<usize>, n_bytes: usize) {
        self.move_parts(at.end, at.start + n_bytes);
        self.id = Some(id);
        self.id_at = Some(at.start..at.start + n_bytes);
    }

    /// Moves the parts after a text that was changed: its end was at `from` and is at `to` now.
    fn move_parts(&mut self, from: usize, to: usize) {
        let parts = [
            &mut self.id_at,
            &mut self.params_at,
            &mut self.result_at,
            &mut self.error_at,
        ];
        for part in parts.into_iter().flatten() {
            if part.start >= from {
                let start = part.start - from + to;
                *part = start..start + part.len();
            }
        }
    }

    /// Returns whether the message is a response.
    #[must_use]
    pub fn is_response(&self) -> bool {
        matches!(self.kind, MessageKind::Success | MessageKind::Failure)
    }
}

/// One JSON-RPC message or batch: its bytes and the positions of its parts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Message {
    /// Checked for UTF-8 once.
    text: ByteString,
    parts: Vec<Envelope>,
    is_batch: bool,
    /// Read when it is first needed.
    outline: OnceLock<Arc<Outline>>,
    param_headers: Option<Arc<[ParamHeader]>>,
    hints: Option<Arc<RequestHints>>,
    trace: Option<Arc<TraceContext>>,
}

/// The white space of JSON.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// A header `Mcp-Param-*` of a request over HTTP: its name and its value, encoded.
pub type ParamHeader = (Box<str>, Box<str>);

#[derive(Deserialize)]
struct WireMessage<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: PresentMember<'a>,
    #[serde(borrow, default)]
    error: PresentMember<'a>,
}

/// A member whose explicit `null` differs from its absence.
#[derive(Default)]
struct PresentMember<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for PresentMember<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}

impl Message {
    /// Parses the envelope of `raw`, or of each member of a batch.
    ///
    /// White space around the message is removed. If it is more than half of `raw`, the message is
    /// copied and does not keep `raw` in memory. Unknown members, members of any shape below the
    /// envelope, and a missing `jsonrpc` member are accepted.
    ///
    /// # Errors
    ///
    /// Returns [`MessageError`] if the bytes are not UTF-8, not JSON, or neither an object with a
    /// method or a response nor a non-empty array of such objects.
    pub fn parse(raw: &Bytes) -> Result<Self, MessageError> {
        let text = ByteString::try_from(raw.clone()).map_err(MessageError::NotUtf8)?;
        let trimmed = text.trim_matches(WHITE_SPACE);
        if trimmed.len() < text.len() / 2 {
            return Self::parse_text(trimmed.into());
        }
        let trimmed = text.slice_ref(trimmed);
        Self::parse_text(trimmed)
    }

    /// Parses a text without white space around it.
    fn parse_text(text: ByteString) -> Result<Self, MessageError> {
        let is_batch = text.starts_with('[');
        let parts = if is_batch {
            let members: Vec<&RawValue> =
                serde_json::from_str(&text).map_err(MessageError::NotJson)?;
            if members.is_empty() {
                return Err(MessageError::NotJsonRpc {
                    reason: "the batch is empty",
                    id: None,
                });
            }
            let members = members.into_iter();
            let parts = members.map(|member| envelope(&text, member.get()));
            parts.collect::<Result<_, _>>()?
        } else {
            vec![envelope(&text, &text)?]
        };
        Ok(Self {
            text,
            parts,
            is_batch,
            outline: OnceLock::new(),
            param_headers: None,
            hints: None,
            trace: None,
        })
    }

    /// Parses `raw` like [`Message::parse`] if it is a response with the same result as `known`, with
    /// another id at most. The result, which may have megabytes, is then compared with the known one
    /// in place of being parsed. Returns `None` for any other message.
    #[must_use]
    pub fn parse_repeated(raw: &Bytes, known: &Self) -> Option<Self> {
        let result_at = known.single()?.result_at.clone()?;
        let (result, tail) = (result_at.len(), &known.text[result_at.start..]);
        let text = raw.trim_ascii_end();
        let start = text.len().checked_sub(tail.len())?;
        if text[start..] != *tail.as_bytes() {
            return None;
        }
        // The same message with a short result, which is parsed to check all that is not known.
        let mut short = BytesMut::with_capacity(start + 4 + tail.len() - result);
        short.extend_from_slice(&text[..start]);
        short.extend_from_slice(b"null");
        short.extend_from_slice(&tail.as_bytes()[result..]);
        let n_bytes = short.len();
        let mut message = Self::parse(&short.freeze()).ok()?;
        let is_same_shape = message.text.len() == n_bytes && !message.outline().has_line_breaks;
        let [part] = message.parts.as_mut_slice() else {
            return None;
        };
        if part.kind != MessageKind::Success || part.result_at != Some(start..start + 4) {
            return None;
        }
        // Some servers write the id after the result.
        part.move_parts(start + 4, start + result);
        part.result_at = Some(start..start + result);
        let outline = known.outline.get_or_init(|| Arc::new(known.read_outline()));
        let is_flat = message.outline().depth <= outline.depth;
        message.outline = OnceLock::new();
        if is_same_shape && is_flat {
            // An error means that it is set, which it is not.
            let _ = message.outline.set(Arc::clone(outline));
        }
        message.text = ByteString::try_from(raw.slice_ref(text)).ok()?;
        Some(message)
    }

    /// Returns the bytes as received, without white space around them.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        self.text.as_bytes()
    }

    /// Returns the text as received, without white space around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the bytes on one line: line breaks between tokens become spaces.
    ///
    /// JSON allows raw line breaks only as white space between tokens, so nothing else changes.
    #[must_use]
    pub fn on_one_line(&self) -> Bytes {
        if !self.outline().has_line_breaks {
            return self.raw().clone();
        }
        let mut line = BytesMut::from(self.raw().as_ref());
        for byte in line.iter_mut() {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        line.freeze()
    }

    /// Returns the envelopes: one, or one for each member of a batch, in order.
    #[must_use]
    pub fn envelopes(&self) -> &[Envelope] {
        &self.parts
    }

    /// Returns the ids of the requests in the message, in order.
    pub fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        self.parts
            .iter()
            .filter_map(Envelope::as_request)
            .map(|(_, id)| id)
    }

    /// Returns the envelope of a message that is not a batch.
    #[must_use]
    pub fn single(&self) -> Option<&Envelope> {
        match self.parts.as_slice() {
            [only] if !self.is_batch => Some(only),
            _ => None,
        }
    }

    /// Returns whether objects and arrays are nested more than `limit` levels deep. The message
    /// itself is the first level.
    #[must_use]
    pub fn is_deeper_than(&self, limit: usize) -> bool {
        // Each level has an opening and a closing bracket.
        self.text.len() / 2 > limit && self.outline().depth > limit
    }

    /// Returns the name of a member that receivers may read differently. Some readers ignore the
    /// case of names; for a duplicate member, some take the first and some the last. The checked
    /// names are `method` and `params`, and `name` among the `params` of `tools/call`. Such a
    /// member differs from one of them in case only, or is a duplicate.
    #[must_use]
    pub fn ambiguous_member(&self) -> Option<String> {
        let objects: Vec<&RawValue> = if self.is_batch {
            serde_json::from_str(&self.text).ok()?
        } else {
            Vec::new()
        };
        let objects = objects.into_iter().map(RawValue::get);
        let single = (!self.is_batch).then_some(&*self.text);
        let mut of_envelopes = objects.chain(single);
        let of_envelope =
            of_envelopes.find_map(|object| find_ambiguous_member(object, &["method", "params"]));
        let mut calls = (self.parts.iter())
            .filter(|part| part.method() == Some(method::TOOLS_CALL))
            .filter_map(|part| self.params(part));
        of_envelope.or_else(|| calls.find_map(|params| find_ambiguous_member(params, &["name"])))
    }

    /// Returns whether the message is a JSON-RPC batch.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.is_batch
    }

    /// Returns whether the message, or a part of a batch, has this method.
    #[must_use]
    pub fn has_method(&self, method: &str) -> bool {
        let mut parts = self.envelopes().iter();
        parts.any(|part| part.method() == Some(method))
    }

    /// Returns the JSON text of `params`.
    #[must_use]
    pub fn params(&self, envelope: &Envelope) -> Option<&str> {
        self.part(envelope.params_at.as_ref())
    }

    /// Returns the JSON text of `result`.
    #[must_use]
    pub fn result(&self, envelope: &Envelope) -> Option<&str> {
        self.part(envelope.result_at.as_ref())
    }

    /// Returns the JSON text of `error`.
    #[must_use]
    pub fn error(&self, envelope: &Envelope) -> Option<&str> {
        self.part(envelope.error_at.as_ref())
    }

    /// Returns the members of the body of a part (its `params`, `result` or `error`), in their order:
    /// the unescaped key and the text of the value. The text of a message that is not a batch is
    /// scanned only once for all its members.
    pub fn members(&self, part: &Envelope) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        let body = self.part(part.body_at());
        let single = body.filter(|_| !self.is_batch);
        let known = single.and_then(|body| self.outline().members(body));
        let scanned = match (&known, body) {
            (None, Some(body)) => Some(scan::members(body)),
            _ => None,
        };
        (known.into_iter().flatten()).chain(scanned.into_iter().flatten())
    }

    /// Returns the text of a member of the body of a part (its `params`, `result` or `error`). Of
    /// duplicate members the last one counts, as for parsers.
    #[must_use]
    pub fn member(&self, part: &Envelope, key: &str) -> Option<&str> {
        let members = self.members(part);
        let found = members.filter(|(found, _)| found == key).last();
        found.map(|(_, value)| value)
    }

    fn outline(&self) -> &Outline {
        self.outline.get_or_init(|| Arc::new(self.read_outline()))
    }

    fn read_outline(&self) -> Outline {
        let body_at = self.single().and_then(Envelope::body_at);
        Outline::read(self.text.as_bytes(), body_at.map(|at| at.start))
    }

    /// Returns the same message with another id. All other bytes stay the same.
    ///
    /// Batches and messages without an id are returned unchanged.
    #[must_use]
    pub fn with_id(&self, id: &RequestId) -> Self {
        let Some((envelope, at)) = self
            .single()
            .and_then(|envelope| Some((envelope, envelope.id_at.clone()?)))
        else {
            return self.clone();
        };
        let json = id.to_json();
        if envelope.id.is_none() {
            return self.splice(at, &json);
        }
        // Everything but the id stays the same, so nothing needs to be parsed again.
        let mut message = self.clone();
        message.text = ByteString::from(self.text_with(&at, &json));
        if let [part] = message.parts.as_mut_slice() {
            part.replace_id(id.clone(), &at, json.len());
        }
        message
    }

    /// Returns the same message with another `result`.
    ///
    /// `result` must be JSON text. Batches and messages without a result are returned unchanged.
    #[must_use]
    pub fn with_result(&self, result: &str) -> Self {
        let Some(at) = self
            .single()
            .and_then(|envelope| envelope.result_at.clone())
        else {
            return self.clone();
        };
        self.splice(at, result)
    }

    /// Returns the same message with other `params`.
    ///
    /// `params` must be JSON text. Batches and messages without a method are returned unchanged.
    #[must_use]
    pub fn with_params(&self, params: &str) -> Self {
        let Some(envelope) = self.single().filter(|envelope| envelope.method.is_some()) else {
            return self.clone();
        };
        if let Some(at) = envelope.params_at.clone() {
            return self.splice(at, params);
        }
        // Before the closing brace: the bytes are trimmed, so it is the last one.
        let end = self.text.len().saturating_sub(1);
        self.splice(end..end, &format!(r#","params":{params}"#))
    }

    /// Returns the same message with another `error`.
    ///
    /// `error` must be JSON text. Batches and messages without an error are returned unchanged.
    #[must_use]
    pub fn with_error(&self, error: &str) -> Self {
        let Some(at) = self.single().and_then(|envelope| envelope.error_at.clone()) else {
            return self.clone();
        };
        self.splice(at, error)
    }

    /// Returns the headers `Mcp-Param-*` that the message was received with or will be sent with.
    /// `None` if they are unknown, as on transports without headers.
    #[must_use]
    pub fn param_headers(&self) -> Option<&[ParamHeader]> {
        self.param_headers.as_deref()
    }

    /// Returns the same message with these headers `Mcp-Param-*`. Edits keep them.
    #[must_use]
    pub fn with_param_headers(mut self, headers: impl Into<Arc<[ParamHeader]>>) -> Self {
        self.param_headers = Some(headers.into());
        self
    }

    /// Returns the hints of the client about the request that are not part of the protocol; empty
    /// if none were read.
    #[must_use]
    pub fn hints(&self) -> &RequestHints {
        self.hints
            .as_deref()
            .unwrap_or_else(|| RequestHints::none())
    }

    /// Returns the same message with these hints. Edits keep them.
    #[must_use]
    pub fn with_hints(mut self, hints: RequestHints) -> Self {
        self.hints = Some(Arc::new(hints));
        self
    }

    /// Returns the trace context in which the message was created or will be sent, if known. The
    /// message's own `_meta` is not read for it.
    #[must_use]
    pub fn trace(&self) -> Option<&Arc<TraceContext>> {
        self.trace.as_ref()
    }

    /// Returns the same message with this trace context, or without one. Edits keep it, and no byte
    /// of the message changes.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<Arc<TraceContext>>) -> Self {
        self.trace = trace;
        self
    }

    /// Returns the same message with the `params` of each request and notification replaced by the
    /// result of `change`, which gets their JSON text. `None` keeps them.
    #[must_use]
    pub fn with_each_params(&self, change: impl Fn(&str) -> Option<String>) -> Self {
        let with_method = self.parts.iter().filter(|part| part.method.is_some());
        let changed = with_method.filter_map(|part| {
            let at = part.params_at.clone()?;
            Some((at.clone(), change(self.part(Some(&at))?)?))
        });
        let changed: Vec<(Range<usize>, String)> = changed.collect();
        let Some((first, _)) = changed.first() else {
            return self.clone();
        };
        let edits: Vec<_> = changed
            .iter()
            .map(|(at, params)| (at.clone(), params.as_str()))
            .collect();
        let edited = edit::splice(&self.text, &edits);
        self.splice(first.start..self.text.len(), &edited[first.start..])
    }

    /// Returns the same message without known headers `Mcp-Param-*`, for a request that has become
    /// another one: its original headers no longer apply.
    #[must_use]
    pub fn without_param_headers(mut self) -> Self {
        self.param_headers = None;
        self
    }

    /// Returns a message from JSON text that the proxy has written.
    ///
    /// # Errors
    ///
    /// Returns [`MessageError`] like [`Message::parse`].
    pub fn from_text(text: String) -> Result<Self, MessageError> {
        let text = ByteString::from(text);
        let trimmed = text.slice_ref(text.trim_matches(WHITE_SPACE));
        Self::parse_text(trimmed)
    }

    fn splice(&self, at: Range<usize>, with: &str) -> Self {
        // Replacing one JSON value by another keeps the text a valid JSON-RPC message. If parsing
        // fails all the same, the unedited message is the safe one to forward.
        Self::from_text(self.text_with(&at, with)).map_or_else(
            |_| self.clone(),
            |message| Self {
                param_headers: self.param_headers.clone(),
                hints: self.hints.clone(),
                trace: self.trace.clone(),
                ..message
            },
        )
    }

    /// Returns the text with another one at this position.
    fn text_with(&self, at: &Range<usize>, with: &str) -> String {
        let mut text = String::with_capacity(self.text.len() - at.len() + with.len());
        text.push_str(&self.text[..at.start]);
        text.push_str(with);
        text.push_str(&self.text[at.end..]);
        text
    }

    fn part(&self, at: Option<&Range<usize>>) -> Option<&str> {
        self.text.get(at?.clone())
    }
}

/// Parses one object. `member` is a part of `text`; positions are relative to `text`.
fn envelope(text: &str, member: &str) -> Result<Envelope, MessageError> {
    let not_json_rpc = |reason, id| MessageError::NotJsonRpc { reason, id };
    if !member.starts_with('{') {
        return match serde_json::from_str::<&RawValue>(member) {
            Ok(_) => Err(not_json_rpc("not an object", None)),
            Err(source) => Err(MessageError::NotJson(source)),
        };
    }
    let wire: WireMessage<'_> = serde_json::from_str(member).map_err(|source| {
        if source.is_data() {
            not_json_rpc("a member has the wrong type or occurs twice", None)
        } else {
            MessageError::NotJson(source)
        }
    })?;
    // A `RawValue` borrows from `text`, so the difference of pointers is its position.
    let place = |raw: &RawValue| {
        let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        start..start + raw.get().len()
    };
    let id = wire.id.and_then(|raw| RequestId::from_json(raw.get()));
    let has_foreign_id = wire.id.is_some() && id.is_none();
    let kind = match (&wire.method, wire.result.0, wire.error.0) {
        (Some(_), _, _) if id.is_some() => MessageKind::Request,
        (Some(_), _, _) if has_foreign_id => {
            return Err(not_json_rpc(
                "the id is neither a string nor a number",
                None,
            ));
        }
        (Some(_), _, _) if has_null_id(member) => {
            return Err(not_json_rpc("the id of a request must not be null", None));
        }
        (Some(_), _, _) => MessageKind::Notification,
        // An error may lack an id: the peer could not read the id of the request.
        (None, _, Some(_)) => MessageKind::Failure,
        (None, Some(_), None) if id.is_some() => MessageKind::Success,
        (None, Some(_), None) => {
            return Err(not_json_rpc("a result without an id", None));
        }
        (None, None, None) => {
            return Err(not_json_rpc("no method, result or error", id));
        }
    };
    Ok(Envelope {
        kind,
        id_at: wire.id.map(place),
        params_at: wire.params.map(place),
        result_at: wire.result.0.map(place),
        error_at: wire.error.0.map(place),
        is_version_2: wire.jsonrpc.as_deref() == Some("2.0"),
        method: wire.method.map(|method| method.as_ref().into()),
        id,
    })
}

/// Returns a member of an object that equals one of `names` except for case, or is a duplicate of
/// one.
fn find_ambiguous_member(object: &str, names: &[&str]) -> Option<String> {
    let mut seen: Vec<&str> = Vec::new();
    for (key, _) in scan::members(object) {
        let Some(like) = names.iter().find(|name| equals_ignoring_case(&key, name)) else {
            continue;
        };
        if key != **like || seen.contains(like) {
            return Some(key.into_owned());
        }
        seen.push(like);
    }
    None
}

/// Returns whether a key equals `name`, which is in lower case, for case-insensitive readers. The
/// long s and the kelvin sign are other cases of ASCII letters.
fn equals_ignoring_case(key: &str, name: &str) -> bool {
    let folded = key.chars().map(|character| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(name.chars())
}

/// Returns whether an object has the member `"id": null`, which `Option` does not distinguish from
/// a missing member.
fn has_null_id(member: &str) -> bool {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow, default)]
        id: PresentMember<'a>,
    }
    serde_json::from_str::<Id<'_>>(member).is_ok_and(|found| found.id.0.is_some())
}

#[cfg(test)]
mod tests;
