//! The request id namespace: escapes ids of clients that look like ids of the proxy.
//!
//! Such ids occur if the client is another riglm. They are prefixed inside, so that two proxies in
//! a row do not confuse their requests.

use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::{ESCAPE_PREFIX, INTERNAL_PREFIX};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_ports::downstream::{ClientLink, Route};

fn escaped_id(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::Text(text) if text.starts_with(INTERNAL_PREFIX) => {
            Some(RequestId::Text(format!("{ESCAPE_PREFIX}{text}").into()))
        }
        _ => None,
    }
}

/// Returns the id under which a request of the client is forwarded.
pub(super) fn internal_id(id: &RequestId) -> RequestId {
    escaped_id(id).unwrap_or_else(|| id.clone())
}

fn unescaped_id(id: &RequestId) -> Option<RequestId> {
    let RequestId::Text(text) = id else {
        return None;
    };
    let inner = text.strip_prefix(ESCAPE_PREFIX)?;
    inner
        .starts_with(INTERNAL_PREFIX)
        .then(|| RequestId::Text(inner.into()))
}

/// Returns a message of the client with escaped ids.
///
/// # Errors
///
/// Returns the message unchanged if it is a batch with such ids, because ids in batches are not
/// rewritten.
pub(super) fn escape(message: Message) -> Result<Message, Message> {
    if message.is_batch() {
        let has_any = message.request_ids().any(|id| escaped_id(id).is_some());
        return if has_any { Err(message) } else { Ok(message) };
    }
    let Some(envelope) = message.single() else {
        return Ok(message);
    };
    if let Some((_, id)) = envelope.as_request() {
        return Ok(match escaped_id(id) {
            Some(id) => message.with_id(&id),
            None => message,
        });
    }
    if envelope.method() != Some("notifications/cancelled") {
        return Ok(message);
    }
    let params = message.params(envelope).unwrap_or_default();
    let id = edit::member(params, "requestId").and_then(RequestId::from_json);
    Ok(match id.as_ref().and_then(escaped_id) {
        Some(id) => message.with_params(&edit::with_member(params, "requestId", &id.to_json())),
        None => message,
    })
}

/// A client link that unescapes the ids of the client in every message.
#[derive(Debug)]
pub(super) struct UnescapingLink(Arc<dyn ClientLink>);

impl UnescapingLink {
    pub(super) fn new(client: Arc<dyn ClientLink>) -> Self {
        Self(client)
    }
}

#[async_trait]
impl ClientLink for UnescapingLink {
    async fn deliver(&self, message: Message, route: Route) {
        let route = match route {
            Route::Related(id) => Route::Related(unescaped_id(&id).unwrap_or(id)),
            Route::Standalone => Route::Standalone,
        };
        self.0.deliver(unescape(message), route).await;
    }

    async fn finish(&self, request: &RequestId) {
        match unescaped_id(request) {
            Some(request) => self.0.finish(&request).await,
            None => self.0.finish(request).await,
        }
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// Returns a message for the client with its ids unescaped.
fn unescape(message: Message) -> Message {
    let Some(envelope) = message.single() else {
        return message;
    };
    if envelope.is_response() {
        return match envelope.id().and_then(unescaped_id) {
            Some(id) => message.with_id(&id),
            None => message,
        };
    }
    // Few messages contain such an id. A search in the raw text avoids parsing the others.
    let params = message.params(envelope).unwrap_or_default();
    if memchr::memmem::find(params.as_bytes(), ESCAPE_PREFIX.as_bytes()).is_none() {
        return message;
    }
    let restored = |json: Option<&str>| {
        json.and_then(RequestId::from_json)
            .as_ref()
            .and_then(unescaped_id)
    };
    let mut new = params.to_owned();
    if let Some(id) = restored(edit::meta(params, SUBSCRIPTION_ID)) {
        new = edit::with_meta(&new, &[(SUBSCRIPTION_ID, &id.to_json())]);
    }
    if envelope.method() == Some("notifications/cancelled")
        && let Some(id) = restored(edit::member(params, "requestId"))
    {
        new = edit::with_member(&new, "requestId", &id.to_json());
    }
    if new == params {
        return message;
    }
    message.with_params(&new)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use riglm_ports::contract::downstream::RecordedScene;

    use super::*;

    riglm_ports::client_link_contract!(
        contract,
        ready(Box::new(RecordedScene::new(|client| Arc::new(
            UnescapingLink::new(client)
        ))))
    );

    fn message(text: &str) -> Message {
        Message::from_text(text.into()).unwrap()
    }

    fn text(message: &Message) -> String {
        String::from_utf8(message.raw().to_vec()).unwrap()
    }

    #[test]
    fn client_ids_in_the_own_namespace_are_escaped() {
        for (outside, inside) in [
            (r#"{"id":1,"method":"m"}"#, r#"{"id":1,"method":"m"}"#),
            (
                r#"{"id":"riglm:u:1","method":"m"}"#,
                r#"{"id":"riglm:c:riglm:u:1","method":"m"}"#,
            ),
            (
                r#"{"method":"notifications/cancelled","params":{"requestId":"riglm:u:1"}}"#,
                r#"{"method":"notifications/cancelled","params":{"requestId":"riglm:c:riglm:u:1"}}"#,
            ),
        ] {
            assert_eq!(text(&escape(message(outside)).unwrap()), inside);
        }
        let batch = r#"[{"id":"riglm:u:1","method":"m"}]"#;
        assert!(escape(message(batch)).is_err());
    }

    #[test]
    fn the_client_gets_its_own_ids_back() {
        for (inside, outside) in [
            (
                r#"{"id":"riglm:c:riglm:u:1","result":{"a":1.0}}"#,
                r#"{"id":"riglm:u:1","result":{"a":1.0}}"#,
            ),
            // Requests of the proxy itself stay unchanged.
            (
                r#"{"id":"riglm:u:1","method":"m"}"#,
                r#"{"id":"riglm:u:1","method":"m"}"#,
            ),
            (
                r#"{"method":"n","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"riglm:c:riglm:u:1"}}}"#,
                r#"{"method":"n","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"riglm:u:1"}}}"#,
            ),
            (
                r#"{"method":"n","params":{"text":"riglm:c:riglm:"}}"#,
                r#"{"method":"n","params":{"text":"riglm:c:riglm:"}}"#,
            ),
        ] {
            assert_eq!(text(&unescape(message(inside))), outside);
        }
    }
}
