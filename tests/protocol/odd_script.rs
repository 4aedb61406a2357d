//! Scripts for the unusual server that cover every message that it knows.

use riglm_tests::messages::{
    call, call_with_progress, cancelled_notification, initialize, notification, request,
    request_with,
};
use riglm_tests::normalise::Masks;
use riglm_tests::script::{Script, Step};

/// Returns the masks. HTTP headers differ between a client and the proxy.
fn masks() -> Masks {
    Masks::default().and(r#""headers":(null|\{[^}]*\})"#, r#""headers":"<headers>""#)
}

/// Returns a script of revision 2025-11-25.
pub(crate) fn everything_odd() -> Script {
    let mut steps = vec![Step::initialize(&initialize("0", "2025-11-25"))];
    steps.extend(lists());
    steps.extend(calls());
    steps.extend(asked_by_the_server());
    steps.extend(told_by_the_server());
    steps.extend(other_methods());
    steps.push(Step::request(
        "what the server saw",
        &call("\"seen\"", "seen", "{}"),
    ));
    Script::new(masks(), steps)
}

/// Returns a script of revision 2025-03-26 with batches.
pub(crate) fn batches() -> Script {
    let mixed = format!(
        "[{}, {},{} ]",
        request("\"b1\"", "ping"),
        notification("notifications/odd/told", r#"{"n":1.0}"#),
        call("2", "odd", "{}")
    );
    let notifications = format!(
        "[{},{}]",
        notification("notifications/odd/one", "{}"),
        notification("notifications/odd/two", "[1.0]")
    );
    Script::new(
        masks(),
        vec![
            Step::initialize(&initialize("\"i\"", "2025-03-26")),
            Step::new("batch of two requests and a notification")
                .send(&mixed)
                .await_answers(&mixed),
            Step::new("batch of notifications").send(&notifications),
            Step::request("what the server saw", &call("9", "seen", "{}")),
        ],
    )
}

fn lists() -> Vec<Step> {
    let page = |id: &str, cursor: &str| {
        request_with(
            id,
            "tools/list",
            &format!(r#"{{"cursor":{cursor},"x":null}}"#),
        )
    };
    vec![
        Step::request("first page", &request("1", "tools/list")),
        Step::request(
            "second page",
            &page("\"1\"", r#""b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70""#),
        ),
        Step::request("unknown cursor", &page("2", r#""\u0000nowhere""#)),
        Step::request("resources", &request("3", "resources/list")),
        Step::request("templates", &request("4", "resources/templates/list")),
        Step::request("prompts", &request("5", "prompts/list")),
    ]
}

fn calls() -> Vec<Step> {
    let mebibyte = "\\u2603 snow ".repeat((1 << 20) / 12);
    let mut steps: Vec<Step> = [
        "odd",
        "structured",
        "structured_only",
        "empty",
        "unknown_content",
        "is_error",
        "no_such_tool",
        "drip",
    ]
    .iter()
    .enumerate()
    .map(|(n, tool)| Step::request(tool, &call(&format!("1{n:02}"), tool, r#"{"x":1.0}"#)))
    .collect();
    steps.extend([
        Step::request("failing with null", &call("\"f\u{e9}\"", "fail", "{}")),
        Step::request(
            "failing with a code of the reserved range",
            &call("-7", "fail", r#"{"code":-32042,"data":{"elicitations":[],"n":1.0}}"#),
        ),
        Step::request(
            "failing with a positive code",
            &call("18446744073709551616", "fail", r#"{"code":7,"data":"text"}"#),
        ),
        Step::request(
            "1 MiB both ways",
            &call("\"big\"", "echo", &format!(r#"{{"text":"{mebibyte}"}}"#)),
        ),
        Step::request(
            "unknown params and a task",
            &request_with(
                "200",
                "tools/call",
                r#"{"task":{"ttl":6e4,"x":null},"x-unknown":[1.0,1e3,0.70],"name":"echo","_meta":{"x.example/k":null,"progressToken":18446744073709551616},"arguments":{"text":"\u00e9\/"}}"#,
            ),
        ),
        Step::request(
            "progress with a number for a token",
            &call_with_progress("201", "progress", r#"{"steps":5}"#, "9007199254740993"),
        )
        .await_notifications("notifications/progress", 5),
        Step::request(
            "progress with a text for a token",
            &call_with_progress("202", "progress", r#"{"steps":2}"#, r#""t\u00f6ken 1""#),
        )
        .await_notifications("notifications/progress", 2),
        Step::new("cancelled call")
            .send(&call("203", "wait_cancel", "{}"))
            .await_notifications("notifications/message", 1)
            .send(&cancelled_notification("203"))
            .await_notifications("notifications/odd/cancelled", 1),
    ]);
    steps
}

fn asked_by_the_server() -> Vec<Step> {
    [
        "sample",
        "elicit",
        "roots",
        "ping_client",
        "custom_request",
        "sample",
    ]
    .iter()
    .enumerate()
    .map(|(n, tool)| Step::request(tool, &call(&format!("3{n:02}"), tool, "{}")))
    .collect()
}

fn told_by_the_server() -> Vec<Step> {
    [
        ("notify", "notifications/odd/custom"),
        ("change_list", "notifications/tools/list_changed"),
        ("log", "notifications/message"),
        ("update_resource", "notifications/resources/updated"),
    ]
    .iter()
    .enumerate()
    .map(|(n, (tool, method))| {
        Step::request(tool, &call(&format!("\"4{n:02}\""), tool, "{}"))
            .await_notifications(method, 1)
    })
    .collect()
}

fn other_methods() -> Vec<Step> {
    let mut steps: Vec<Step> = [
        ("resources/read", r#"{"uri":"odd:\/\/r\/1","x":1.0}"#),
        ("resources/subscribe", r#"{"uri":"odd://r/1"}"#),
        ("resources/unsubscribe", r#"{"uri":"odd://r/1"}"#),
        ("logging/setLevel", r#"{"level":"debug","x":[]}"#),
        ("prompts/get", r#"{"name":"p","arguments":{"a":"\u0062"}}"#),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{}}}"#,
        ),
        ("tasks/get", r#"{"taskId":"t-1"}"#),
        ("tasks/list", r#"{"cursor":null}"#),
        ("odd/echo", r#"[1.0,{"b":1e3,"a":[null,"\ud83d\ude00"]}]"#),
        ("odd/null", "{}"),
        ("odd/array", "{}"),
        ("odd/unknown", r#"{"n":1.0}"#),
    ]
    .iter()
    .enumerate()
    .map(|(n, (method, params))| {
        Step::request(method, &request_with(&format!("5{n:02}"), method, params))
    })
    .collect();
    steps.push(
        Step::new("notifications of the client")
            .send(&notification(
                "notifications/roots/list_changed",
                r#"{"x":1.0}"#,
            ))
            .send(&notification(
                "notifications/odd/told",
                r#"{"b":[1e3],"a":null}"#,
            ))
            .send(&notification(
                "notifications/progress",
                r#"{"progressToken":"p","progress":0.70}"#,
            )),
    );
    steps
}
