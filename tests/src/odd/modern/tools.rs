//! The tools of the modern server.

use std::time::Duration;

use super::{Exchange, World, asking, catalog, complete};
use crate::envelope::{integer_at, quoted, raw_at, string_at};
use crate::odd::session::error;
use crate::odd::tools::nested;

/// How long a tool waits for something to happen elsewhere.
const PATIENCE: Duration = Duration::from_secs(15);

/// The levels of the log, least severe first.
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

/// Answers a call; `None` when no answer is to be sent.
pub(super) async fn call(world: &World, exchange: &Exchange) -> Option<String> {
    let id = exchange.id.as_str();
    let name = string_at(&exchange.params, &["name"]).unwrap_or_default();
    let arguments = exchange.param(&["arguments"]);
    let arguments = arguments.unwrap_or_else(|| "{}".into());
    let number = |key: &str, default: u64| {
        integer_at(&arguments, &[key])
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(default)
    };
    if asking::is_question(&name) {
        return Some(match asking::ask(exchange, &name) {
            Ok(responses) => complete(id, &said(&responses)),
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
        "mirrored" => said(&arguments),
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
            let arrays = nested(number("levels", 3).saturating_sub(3));
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
            said("\"told\"")
        }
        "log" => {
            log(exchange).await;
            said("\"told\"")
        }
        "slow" => {
            progress(exchange, 1, Duration::ZERO).await;
            exchange.cancelled().await;
            world.cancelled.send_modify(|count| *count += 1);
            return None;
        }
        "await_cancelled" | "await_listeners" => {
            let wanted = usize::try_from(number("count", 1)).unwrap_or(usize::MAX);
            let seen = seen(world, &name, wanted).await;
            format!(r#""content":[],"structuredContent":{{"seen":{seen}}}"#)
        }
        "task" => return Some(world.tasks.start(exchange)),
        "change_list" => {
            let what = string_at(&arguments, &["what"]);
            world
                .listeners
                .changed(what.as_deref().unwrap_or("tools"))
                .await;
            said("\"told\"")
        }
        "update_resource" => {
            let uri = string_at(&arguments, &["uri"]);
            world
                .listeners
                .updated(uri.as_deref().unwrap_or("odd://r/1"))
                .await;
            said("\"told\"")
        }
        "end_subscriptions" => {
            world.listeners.end();
            said("\"ended\"")
        }
        _ => match catalog::result(&name) {
            Some(members) => members.to_owned(),
            None => return misbehave(exchange, &name).await,
        },
    };
    Some(complete(id, &members))
}

/// Waits until so many calls were cancelled or so many subscriptions are open, and returns whether
/// that happened.
async fn seen(world: &World, what: &str, wanted: usize) -> bool {
    if what == "await_listeners" {
        return world.listeners.settled(wanted, PATIENCE).await;
    }
    let mut cancelled = world.cancelled.subscribe();
    let enough = cancelled.wait_for(|count| *count >= wanted);
    tokio::time::timeout(PATIENCE, enough).await.is_ok()
}

/// Returns the members of a result whose text is the JSON text that was given.
fn said(json: &str) -> String {
    format!(
        r#""content":[{{"type":"text","text":{}}}],"x-after":[1.0,null]"#,
        quoted(json)
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
        exchange.tell("notifications/progress", &params).await;
        tokio::time::sleep(pause).await;
    }
}

/// Logs a warning and a message of the lowest level, as far as the request asks for them.
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
            exchange.tell("notifications/message", &params).await;
        }
    }
}

async fn misbehave(exchange: &Exchange, name: &str) -> Option<String> {
    let id = exchange.id.as_str();
    let answer = complete(id, &said("\"after all\""));
    match name {
        "exit" => {
            eprintln!("odd: leaving");
            std::process::exit(3)
        }
        "hang" => {
            exchange.cancelled().await;
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
        // Over HTTP the stream ends without an answer.
        "cut_stream" if exchange.is_http() => None,
        _ => Some(error(id, -32602, "odd: no such tool", &quoted(name))),
    }
}
