//! The tools of the legacy server: unusual results, messages to the client, and misbehaviour on
//! demand.

use std::sync::Arc;
use std::time::Duration;

use super::catalog;
use super::outlet::{Route, SessionOutput};
use super::session::{ReceivedRequest, Session, error, result_of};
use super::tasks::TASK_ONLY;
use crate::envelope::{integer_at, json_string, raw_at, string_at};

/// The deadline for a tool that waits for another request.
const PATIENCE: Duration = Duration::from_secs(15);

/// A result with structured content and the same as text.
const STRUCTURED_RESULT: &str =
    r#"{"content":[{"type":"text","text":"{\"n\":1.0}"}],"structuredContent":{"n":1.0}}"#;

/// Answers a call. Returns `None` if no answer is to be sent.
pub(super) async fn call(session: &Arc<Session>, request: &ReceivedRequest) -> Option<String> {
    let id = request.id.as_str();
    let name = string_at(&request.params, &["name"]).unwrap_or_default();
    let arguments = raw_at(&request.params, &["arguments"]).unwrap_or_else(|| "{}".into());
    let number = |key: &str, default: u64| {
        integer_at(&arguments, &[key])
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(default)
    };
    let here = Route::Request(id.to_owned());
    let result = match name.as_str() {
        "echo" => {
            let text = raw_at(&arguments, &["text"]).unwrap_or_else(|| "null".into());
            format!(
                r#"{{"content":[{{"type":"text","text":{text}}}],"x-given":{}}}"#,
                request.params.len()
            )
        }
        "structured" => STRUCTURED_RESULT.into(),
        "odd" => catalog::ODD_RESULT.into(),
        "structured_only" => catalog::STRUCTURED_ONLY.into(),
        "empty" => r#"{"content":[]}"#.into(),
        // Every name with this prefix is a tool, so that a test can tell its calls apart.
        marked if marked.starts_with("mark-") => r#"{"content":[]}"#.into(),
        "unknown_content" => {
            r#"{"content":[{"type":"smell","data":"AAAA","n":1e3}],"isError":null}"#.into()
        }
        "is_error" => {
            r#"{"isError":true,"content":[{"type":"text","text":"failed \u0021"}],"x":1.0}"#.into()
        }
        "fail" => {
            let code = integer_at(&arguments, &["code"]).unwrap_or(-31_337);
            let data = raw_at(&arguments, &["data"]).unwrap_or_else(|| "null".into());
            return Some(error(id, code, "odd: \u{00bb}failed\u{00ab}", &data));
        }
        "large" => {
            let text = "x".repeat(usize::try_from(number("bytes", 1 << 20)).unwrap_or_default());
            // The id is the last member, as in the answers of most servers.
            return Some(format!(
                r#"{{"jsonrpc":"2.0","result":{{"content":[{{"type":"text","text":"{text}"}}]}},"id":{id}}}"#
            ));
        }
        "pid" => format!(
            r#"{{"content":[],"structuredContent":{{"pid":{}}}}}"#,
            std::process::id()
        ),
        "seen" => seen_result(session),
        // Not in the tool list: only for tests of the raw request.
        "given" => given_result(session, &request.params),
        "sleep" => {
            tokio::time::sleep(Duration::from_millis(number("ms", 0))).await;
            r#"{"content":[]}"#.into()
        }
        "sample" | "elicit" | "roots" | "ping_client" | "custom_request" | "nested_request" => {
            text_result(&ask_client(session, &here, &name).await)
        }
        "two_rounds" => {
            let first = ask_client(session, &here, "elicit").await;
            let second = ask_client(session, &here, "sample").await;
            text_result(&format!("[{first},{second}]"))
        }
        "both" => {
            let (first, second) = tokio::join!(
                ask_client(session, &here, "elicit"),
                ask_client(session, &here, "sample")
            );
            text_result(&format!("[{first},{second}]"))
        }
        "progress"
        | "order"
        | "chatter"
        | "notify"
        | "nested_notification"
        | "change_list"
        | "log"
        | "update_resource" => {
            let pace = (number("steps", 3), Duration::from_millis(number("ms", 0)));
            notify_client(session, &here, &name, request, pace).await;
            r#"{"content":[{"type":"text","text":"told"}]}"#.into()
        }
        "wait_cancel" => {
            session
                .notify(
                    &here,
                    "notifications/message",
                    r#"{"level":"info","data":"waiting"}"#,
                )
                .await;
            session.cancel_of(id).notified().await;
            let params = format!(r#"{{"requestId":{id}}}"#);
            session
                .notify(&Route::Standalone, "notifications/odd/cancelled", &params)
                .await;
            return None;
        }
        "slow" | "await_cancelled" | "state" | TASK_ONLY | "cancelled_tasks" => {
            return answer_observer(session, request, &name).await;
        }
        _ => return misbehave(session, &name, id, &arguments).await,
    };
    Some(result_of(id, &result))
}

/// Answers the tools that show the state of other requests, and the one that runs as a task.
async fn answer_observer(
    session: &Arc<Session>,
    request: &ReceivedRequest,
    name: &str,
) -> Option<String> {
    let id = request.id.as_str();
    let result = match name {
        "slow" => {
            let pace = (1, Duration::ZERO);
            let here = Route::Request(id.to_owned());
            notify_client(session, &here, "progress", request, pace).await;
            session.cancel_of(id).notified().await;
            session.cancelled.send_modify(|count| *count += 1);
            return None;
        }
        "await_cancelled" => {
            let wanted = integer_at(&request.params, &["arguments", "count"]).unwrap_or(1);
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            let mut cancelled = session.cancelled.subscribe();
            let seen = cancelled.wait_for(|count| *count >= wanted);
            let seen = tokio::time::timeout(PATIENCE, seen).await.is_ok();
            format!(r#"{{"content":[],"structuredContent":{{"seen":{seen}}}}}"#)
        }
        TASK_ONLY => return Some(session.tasks.start(request)),
        "cancelled_tasks" => {
            let n = session.tasks.n_cancelled();
            format!(r#"{{"content":[],"structuredContent":{{"n":{n}}}}}"#)
        }
        _ => {
            let (subscribed, level) =
                session.with_record(|seen| (seen.subscribed.clone(), seen.level.clone()));
            let uris: Vec<String> = subscribed.iter().map(|uri| json_string(uri)).collect();
            format!(
                r#"{{"content":[],"structuredContent":{{"subscribed":[{}],"level":{}}}}}"#,
                uris.join(","),
                json_string(&level)
            )
        }
    };
    Some(result_of(id, &result))
}

/// Returns the params of the call and the headers of its HTTP request.
fn given_result(session: &Session, params: &str) -> String {
    let headers = session.with_record(|seen| seen.headers.clone());
    let headers = if headers.is_empty() { "null" } else { &headers };
    format!(r#"{{"content":[],"structuredContent":{{"params":{params},"headers":{headers}}}}}"#)
}

fn seen_result(session: &Session) -> String {
    let seen = session.with_record(|seen| seen.clone());
    let or_null = |text: &str| {
        if text.is_empty() {
            "null".into()
        } else {
            text.to_owned()
        }
    };
    let notifications: Vec<String> = seen
        .notifications
        .iter()
        .map(|text| json_string(text))
        .collect();
    format!(
        r#"{{"content":[],"structuredContent":{{"initialize":{},"headers":{},"notifications":[{}],"calls":{}}}}}"#,
        or_null(&seen.initialize),
        or_null(&seen.headers),
        notifications.join(","),
        seen.n_calls
    )
}

/// Returns an array that is nested `n_levels` deep.
pub(super) fn nested_arrays(n_levels: u64) -> String {
    let n_levels = usize::try_from(n_levels).unwrap_or_default();
    ["[".repeat(n_levels), "]".repeat(n_levels)].concat()
}

/// Returns a result whose message is nested `n_levels` deep, at least four.
fn nested_result(n_levels: u64) -> String {
    let arrays = nested_arrays(n_levels.saturating_sub(3));
    format!(r#"{{"content":[],"structuredContent":{{"x":{arrays}}}}}"#)
}

/// Sends a request to the client and returns its complete response.
async fn ask_client(session: &Session, here: &Route, tool: &str) -> String {
    let (method, params) = match tool {
        "sample" => (
            "sampling/createMessage",
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"q \u00bf"}}],"maxTokens":1e2,"temperature":0.70,"x-unknown":{"n":null},"modelPreferences":{"costPriority":1.0},"_meta":{"a":1.0}}"#,
        ),
        "elicit" => (
            "elicitation/create",
            r#"{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","x":null}}},"mode":"form","x":1.0}"#,
        ),
        "roots" => ("roots/list", r#"{"_meta":{"x":1.0}}"#),
        "ping_client" => ("ping", r#"{"x":null}"#),
        "nested_request" => {
            let params = format!(r#"{{"x":{}}}"#, nested_arrays(100_000));
            let answer = session.ask(here, "odd/ask", &params).await;
            return answer.unwrap_or_default();
        }
        _ => ("odd/ask", r#"[1.0,{"b":1,"a":2}]"#),
    };
    let answer = session.ask(here, method, params).await;
    answer.unwrap_or_default()
}

/// Returns a result with the response of the client as text, or `null` for none.
fn text_result(answer: &str) -> String {
    let text = if answer.is_empty() {
        "null".into()
    } else {
        json_string(answer)
    };
    format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#)
}

/// Sends notifications: progress in the given number of steps with a pause after each, or one
/// notification of the tool's kind.
async fn notify_client(
    session: &Session,
    here: &Route,
    tool: &str,
    request: &ReceivedRequest,
    (steps, pause): (u64, Duration),
) {
    let token = raw_at(&request.params, &["_meta", "progressToken"]);
    match tool {
        "progress" | "order" => {
            let Some(token) = token else { return };
            for step in 1..=steps {
                let params = format!(
                    r#"{{"progress":{step}.0,"progressToken":{token},"total":null,"message":"step \u0023{step}","x":{{}}}}"#
                );
                session
                    .notify(here, "notifications/progress", &params)
                    .await;
                if tool == "order" {
                    let params =
                        format!(r#"{{"level":"debug","logger":null,"data":{{"step":{step}.00}}}}"#);
                    session.notify(here, "notifications/message", &params).await;
                }
                tokio::time::sleep(pause).await;
            }
        }
        "chatter" => {
            for step in 1..=steps {
                let params = format!(r#"{{"level":"warning","data":"line {step}"}}"#);
                session.notify(here, "notifications/message", &params).await;
                tokio::time::sleep(pause).await;
            }
        }
        "nested_notification" => {
            let params = format!(r#"{{"x":{}}}"#, nested_arrays(100_000));
            for _ in 0..steps {
                session
                    .notify(here, "notifications/odd/nested", &params)
                    .await;
            }
        }
        "notify" => {
            session
                .notify(
                    here,
                    "notifications/odd/custom",
                    r#"{"z":1,"a":[1e3,null]}"#,
                )
                .await;
        }
        "change_list" => {
            session
                .notify(
                    &Route::Standalone,
                    "notifications/tools/list_changed",
                    r#"{"_meta":{"x":1.0}}"#,
                )
                .await;
        }
        "update_resource" => {
            let params = r#"{"uri":"odd://r/1","title":null,"x":1.0}"#;
            session
                .notify(
                    &Route::Standalone,
                    "notifications/resources/updated",
                    params,
                )
                .await;
        }
        _ => {
            let params = r#"{"level":"warning","data":{"k":[1.0,null]},"x":0.70,"logger":"odd"}"#;
            session.notify(here, "notifications/message", params).await;
        }
    }
}

async fn misbehave(
    session: &Arc<Session>,
    name: &str,
    id: &str,
    arguments: &str,
) -> Option<String> {
    let here = Route::Request(id.to_owned());
    let answer = result_of(id, r#"{"content":[{"type":"text","text":"after all"}]}"#);
    match name {
        "exit" | "exit_silently" => {
            if name == "exit" {
                eprintln!("odd: leaving");
            }
            std::process::exit(3)
        }
        "hang" => std::future::pending().await,
        "nested" => {
            let n_levels = integer_at(arguments, &["levels"]).unwrap_or(3);
            let n_levels = u64::try_from(n_levels).unwrap_or_default();
            Some(result_of(id, &nested_result(n_levels)))
        }
        "garbage" => {
            session
                .outlet
                .send(&here, r#"{"jsonrpc":"2.0","id":1,"result":{"trunca"#)
                .await;
            Some(answer)
        }
        "non_utf8" => {
            session
                .outlet
                .send_bytes(&here, b"\xff\xfe{\"jsonrpc\":\"2.0\"}\xc3")
                .await;
            Some(answer)
        }
        "answer_twice" => {
            session.outlet.send(&here, &answer).await;
            Some(answer)
        }
        "unknown_id" => {
            let stray = result_of(r#""nobody asked""#, "{}");
            session.outlet.send(&here, &stray).await;
            Some(answer)
        }
        "drip" => {
            let pause = integer_at(arguments, &["ms"]).and_then(|ms| u64::try_from(ms).ok());
            let pause = Duration::from_millis(pause.unwrap_or(1));
            session.outlet.drip(&here, &answer, pause).await;
            None
        }
        "cut_stream" => {
            session
                .notify(&here, "notifications/odd/before", "{}")
                .await;
            if let SessionOutput::Streams(streams) = &session.outlet {
                streams.cut(id);
            }
            session.notify(&here, "notifications/odd/after", "{}").await;
            Some(answer)
        }
        _ => Some(error(id, -32602, "odd: no such tool", &json_string(name))),
    }
}
