//! The tools of the modern server.

use std::time::Duration;

use super::{Exchange, ServerState, catalog, complete, multi_round};
use crate::envelope::{integer_at, json_string, raw_at, string_at};
use crate::odd::session::error;
use crate::odd::tools::nested_arrays;

/// The deadline for a tool that waits for another request.
const PATIENCE: Duration = Duration::from_secs(15);

/// The log levels, least severe first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// Answers a call. Returns `None` if no answer is to be sent.
pub(super) async fn call(world: &ServerState, exchange: &Exchange) -> Option<String> {
    let id = exchange.id.as_str();
    let name = string_at(&exchange.params, &["name"]).unwrap_or_default();
    let arguments = exchange.param(&["arguments"]);
    let arguments = arguments.unwrap_or_else(|| "{}".into());
    let number = |key: &str, default: u64| {
        integer_at(&arguments, &[key])
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(default)
    };
    if multi_round::is_question(&name) {
        return Some(match multi_round::ask(exchange, &name) {
            Ok(responses) => complete(id, &text_members(&responses)),
            Err(answer) => answer,
        });
    }
    let members = match name.as_str() {
        "echo" => {
            let text = raw_at(&arguments, &["text"]).unwrap_or_else(|| "null".into());
            format!(
                r#""content":[{{"type":"text","text":{text}}}],"x-given":{}"#,
                exchange.params.len()
            )
        }
        "mirrored" => text_members(&arguments),
        "fail" => {
            let code = integer_at(&arguments, &["code"]).unwrap_or(-31_337);
            let data = raw_at(&arguments, &["data"]).unwrap_or_else(|| "null".into());
            return Some(error(id, code, "odd: \u{00bb}failed\u{00ab}", &data));
        }
        "large" => {
            let text = "x".repeat(usize::try_from(number("bytes", 1 << 20)).unwrap_or_default());
            format!(r#""content":[{{"type":"text","text":"{text}"}}]"#)
        }
        "nested" => {
            let arrays = nested_arrays(number("levels", 3).saturating_sub(3));
            format!(r#""content":[],"structuredContent":{{"x":{arrays}}}"#)
        }
        "pid" => format!(
            r#""content":[],"structuredContent":{{"pid":{}}}"#,
            std::process::id()
        ),
        "seen" => format!(
            r#""content":[],"structuredContent":{{"params":{},"headers":{},"listeners":{}}}"#,
            exchange.params,
            exchange.headers,
            world.listeners.n_open()
        ),
        "sleep" => {
            tokio::time::sleep(Duration::from_millis(number("ms", 0))).await;
            r#""content":[]"#.into()
        }
        "progress" => {
            let pause = Duration::from_millis(number("ms", 0));
            progress(exchange, number("steps", 3), pause).await;
            text_members("\"told\"")
        }
        "log" => {
            log(exchange).await;
            text_members("\"told\"")
        }
        "slow" => {
            progress(exchange, 1, Duration::ZERO).await;
            exchange.wait_for_cancellation().await;
            world.cancelled.send_modify(|count| *count += 1);
            return None;
        }
        "await_cancelled" | "await_listeners" => {
            let wanted = usize::try_from(number("count", 1)).unwrap_or(usize::MAX);
            let seen = wait_for_count(world, &name, wanted).await;
            format!(r#""content":[],"structuredContent":{{"seen":{seen}}}"#)
        }
        "task" | "task_only" | "cancelled_tasks" => return Some(world.tasks.call(exchange, &name)),
        "change_list" => {
            let what = string_at(&arguments, &["what"]);
            world
                .listeners
                .notify_list_changed(what.as_deref().unwrap_or("tools"))
                .await;
            text_members("\"told\"")
        }
        "update_resource" => {
            let uri = string_at(&arguments, &["uri"]);
            world
                .listeners
                .notify_resource_updated(uri.as_deref().unwrap_or("odd://r/1"))
                .await;
            text_members("\"told\"")
        }
        "end_subscriptions" => {
            world.listeners.end();
            text_members("\"ended\"")
        }
        _ => match catalog::result(&name) {
            Some(members) => members.to_owned(),
            None => return misbehave(exchange, &name).await,
        },
    };
    Some(complete(id, &members))
}

/// Waits for the given number of cancelled calls or open subscriptions. Returns whether it was
/// reached within the deadline.
async fn wait_for_count(world: &ServerState, what: &str, wanted: usize) -> bool {
    if what == "await_listeners" {
        return world.listeners.wait_for_count(wanted, PATIENCE).await;
    }
    let mut cancelled = world.cancelled.subscribe();
    let enough = cancelled.wait_for(|count| *count >= wanted);
    tokio::time::timeout(PATIENCE, enough).await.is_ok()
}

/// Returns the members of a result with a JSON text as its text content.
fn text_members(json: &str) -> String {
    format!(
        r#""content":[{{"type":"text","text":{}}}],"x-after":[1.0,null]"#,
        json_string(json)
    )
}

async fn progress(exchange: &Exchange, steps: u64, pause: Duration) {
    let Some(token) = exchange.param(&["_meta", "progressToken"]) else {
        return;
    };
    for step in 1..=steps {
        let params = format!(
            r#"{{"progress":{step}.0,"progressToken":{token},"total":1e3,"message":"step \u0023{step}","x":{{}}}}"#
        );
        exchange.notify("notifications/progress", &params).await;
        tokio::time::sleep(pause).await;
    }
}

/// Logs messages of two levels, filtered by the log level of the request.
async fn log(exchange: &Exchange) {
    let Some(wanted) = string_at(
        &exchange.params,
        &["_meta", "io.modelcontextprotocol/logLevel"],
    ) else {
        return;
    };
    let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
    for level in ["debug", "warning"] {
        if rank(level) >= rank(&wanted) {
            let params = format!(
                r#"{{"level":"{level}","data":{{"k":[1.0,null]}},"x":0.70,"logger":"odd"}}"#
            );
            exchange.notify("notifications/message", &params).await;
        }
    }
}

async fn misbehave(exchange: &Exchange, name: &str) -> Option<String> {
    let id = exchange.id.as_str();
    let answer = complete(id, &text_members("\"after all\""));
    match name {
        "exit" => {
            eprintln!("odd: leaving");
            std::process::exit(3)
        }
        "hang" => {
            exchange.wait_for_cancellation().await;
            None
        }
        "garbage" => {
            exchange
                .send(r#"{"jsonrpc":"2.0","id":1,"result":{"trunca"#)
                .await;
            Some(answer)
        }
        "non_utf8" => {
            exchange
                .send_bytes(b"\xff\xfe{\"jsonrpc\":\"2.0\"}\xc3")
                .await;
            Some(answer)
        }
        "answer_twice" => {
            exchange.send(&answer).await;
            Some(answer)
        }
        "unknown_id" => {
            exchange
                .send(&complete("\"nobody asked\"", r#""content":[]"#))
                .await;
            Some(answer)
        }
        // Over HTTP the stream ends without a response.
        "cut_stream" if exchange.is_http() => None,
        _ => Some(error(id, -32602, "odd: no such tool", &json_string(name))),
    }
}
