//! A script for the npm package `server-everything` that uses all its features.

use riglm_tests::envelope::json_string;
use riglm_tests::fixture::Transport;
use riglm_tests::messages::{
    call, call_with_progress, cancelled_notification, initialize, notification, request,
    request_with,
};
use riglm_tests::normalise::Masks;
use riglm_tests::script::{Script, Step};

/// The resource of the subscription. Its text and its blob contain the time of day.
const RESOURCE: &str = "demo://resource/dynamic/text/1";

/// Returns the script for the server over this transport.
pub(crate) fn all_features(upstream: Transport) -> Script {
    let mut steps = vec![connect(upstream)];
    steps.extend(lists());
    steps.extend(plain_tools());
    steps.extend(long_running());
    steps.extend(asked_by_the_server());
    steps.extend(resources());
    steps.extend(prompts_and_completion());
    steps.extend(logging());
    steps.extend(tasks());
    steps.extend(wrong_requests());
    Script::new(masks(), steps)
}

fn masks() -> Masks {
    Masks::of_a_run()
        // The environment of the server, in random order.
        .and(
            r#""text":"(?:[^"\\]|\\.)*\\"PATH\\": (?:[^"\\]|\\.)*""#,
            r#""text":"<environment>""#,
        )
        .and(r#""blob":"[A-Za-z0-9+/=]+""#, r#""blob":"<time>""#)
        // The level of a simulated log message is random.
        .and(
            r#""level":"[a-z]+","data":"[A-Z][a-z]+[- ]level[- ]message"#,
            r#""level":"<level>","data":"<level> message"#,
        )
}

/// The server announces tools that depend on the client's capabilities at once. Over Streamable
/// HTTP the notifications are lost unless the GET stream is already open.
fn connect(upstream: Transport) -> Step {
    let step = Step::initialize(&initialize("0", "2025-11-25"));
    let step = match upstream {
        Transport::Streamable => step.ignoring("notifications/tools/list_changed"),
        _ => step.await_notifications("notifications/tools/list_changed", 7),
    };
    // The server requests the roots 350 ms after initialisation.
    step.await_notifications("roots/list", 1)
        .await_notifications("notifications/message", 1)
}

fn lists() -> Vec<Step> {
    [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "tasks/list",
        "ping",
    ]
    .iter()
    .enumerate()
    .map(|(n, method)| Step::request(method, &request(&format!("1{n:02}"), method)))
    .collect()
}

fn plain_tools() -> Vec<Step> {
    let mebibyte = "snow \\u2603 ".repeat((1 << 20) / 12);
    let long = format!(r#"{{"message":"{mebibyte}"}}"#);
    let calls: [(&str, &str); 13] = [
        ("echo", r#"{"message":"h\u00e9llo"}"#),
        (
            "get-annotated-message",
            r#"{"messageType":"error","includeImage":true}"#,
        ),
        ("get-annotated-message", r#"{"messageType":"debug"}"#),
        ("get-env", "{}"),
        ("get-resource-links", r#"{"count":3}"#),
        (
            "get-resource-reference",
            r#"{"resourceType":"Text","resourceId":1}"#,
        ),
        (
            "get-resource-reference",
            r#"{"resourceType":"Blob","resourceId":2}"#,
        ),
        ("get-structured-content", r#"{"location":"Chicago"}"#),
        ("get-sum", r#"{"a":1.5e0,"b":2}"#),
        ("get-tiny-image", "{}"),
        ("get-roots-list", "{}"),
        ("echo", &long),
        (
            "gzip-file-as-resource",
            r#"{"name":"x.gz","data":"data:text/plain,hello","outputType":"resource"}"#,
        ),
    ];
    let mut steps: Vec<Step> = calls
        .iter()
        .enumerate()
        .map(|(n, (tool, arguments))| {
            Step::request(tool, &call(&format!("\"t{n}\""), tool, arguments))
        })
        .collect();
    if let Some(last) = steps.pop() {
        steps.push(last.await_notifications("notifications/resources/list_changed", 1));
    }
    steps
}

fn long_running() -> Vec<Step> {
    let tool = "trigger-long-running-operation";
    vec![
        Step::request(
            "progress with a number for a token",
            &call_with_progress("200", tool, r#"{"duration":0.2,"steps":4}"#, "7"),
        )
        .await_notifications("notifications/progress", 4),
        Step::request(
            "progress with a text for a token",
            &call_with_progress("201", tool, r#"{"duration":0.1,"steps":2}"#, "\"tok\""),
        )
        .await_notifications("notifications/progress", 2),
        // The server continues its progress after the cancellation, and never responds.
        Step::new("cancelled call")
            .send(&call_with_progress(
                "202",
                tool,
                r#"{"duration":0.6,"steps":3}"#,
                "\"cancel\"",
            ))
            .await_notifications("notifications/progress", 1)
            .send(&cancelled_notification("202"))
            .await_notifications("notifications/progress", 3),
    ]
}

fn asked_by_the_server() -> Vec<Step> {
    vec![
        Step::request(
            "sampling",
            &call(
                "300",
                "trigger-sampling-request",
                r#"{"prompt":"p","maxTokens":5}"#,
            ),
        ),
        Step::request(
            "elicitation",
            &call("301", "trigger-elicitation-request", "{}"),
        ),
        Step::request(
            "elicitation by URL",
            &call(
                "302",
                "trigger-url-elicitation",
                r#"{"url":"http://127.0.0.1:9/x","elicitationId":"e-1"}"#,
            ),
        ),
        Step::request(
            "elicitation by error",
            &call(
                "303",
                "trigger-url-elicitation",
                r#"{"url":"http://127.0.0.1:9/y","errorPath":true}"#,
            ),
        ),
        Step::request(
            "sampling with a task",
            &call("304", "trigger-sampling-request-async", r#"{"prompt":"p"}"#),
        ),
        Step::request(
            "elicitation with a task",
            &call("305", "trigger-elicitation-request-async", "{}"),
        ),
        Step::new("roots changed")
            .send(&notification("notifications/roots/list_changed", "{}"))
            .await_notifications("roots/list", 1)
            .await_notifications("notifications/message", 1),
    ]
}

fn resources() -> Vec<Step> {
    let uri = format!(r#"{{"uri":{}}}"#, json_string(RESOURCE));
    let read = |id: &str, uri: &str| {
        let params = format!(r#"{{"uri":{}}}"#, json_string(uri));
        request_with(id, "resources/read", &params)
    };
    vec![
        Step::request("read text", &read("400", RESOURCE)),
        Step::request("read blob", &read("401", "demo://resource/dynamic/blob/1")),
        Step::request(
            "read a file",
            &read("402", "demo://resource/static/document/features.md"),
        ),
        Step::request(
            "read what the session made",
            &read("403", "demo://resource/session/x.gz"),
        ),
        Step::request("read nothing", &read("404", "demo://resource/none")),
        Step::request(
            "subscribe",
            &request_with("405", "resources/subscribe", &uri),
        )
        .await_notifications("notifications/message", 1),
        Step::request(
            "updates on",
            &call("406", "toggle-subscriber-updates", "{}"),
        )
        .await_notifications("notifications/resources/updated", 1),
        Step::request(
            "updates off",
            &call("407", "toggle-subscriber-updates", "{}"),
        ),
        Step::request(
            "unsubscribe",
            &request_with("408", "resources/unsubscribe", &uri),
        )
        .await_notifications("notifications/message", 1),
    ]
}

fn prompts_and_completion() -> Vec<Step> {
    [
        ("prompts/get", r#"{"name":"simple-prompt"}"#),
        ("prompts/get", r#"{"name":"args-prompt","arguments":{"city":"Oslo"}}"#),
        (
            "prompts/get",
            r#"{"name":"completable-prompt","arguments":{"department":"Sales","name":"Eve"}}"#,
        ),
        (
            "prompts/get",
            r#"{"name":"resource-prompt","arguments":{"resourceType":"Text","resourceId":"1"}}"#,
        ),
        ("prompts/get", r#"{"name":"args-prompt","arguments":{}}"#),
        ("prompts/get", r#"{"name":"none"}"#),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"S"}}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"name","value":""},"context":{"arguments":{"department":"Sales"}}}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"3"}}"#,
        ),
    ]
    .iter()
    .enumerate()
    .map(|(n, (method, params))| {
        Step::request(method, &request_with(&format!("5{n:02}"), method, params))
    })
    .collect()
}

fn logging() -> Vec<Step> {
    vec![
        Step::request(
            "level",
            &request_with("600", "logging/setLevel", r#"{"level":"debug"}"#),
        ),
        Step::request("log on", &call("601", "toggle-simulated-logging", "{}"))
            .await_notifications("notifications/message", 1),
        Step::request("log off", &call("602", "toggle-simulated-logging", "{}")),
        Step::request(
            "unknown level",
            &request_with("603", "logging/setLevel", r#"{"level":"loud"}"#),
        ),
    ]
}

fn tasks() -> Vec<Step> {
    let research = request_with(
        "700",
        "tools/call",
        r#"{"name":"simulate-research-query","arguments":{"topic":"t"},"task":{"ttl":60000}}"#,
    );
    vec![
        // Each stage of the task takes one second.
        Step::request("task to its end", &research)
            .await_notifications("notifications/tasks/status", 5),
        Step::request("list of tasks", &request("701", "tasks/list")),
        Step::request(
            "unknown task",
            &request_with("702", "tasks/get", r#"{"taskId":"none"}"#),
        ),
        Step::request(
            "result of an unknown task",
            &request_with("703", "tasks/result", r#"{"taskId":"none"}"#),
        ),
        Step::request(
            "task required",
            &call("704", "simulate-research-query", r#"{"topic":"t"}"#),
        ),
    ]
}

fn wrong_requests() -> Vec<Step> {
    vec![
        Step::request("unknown method", &request("800", "no/such/method")),
        Step::request("unknown tool", &call("801", "no-such-tool", "{}")),
        Step::request("wrong arguments", &call("802", "get-sum", r#"{"a":"one"}"#)),
        Step::request("no params", &request("803", "tools/call")),
        Step::request(
            "wrong shape",
            &request_with("804", "tools/call", r#"{"name":7}"#),
        ),
    ]
}
