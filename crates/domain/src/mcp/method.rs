//! The methods of the protocol.

/// The request for completions of an argument.
pub const COMPLETION_COMPLETE: &str = "completion/complete";
/// The question of a server to the person at the client.
pub const ELICITATION_CREATE: &str = "elicitation/create";
/// The request that opens a legacy session.
pub const INITIALIZE: &str = "initialize";
/// The request that sets the level of log messages.
pub const LOGGING_SET_LEVEL: &str = "logging/setLevel";
/// The request of either peer whether the other one is alive.
pub const PING: &str = "ping";
/// The request for one prompt.
pub const PROMPTS_GET: &str = "prompts/get";
/// The request for the list of prompts.
pub const PROMPTS_LIST: &str = "prompts/list";
/// The request for the list of resources.
pub const RESOURCES_LIST: &str = "resources/list";
/// The request for the contents of a resource.
pub const RESOURCES_READ: &str = "resources/read";
/// The request for reports of changes of a resource.
pub const RESOURCES_SUBSCRIBE: &str = "resources/subscribe";
/// The request for the list of resource templates.
pub const RESOURCES_TEMPLATES_LIST: &str = "resources/templates/list";
/// The request that ends the reports of changes of a resource.
pub const RESOURCES_UNSUBSCRIBE: &str = "resources/unsubscribe";
/// The question of a server for the roots of the client.
pub const ROOTS_LIST: &str = "roots/list";
/// The question of a server to the language model of the client.
pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
/// The request for the revisions and capabilities of a modern server.
pub const SERVER_DISCOVER: &str = "server/discover";
/// The request for a stream of notifications of a modern server.
pub const SUBSCRIPTIONS_LISTEN: &str = "subscriptions/listen";
/// The request that cancels a task.
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// The request for the state of a task.
pub const TASKS_GET: &str = "tasks/get";
/// The request for the list of tasks.
pub const TASKS_LIST: &str = "tasks/list";
/// The request for the result of a task.
pub const TASKS_RESULT: &str = "tasks/result";
/// The request that gives a task its input.
pub const TASKS_UPDATE: &str = "tasks/update";
/// The request that calls a tool.
pub const TOOLS_CALL: &str = "tools/call";
/// The request for the list of tools.
pub const TOOLS_LIST: &str = "tools/list";
/// The notification that a request is cancelled.
pub const NOTIFICATIONS_CANCELLED: &str = "notifications/cancelled";
/// The notification of a client at the end of the handshake.
pub const NOTIFICATIONS_INITIALIZED: &str = "notifications/initialized";
/// The notification with a log message.
pub const NOTIFICATIONS_MESSAGE: &str = "notifications/message";
/// The notification of the progress of a request.
pub const NOTIFICATIONS_PROGRESS: &str = "notifications/progress";
/// The notification that the list of prompts has changed.
pub const NOTIFICATIONS_PROMPTS_LIST_CHANGED: &str = "notifications/prompts/list_changed";
/// The notification that the list of resources has changed.
pub const NOTIFICATIONS_RESOURCES_LIST_CHANGED: &str = "notifications/resources/list_changed";
/// The notification that a resource has changed.
pub const NOTIFICATIONS_RESOURCES_UPDATED: &str = "notifications/resources/updated";
/// The notification of a client that its roots have changed.
pub const NOTIFICATIONS_ROOTS_LIST_CHANGED: &str = "notifications/roots/list_changed";
/// The first notification on the stream of a listen request.
pub const NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: &str =
    "notifications/subscriptions/acknowledged";
/// The notification that the list of tools has changed.
pub const NOTIFICATIONS_TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";

/// The methods of client requests in all revisions, in alphabetical order, as the binary search
/// needs them.
const REQUESTS: [&str; 20] = [
    COMPLETION_COMPLETE,
    INITIALIZE,
    LOGGING_SET_LEVEL,
    PING,
    PROMPTS_GET,
    PROMPTS_LIST,
    RESOURCES_LIST,
    RESOURCES_READ,
    RESOURCES_SUBSCRIBE,
    RESOURCES_TEMPLATES_LIST,
    RESOURCES_UNSUBSCRIBE,
    SERVER_DISCOVER,
    SUBSCRIPTIONS_LISTEN,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_LIST,
    TASKS_RESULT,
    TASKS_UPDATE,
    TOOLS_CALL,
    TOOLS_LIST,
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
