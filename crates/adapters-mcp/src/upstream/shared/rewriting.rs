//! The rewriting of messages: request ids, progress tokens, and their repetitions in notifications.
//!
//! Every edit splices text. The rest of a message stays verbatim.

use bytes::Bytes;
use riglm_domain::mcp::edit::{member, meta, with_member, with_meta};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::{PROGRESS_TOKEN, SUBSCRIPTION_ID};
use serde_json::value::RawValue;

/// Returns the id and progress token of the request with this number on the shared connection.
pub(super) fn id_of(number: u64) -> RequestId {
    InternalRequest::Shared.id(number)
}

/// Returns the number of a request from its id or token. Returns `None` for an id from another
/// source.
pub(super) fn number_of(id: &RequestId) -> Option<u64> {
    InternalRequest::Shared.number_of(id)
}

/// Returns the progress token in the parameters of a request.
pub(super) fn token_of(message: &Message, envelope: &Envelope) -> Option<RequestId> {
    RequestId::from_json(meta(message.params(envelope)?, PROGRESS_TOKEN)?)
}

/// Returns a request of a client in the form that is sent over the shared connection.
pub(super) fn with_number(message: &Message, envelope: &Envelope, number: u64) -> Message {
    let id = id_of(number);
    let message = message.with_id(&id);
    let Some(params) = message.params(envelope_of(&message, envelope)) else {
        return message;
    };
    if meta(params, PROGRESS_TOKEN)
        .and_then(RequestId::from_json)
        .is_none()
    {
        return message;
    }
    let params = with_meta(params, &[(PROGRESS_TOKEN, &id.to_json())]);
    message.with_params(&params)
}

/// Returns the `initialize` request without the capabilities of the client.
pub(super) fn without_capabilities(message: &Message, envelope: &Envelope) -> Message {
    match message.params(envelope) {
        Some(params) => message.with_params(&with_member(params, "capabilities", "{}")),
        None => message.clone(),
    }
}

/// Returns the id or token in this member of `params`.
pub(super) fn id_member(message: &Message, envelope: &Envelope, key: &str) -> Option<RequestId> {
    RequestId::from_json(member(message.params(envelope)?, key)?)
}

/// Returns the notification with another id or token in this member of `params`.
pub(super) fn with_id_member(
    message: &Message,
    envelope: &Envelope,
    key: &str,
    id: &RequestId,
) -> Message {
    match message.params(envelope) {
        Some(params) => message.with_params(&with_member(params, key, &id.to_json())),
        None => message.clone(),
    }
}

/// Returns the id of the subscription to which a notification belongs.
pub(super) fn subscription_of(message: &Message, envelope: &Envelope) -> Option<RequestId> {
    RequestId::from_json(meta(message.params(envelope)?, SUBSCRIPTION_ID)?)
}

/// Returns the notification with another subscription id.
pub(super) fn with_subscription(message: &Message, envelope: &Envelope, id: &RequestId) -> Message {
    match message.params(envelope) {
        Some(params) => {
            message.with_params(&with_meta(params, &[(SUBSCRIPTION_ID, &id.to_json())]))
        }
        None => message.clone(),
    }
}

/// Returns the members of a batch, each as its own message. Returns none if the message is no
/// batch.
pub(super) fn members_of(batch: &Message) -> Vec<Message> {
    let members: Vec<&RawValue> = serde_json::from_slice(batch.raw()).unwrap_or_default();
    members
        .into_iter()
        // Each member is copied. The members go to several clients, and a slow client must not keep
        // the whole batch in memory.
        .filter_map(|member| Message::parse(&Bytes::copy_from_slice(member.get().as_bytes())).ok())
        .map(|member| member.with_trace(batch.trace().cloned()))
        .collect()
}

/// Returns the envelope of an edited message, because positions may differ from those in `before`.
fn envelope_of<'a>(message: &'a Message, before: &'a Envelope) -> &'a Envelope {
    message.single().unwrap_or(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::from_text(text.into()).unwrap()
    }

    fn text(message: &Message) -> &str {
        std::str::from_utf8(message.raw()).unwrap()
    }

    #[test]
    fn a_request_keeps_all_but_its_id_and_token() {
        let call = message(
            r#"{ "id":1,"params":{"a":1.0, "_meta":{"progressToken":"t","x":1e3}},"method":"m" }"#,
        );
        let sent = with_number(&call, call.single().unwrap(), 4);
        assert_eq!(
            text(&sent),
            r#"{ "id":"riglm:s:4","params":{"a":1.0, "_meta":{"progressToken":"riglm:s:4","x":1e3}},"method":"m" }"#
        );
        let plain = message(r#"{"id":"x","method":"m","params":{"_meta":{"progressToken":null}}}"#);
        assert_eq!(
            text(&with_number(&plain, plain.single().unwrap(), 5)),
            r#"{"id":"riglm:s:5","method":"m","params":{"_meta":{"progressToken":null}}}"#
        );
    }

    #[test]
    fn batches_are_split_into_their_members() {
        let batch = message(r#"[{"id":1,"method":"a"} , {"method":"b","params":{"n":1.0}}]"#);
        let members = members_of(&batch);
        let texts: Vec<&str> = members.iter().map(text).collect();
        assert_eq!(
            texts,
            [
                r#"{"id":1,"method":"a"}"#,
                r#"{"method":"b","params":{"n":1.0}}"#
            ]
        );
    }
}
