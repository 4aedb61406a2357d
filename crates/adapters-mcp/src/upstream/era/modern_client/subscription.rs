//! The messages of subscriptions in both eras.

use std::borrow::Cow;
use std::collections::HashSet;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::mcp::method;
use riglm_domain::mcp::scan::unescape;
use serde_json::{Map, Value, json};

use super::state::ListenFilter;

/// The maximum number of resources of one listen request.
const MAX_URIS: usize = 256;
/// The lists, and the filter members for their changes.
const LISTS: [(&str, &str); 3] = [
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
];
/// The filter member for changes of resources.
const URIS: &str = "resourceSubscriptions";

/// Reads the filter of a listen request.
///
/// # Errors
///
/// Returns a description of the error in the parameters.
pub(super) fn requested_filter(params: Option<&str>) -> Result<ListenFilter, &'static str> {
    let filter = params
        .and_then(|params| edit::member(params, "notifications"))
        .filter(|filter| filter.starts_with('{'))
        .ok_or("missing notifications, the filter of the request")?;
    let lists = LISTS.into_iter();
    let lists = lists.filter(|(_, key)| edit::member(filter, key) == Some("true"));
    let uris = match edit::member(filter, URIS) {
        None | Some("null") => None,
        Some(uris) => {
            let uris: Vec<Box<str>> = serde_json::from_str(uris)
                .map_err(|_| "resourceSubscriptions is not a list of URIs")?;
            let mut known = HashSet::new();
            let uris = uris.into_iter().filter(|uri| known.insert(uri.clone()));
            Some(uris.take(MAX_URIS).collect())
        }
    };
    Ok(ListenFilter {
        lists: lists.map(|(list, _)| list).collect(),
        uris,
    })
}

/// Returns the notification that acknowledges a filter.
pub(super) fn acknowledgement(id: &RequestId, honoured: &ListenFilter) -> Message {
    let lists = LISTS.into_iter();
    let lists = lists.filter(|(list, _)| honoured.lists.contains(list));
    let mut filter: Map<String, Value> = lists
        .map(|(_, key)| (key.to_owned(), Value::Bool(true)))
        .collect();
    if let Some(uris) = &honoured.uris {
        filter.insert(URIS.into(), json!(uris));
    }
    let filter = Value::Object(filter);
    let params = format!(r#"{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}},"notifications":{filter}}}"#);
    Message::notification(
        method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
        Some(&params),
    )
}

/// Returns the notification of a change as part of a subscription.
pub(super) fn change(message: &Message, id: &RequestId) -> Message {
    let params = message
        .single()
        .and_then(|envelope| message.params(envelope))
        .filter(|params| params.starts_with('{'));
    let id = id.to_json();
    message.with_params(&edit::with_meta(
        params.unwrap_or("{}"),
        &[(SUBSCRIPTION_ID, &id)],
    ))
}

/// Returns the legacy request that starts or ends a subscription, depending on the method.
pub(super) fn request(number: u64, method: &str, uri: &str) -> Message {
    let id = InternalRequest::BridgedSubscription.id(number);
    let params = format!(r#"{{"uri":{}}}"#, Value::from(uri));
    Message::request(&id, method, Some(&params))
}

/// Returns whether a server accepted a request.
pub(super) fn is_agreed(answer: &Message) -> bool {
    answer
        .single()
        .is_some_and(|envelope| envelope.kind() == MessageKind::Success)
}

/// Returns the resource that a notification concerns.
pub(super) fn uri_of(params: &str) -> Option<Cow<'_, str>> {
    unescape(edit::member(params, "uri")?)
}

/// Returns whether a filter covers a resource, which may be a part of a resource in the filter.
pub(super) fn covers(filter: &ListenFilter, uri: &str) -> bool {
    let mut uris = filter.uris.iter().flatten();
    uris.any(|known| {
        uri.strip_prefix(&**known)
            .is_some_and(|rest| rest.is_empty() || known.ends_with('/') || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_filters_are_read_and_validated() {
        let params = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,
            "resourceSubscriptions":["b:\u002f","a","b:/"]}}"#;
        let filter = requested_filter(Some(params)).unwrap();
        assert_eq!(filter.lists.iter().copied().collect::<Vec<_>>(), ["tools"]);
        assert_eq!(filter.uris, Some(vec!["b:/".into(), "a".into()]));
        assert_eq!(
            requested_filter(Some(r#"{"notifications":{}}"#)),
            Ok(ListenFilter::default())
        );
        assert!(requested_filter(Some("{}")).is_err());
        assert!(
            requested_filter(Some(r#"{"notifications":{"resourceSubscriptions":[1]}}"#)).is_err()
        );
    }

    #[test]
    fn a_subscription_covers_the_parts_of_its_resource() {
        let filter = ListenFilter {
            uris: Some(vec!["file:///a".into(), "x:/".into()]),
            ..ListenFilter::default()
        };
        for (uri, expected) in [
            ("file:///a", true),
            ("file:///a/b", true),
            ("file:///ab", false),
            ("x:/y", true),
            ("y:/", false),
        ] {
            assert_eq!(covers(&filter, uri), expected, "{uri}");
        }
    }
}
