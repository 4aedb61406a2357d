//! The request methods of the protocol that clients use.

/// The methods of client requests in all revisions, in alphabetical order, as the binary search
/// needs them.
const REQUESTS: [&str; 20] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// Returns the method as a static text if a revision of the protocol has it as a request. Any other
/// text is a client's own.
#[must_use]
pub fn request_method(method: &str) -> Option<&'static str> {
    let at = REQUESTS.binary_search(&method).ok()?;
    Some(REQUESTS[at])
}

/// Returns the label under which requests with a method are counted: the method itself if a
/// revision of the protocol has it, else `other`. So clients cannot create labels.
#[must_use]
pub fn metric_label(method: &str) -> &'static str {
    request_method(method).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_methods_are_counted_by_name_and_all_others_together() {
        assert!(REQUESTS.is_sorted());
        for method in REQUESTS {
            assert_eq!(metric_label(method), method);
        }
        for method in [
            "",
            "tools/call ",
            "TOOLS/CALL",
            "notifications/initialized",
            "x",
        ] {
            assert_eq!(metric_label(method), "other");
        }
    }
}
