//! Replacement of the id and the progress token of a request that are already in use.

use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::{PROGRESS_TOKEN, SUBSCRIPTION_ID};
use riglm_domain::mcp::method;

/// An id or token of the client, and its replacement towards the upstream.
#[derive(Debug)]
pub(super) struct ReplacedName {
    /// The name that the client chose.
    pub(super) own: RequestId,
    /// The name that the upstream gets.
    pub(super) inner: RequestId,
}

/// The replaced names of one request.
#[derive(Debug)]
pub(super) struct ReplacedNames {
    pub(super) id: Option<ReplacedName>,
    /// The token of its progress notifications.
    pub(super) token: Option<ReplacedName>,
}

impl ReplacedNames {
    /// Returns the request with the internal names.
    pub(super) fn replaced_in(&self, message: &Message) -> Message {
        let mut replaced = message.clone();
        if let Some(id) = &self.id {
            replaced = replaced.with_id(&id.inner);
        }
        let params = (message.single()).and_then(|envelope| message.params(envelope));
        if let (Some(token), Some(params)) = (&self.token, params) {
            let inner = token.inner.to_json();
            replaced = replaced.with_params(&edit::with_meta(params, &[(PROGRESS_TOKEN, &inner)]));
        }
        replaced
    }

    /// Returns a message of the upstream with the names of the client.
    pub(super) fn restored_in(&self, message: Message) -> Message {
        let Some(envelope) = message.single() else {
            return message;
        };
        match envelope.kind() {
            MessageKind::Success | MessageKind::Failure => self.restored_in_answer(message),
            MessageKind::Request | MessageKind::Notification => {
                let Some(params) = message.params(envelope) else {
                    return message;
                };
                match self.restored_in_params(envelope.method(), params) {
                    Some(params) => message.with_params(&params),
                    None => message,
                }
            }
        }
    }

    fn restored_in_answer(&self, message: Message) -> Message {
        let Some(id) = &self.id else {
            return message;
        };
        let restored = message.with_id(&id.own);
        let result = (message.single()).and_then(|envelope| message.result(envelope));
        match result.and_then(|result| with_subscription(result, id)) {
            Some(result) => restored.with_result(&result),
            None => restored,
        }
    }

    /// Returns the `params` of a notification with restored names, if they contain a replaced one.
    fn restored_in_params(&self, method: Option<&str>, params: &str) -> Option<String> {
        let replaced = match (method, &self.id, &self.token) {
            (Some(method::NOTIFICATIONS_PROGRESS), _, Some(token)) => {
                with_own(params, "progressToken", token)
            }
            (Some(method::NOTIFICATIONS_CANCELLED), Some(id), _) => {
                with_own(params, "requestId", id)
            }
            _ => None,
        };
        let text = replaced.as_deref().unwrap_or(params);
        let subscribed = self.id.as_ref().and_then(|id| with_subscription(text, id));
        subscribed.or(replaced)
    }
}

/// Returns the object with the client's name as its member `key`, if the member holds the internal
/// one.
fn with_own(object: &str, key: &str, name: &ReplacedName) -> Option<String> {
    let is_inner = is_named(edit::member(object, key), name);
    is_inner.then(|| edit::with_member(object, key, &name.own.to_json()))
}

/// Returns `params` or a result with the client's id of the subscription, if it belongs to one.
fn with_subscription(object: &str, id: &ReplacedName) -> Option<String> {
    let is_inner = is_named(edit::meta(object, SUBSCRIPTION_ID), id);
    is_inner.then(|| edit::with_meta(object, &[(SUBSCRIPTION_ID, &id.own.to_json())]))
}

fn is_named(json: Option<&str>, name: &ReplacedName) -> bool {
    json.and_then(RequestId::from_json).as_ref() == Some(&name.inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Message {
        Message::from_text(text.into()).unwrap()
    }

    fn names() -> ReplacedNames {
        let renamed = |own: &str, inner: &str| {
            Some(ReplacedName {
                own: RequestId::from_json(own).unwrap(),
                inner: RequestId::Text(inner.into()),
            })
        };
        ReplacedNames {
            id: renamed("7", "riglm.c:1"),
            token: renamed("\"t\"", "riglm.c:2"),
        }
    }

    #[test]
    fn forwarded_requests_have_inner_ids_and_tokens() {
        let text = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":1.0,"_meta":{"progressToken":"t","y":1e3}}}"#;
        let expected = text
            .replace("\"id\":7", r#""id":"riglm.c:1""#)
            .replace(r#""t""#, r#""riglm.c:2""#);
        assert_eq!(
            names().replaced_in(&parse(text)).raw().as_ref(),
            expected.as_bytes()
        );
    }

    #[test]
    fn answers_and_notifications_get_client_ids_back() {
        let subscribed = r#""_meta":{"io.modelcontextprotocol/subscriptionId":"riglm.c:1"}"#;
        let inner = [
            r#"{"id":"riglm.c:1","result":{"a":1.0}}"#.to_owned(),
            r#"{"id":"riglm.c:1","error":{"code":1,"message":"riglm.c:1"}}"#.into(),
            format!(r#"{{"id":"riglm.c:1","result":{{{subscribed}}}}}"#),
            r#"{"method":"notifications/progress","params":{"progressToken":"riglm.c:2"}}"#.into(),
            format!(
                r#"{{"method":"notifications/cancelled","params":{{"requestId":"riglm.c:1",{subscribed}}}}}"#
            ),
            format!(r#"{{"method":"notifications/x","params":{{{subscribed},"n":1e3}}}}"#),
            r#"{"method":"notifications/progress","params":{"progressToken":"other"}}"#.into(),
            r#"{"method":"notifications/x"}"#.into(),
        ];
        for text in inner {
            let expected = text
                .replace(r#""message":"riglm.c:1""#, r#""message":"kept""#)
                .replace(r#""riglm.c:1""#, "7")
                .replace(r#""riglm.c:2""#, r#""t""#)
                .replace("kept", "riglm.c:1");
            let restored = names().restored_in(parse(&text));
            assert_eq!(restored.raw().as_ref(), expected.as_bytes());
        }
    }
}
