//! The methods of the protocol by which clients ask.

/// The methods of requests of clients, in all revisions, in alphabetical order.
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

/// Returns a method of requests where a revision of the protocol has it. Any other text is a client's own.
#[must_use]
pub fn known(method: &str) -> Option<&'static str> {
    let at = REQUESTS.binary_search(&method).ok()?;
    Some(REQUESTS[at])
}

/// Returns the name under which requests with a method are counted: the method itself where a
/// revision of the protocol has it, else `other`, so that clients cannot make names up.
#[must_use]
pub fn counted(method: &str) -> &'static str {
    known(method).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_methods_are_counted_by_name_and_all_others_together() {
        assert!(REQUESTS.is_sorted());
        for method in REQUESTS {
            assert_eq!(counted(method), method);
        }
        for method in [
            "",
            "tools/call ",
            "TOOLS/CALL",
            "notifications/initialized",
            "x",
        ] {
            assert_eq!(counted(method), "other");
        }
    }
}
