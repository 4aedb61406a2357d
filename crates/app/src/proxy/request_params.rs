//! The members of requests and results that the proxy reads. All values are borrowed from the
//! message. No value that is read here is ever written back.

use std::borrow::Cow;

use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::{self, RequestMeta};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::{members, unescape};
use riglm_domain::mcp::tool_result::is_error;
use riglm_domain::usage::invocation::Outcome;
use serde::Deserialize;

/// The members of a request's `params` that are read, as JSON text.
#[derive(Debug, Default)]
pub(crate) struct RequestParams<'a> {
    /// The `name` of `tools/call` and `prompts/get`.
    name: Option<&'a str>,
    /// The `uri` of `resources/read`.
    uri: Option<&'a str>,
    /// The `arguments` of `tools/call`.
    arguments: Option<&'a str>,
    /// The `task` of a request that requests a task as its answer.
    task: Option<&'a str>,
    /// The `inputResponses` of a further round of a call.
    input_responses: Option<&'a str>,
    /// The `requestState` of a further round of a call.
    request_state: Option<&'a str>,
    meta: Option<&'a str>,
}

impl<'a> RequestParams<'a> {
    /// Reads the JSON text of `params`. Anything but an object yields no members.
    pub(crate) fn read(params: Option<&'a str>) -> Self {
        Self::collect(params.into_iter().flat_map(members))
    }

    /// Reads the `params` of a request or notification in a message.
    pub(crate) fn of(message: &'a Message, part: &Envelope) -> Self {
        Self::collect(message.members(part))
    }

    fn collect(all: impl Iterator<Item = (Cow<'a, str>, &'a str)>) -> Self {
        let mut read = Self::default();
        for (key, value) in all {
            match key.as_ref() {
                "name" => read.name = Some(value),
                "uri" => read.uri = Some(value),
                "arguments" => read.arguments = Some(value),
                "task" => read.task = Some(value),
                "inputResponses" => read.input_responses = Some(value),
                "requestState" => read.request_state = Some(value),
                "_meta" => read.meta = Some(value),
                _ => {}
            }
        }
        read
    }

    /// Returns the name if it is a string.
    pub(crate) fn name(&self) -> Option<Cow<'a, str>> {
        self.name.and_then(text_of)
    }

    /// Returns the URI if it is a string.
    pub(crate) fn uri(&self) -> Option<Cow<'a, str>> {
        self.uri.and_then(text_of)
    }

    pub(crate) fn arguments(&self) -> Option<&'a str> {
        self.arguments
    }

    /// Returns whether the request is to be answered with a task, whose result is fetched later.
    pub(crate) fn wants_task(&self) -> bool {
        self.task.is_some()
    }

    /// Returns whether the request is a further round with the input that the server requested.
    pub(crate) fn is_further_round(&self) -> bool {
        self.input_responses.is_some() || self.request_state().is_some()
    }

    /// Returns the state that the server sent with its request for input, if it is a string.
    pub(crate) fn request_state(&self) -> Option<Cow<'a, str>> {
        self.request_state.and_then(text_of)
    }

    /// Returns the metadata that replaces the handshake. Returns `None` for a request of a legacy
    /// revision.
    pub(crate) fn protocol_meta(&self) -> Option<RequestMeta<'a>> {
        let meta = self.meta?;
        // A search for the key in the raw text is cheaper than parsing, and mostly sufficient.
        memchr::memmem::find(meta.as_bytes(), meta::PROTOCOL_VERSION.as_bytes())?;
        let meta = RequestMeta::of_meta(meta);
        meta.protocol_version.map(|_| meta)
    }

    pub(crate) fn era(&self) -> Era {
        match self.protocol_meta() {
            Some(_) => Era::Modern,
            None => Era::Legacy,
        }
    }

    pub(crate) fn progress_token(&self) -> Option<RequestId> {
        id_of(self.meta?, "progressToken")
    }
}

/// Returns the text of a JSON string. A string that cannot be unescaped (a lone surrogate) stays
/// escaped.
fn text_of(json: &str) -> Option<Cow<'_, str>> {
    json.starts_with('"')
        .then(|| unescape(json).unwrap_or(Cow::Borrowed(json)))
}

fn id_of(object: &str, member: &str) -> Option<RequestId> {
    let (_, value) = members(object).find(|(key, _)| key == member)?;
    RequestId::from_json(value)
}

/// Returns this member of `params` if it is an id or a token.
pub(crate) fn id_member(params: Option<&str>, member: IdMember) -> Option<RequestId> {
    id_of(
        params?,
        match member {
            IdMember::RequestId => "requestId",
            IdMember::ProgressToken => "progressToken",
        },
    )
}

/// The members that identify a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdMember {
    /// The `requestId` of `notifications/cancelled`.
    RequestId,
    /// The `progressToken` of `notifications/progress`.
    ProgressToken,
}

pub(crate) fn agreed_revision(result: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: String,
    }
    serde_json::from_str::<InitializeResult>(result)
        .ok()
        .map(|agreed| agreed.protocol_version)
}

/// Returns the outcome of a request that was answered with a result.
pub(crate) fn outcome_of(result: &str) -> Outcome {
    if is_error(result) {
        Outcome::Error
    } else {
        Outcome::Ok
    }
}

/// Returns whether a part of a message is the result of a modern server that asks for input.
pub(crate) fn is_input_required(message: &Message, part: &Envelope) -> bool {
    message.result(part).is_some()
        && message.member(part, "resultType") == Some("\"input_required\"")
}

/// Returns the `requestState` of a result that asks for input, if it is a string.
pub(crate) fn request_state(result: &str) -> Option<Cow<'_, str>> {
    member(result, "requestState").and_then(text_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_call_are_read() {
        let text =
            r#"{"name":"a\u0041","arguments":{"x":1.0},"_meta":{"progressToken":"t"},"task":{}}"#;
        let params = RequestParams::read(Some(text));
        assert_eq!(params.name().as_deref(), Some("aA"));
        assert_eq!(params.arguments(), Some(r#"{"x":1.0}"#));
        assert_eq!(params.progress_token(), Some(RequestId::Text("t".into())));
        assert_eq!(RequestParams::read(Some(r#"{"name":5}"#)).name(), None);
        assert!(RequestParams::read(Some("[1]")).name().is_none());
    }

    #[test]
    fn input_required_is_recognized_only_as_result_type() {
        let is_required = |result: &str| {
            let message = format!(r#"{{"id":1,"result":{result}}}"#);
            let message = Message::from_text(message).unwrap();
            is_input_required(&message, &message.envelopes()[0])
        };
        let asked = r#"{"requestState":"\u0061","resultType":"input_required"}"#;
        assert!(is_required(asked));
        assert_eq!(request_state(asked).as_deref(), Some("a"));
        assert_eq!(request_state(r#"{"requestState":null}"#), None);
        for other in [
            r#"{"resultType":"complete","_meta":{"resultType":"input_required"}}"#,
            r#"{"content":[{"text":"\"resultType\":\"input_required\""}]}"#,
        ] {
            assert!(!is_required(other), "{other}");
        }
    }

    #[test]
    fn further_rounds_are_recognized_by_their_params() {
        let read = |params| RequestParams::read(Some(params));
        assert!(!read(r#"{"name":"t","arguments":{"requestState":"s"}}"#).is_further_round());
        assert!(read(r#"{"inputResponses":{}}"#).is_further_round());
        let state = read(r#"{"requestState":"\u0061"}"#);
        assert!(state.is_further_round());
        assert_eq!(state.request_state().as_deref(), Some("a"));
        assert!(!read(r#"{"requestState":null}"#).is_further_round());
    }
}
