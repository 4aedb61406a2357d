//! The messages that riglm writes itself. Their members are always in the same order.

use std::ops::Range;
use std::sync::OnceLock;

use bytestring::ByteString;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Envelope, Message, MessageKind, RequestId};
use crate::mcp::method;

/// The beginning of every message.
const HEAD: &str = r#"{"jsonrpc":"2.0""#;

/// The space for the names of members and for a short id.
const ENVELOPE_BYTES: usize = 64;

impl Message {
    /// Returns a request. `params` must be JSON text.
    #[must_use]
    pub fn request(id: &RequestId, method: &str, params: Option<&str>) -> Self {
        let mut draft = Draft::new(MessageKind::Request, params.unwrap_or_default().len());
        draft.add_id(Some(id));
        draft.add_method(method);
        draft.add_params(params);
        draft.finish()
    }

    /// Returns a notification. `params` must be JSON text.
    #[must_use]
    pub fn notification(method: &str, params: Option<&str>) -> Self {
        let mut draft = Draft::new(MessageKind::Notification, params.unwrap_or_default().len());
        draft.add_method(method);
        draft.add_params(params);
        draft.finish()
    }

    /// Returns the cancellation of a request.
    #[must_use]
    pub fn cancellation(request: &RequestId, reason: Option<&str>) -> Self {
        let reason = reason.map_or_else(String::new, |reason| {
            format!(r#","reason":{}"#, Value::from(reason))
        });
        let params = format!(r#"{{"requestId":{request}{reason}}}"#);
        Self::notification(method::NOTIFICATIONS_CANCELLED, Some(&params))
    }

    /// Returns the successful response to a request. `result` must be JSON text. It is not parsed,
    /// however long it is.
    #[must_use]
    pub fn success(id: &RequestId, result: &str) -> Self {
        let mut draft = Draft::new(MessageKind::Success, result.len());
        draft.add_id(Some(id));
        draft.envelope.result_at = Some(draft.add("result", result));
        draft.finish()
    }

    /// Returns the response to a request that failed. Without an id, the message has the id `null`.
    /// `error` must be the JSON text of an error object.
    #[must_use]
    pub fn failure(id: Option<&RequestId>, error: &str) -> Self {
        failure_draft(id, error).finish()
    }
}

/// Returns the text of [`Message::failure`].
pub(in crate::mcp) fn failure_text(id: Option<&RequestId>, error: &str) -> String {
    let mut draft = failure_draft(id, error);
    draft.text.push('}');
    draft.text
}

fn failure_draft(id: Option<&RequestId>, error: &str) -> Draft {
    let mut draft = Draft::new(MessageKind::Failure, error.len());
    draft.add_id(id);
    draft.envelope.error_at = Some(draft.add("error", error));
    draft
}

/// A message to which members are added in order.
struct Draft {
    text: String,
    envelope: Envelope,
}

impl Draft {
    /// Returns a message without members, with space for a body of this size.
    fn new(kind: MessageKind, n_body_bytes: usize) -> Self {
        let mut text = String::with_capacity(HEAD.len() + ENVELOPE_BYTES + n_body_bytes);
        text.push_str(HEAD);
        let envelope = Envelope {
            kind,
            id: None,
            method: None,
            id_at: None,
            params_at: None,
            result_at: None,
            error_at: None,
            is_version_2: true,
        };
        Self { text, envelope }
    }

    fn add_id(&mut self, id: Option<&RequestId>) {
        let Some(id) = id else {
            self.add("id", "null");
            return;
        };
        self.envelope.id_at = Some(self.add("id", &id.to_json()));
        self.envelope.id = Some(id.clone());
    }

    fn add_method(&mut self, method: &str) {
        self.add("method", &Value::from(method).to_string());
        self.envelope.method = Some(method.into());
    }

    fn add_params(&mut self, params: Option<&str>) {
        let Some(params) = params else {
            return;
        };
        let at = self.add("params", params);
        // A reader takes `null` for absent parameters too.
        self.envelope.params_at = (params != "null").then_some(at);
    }

    /// Adds a member and returns the position of its value.
    fn add(&mut self, key: &str, value: &str) -> Range<usize> {
        debug_assert!(
            serde_json::from_str::<&RawValue>(value).is_ok(),
            "no JSON text: {value}"
        );
        for part in [",\"", key, "\":"] {
            self.text.push_str(part);
        }
        let start = self.text.len();
        self.text.push_str(value);
        start..self.text.len()
    }

    fn finish(mut self) -> Message {
        self.text.push('}');
        Message {
            text: ByteString::from(self.text),
            parts: vec![self.envelope],
            is_batch: false,
            outline: OnceLock::new(),
            param_headers: None,
            hints: None,
            trace: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the bytes of a message, and that a reader finds its parts at the same positions.
    fn assert_written(message: &Message, expected: &str) {
        let text = std::str::from_utf8(message.raw()).unwrap();
        assert_eq!(text, expected);
        let read = Message::from_text(expected.to_owned()).unwrap();
        assert_eq!(format!("{message:?}"), format!("{read:?}"));
    }

    #[test]
    fn a_message_has_its_members_in_order() {
        let id = RequestId::Text("a\"b".into());
        assert_written(
            &Message::request(&id, "m", Some(r#"{"n":1.0}"#)),
            r#"{"jsonrpc":"2.0","id":"a\"b","method":"m","params":{"n":1.0}}"#,
        );
        assert_written(
            &Message::request(&id, "a\"b", Some("null")),
            r#"{"jsonrpc":"2.0","id":"a\"b","method":"a\"b","params":null}"#,
        );
        assert_written(
            &Message::notification("m", None),
            r#"{"jsonrpc":"2.0","method":"m"}"#,
        );
        let number = RequestId::Number("1e3".into());
        assert_written(
            &Message::success(&number, "null"),
            r#"{"jsonrpc":"2.0","id":1e3,"result":null}"#,
        );
        assert_written(
            &Message::failure(Some(&number), r#"{"code":-1}"#),
            r#"{"jsonrpc":"2.0","id":1e3,"error":{"code":-1}}"#,
        );
        assert_written(
            &Message::failure(None, r#"{"code":-1}"#),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1}}"#,
        );
        assert_eq!(
            failure_text(None, "{}"),
            r#"{"jsonrpc":"2.0","id":null,"error":{}}"#
        );
    }

    #[test]
    fn a_cancellation_names_its_request() {
        let id = RequestId::Number("7".into());
        assert_written(
            &Message::cancellation(&id, None),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        );
        assert_written(
            &Message::cancellation(&id, Some("why")),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"why"}}"#,
        );
    }
}
