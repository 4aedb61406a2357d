//! Calls that a server runs as tasks: those of revision 2025-11-25, and those of the tasks extension.

use std::time::Duration;

use riglm_tests::envelope::{integer_at, raw_at, string_at};
use riglm_tests::inbox::ReceivedMessage;

use super::Era;
use super::cell::{Cell, call_params, canned_response};

/// The tool that both servers run only as a task.
const TOOL: &str = "task_only";
/// The mark of the canned answer in a result.
const WHO: &str = "Ada";
/// Client capabilities without the tasks extension.
const WITHOUT_TASKS: &str = r#"{"elicitation":{"form":{}}}"#;
/// The maximum number of questions for the state of a task.
const MAX_POLLS: usize = 200;

fn is_translated(cell: &Cell) -> bool {
    cell.client_era != cell.server_era
}

/// Asserts that a task ended without an answer of the client.
fn assert_ended(result: &str) {
    assert!(raw_at(result, &["content"]).is_some(), "{result}");
    assert!(result.contains("null"), "nobody was asked: {result}");
}

/// A client without tasks can call the tool if its era is not the one of the server. In the same era
/// it gets the error of the server.
pub(super) async fn task_only_tool(cell: &Cell) {
    cell.start_with(WITHOUT_TASKS).await;
    let answer = cell.call(TOOL, "{}").await;
    if is_translated(cell) {
        assert_ended(&cell.result(&answer));
        // The second call, too: the bridge has learned that the tool needs a task.
        assert_ended(&cell.result(&cell.call(TOOL, "{}").await));
        return;
    }
    let expected = match cell.server_era {
        Era::Legacy => -32_601,
        Era::Modern => -32_021,
    };
    let code = integer_at(&answer.text, &["error", "code"]);
    assert_eq!(code, Some(expected), "{}", answer.text);
}

/// The questions of a task reach the client, once each.
pub(super) async fn task_that_asks(cell: &Cell) {
    if !is_translated(cell) {
        cell.start().await;
        let end = follow(cell, r#"{"ask":true}"#).await;
        assert!(end.text.contains(WHO), "{}", cell.client.history());
        return;
    }
    cell.start_with(WITHOUT_TASKS).await;
    let (result, asked) = cell.call_and_respond_with(TOOL, r#"{"ask":true}"#).await;
    assert!(result.contains(WHO), "{result}\n{}", cell.client.history());
    assert_eq!(asked, 1, "{}", cell.client.history());
}

/// The JSON-RPC error of a task is the error of the call.
pub(super) async fn task_that_fails(cell: &Cell) {
    let arguments = r#"{"outcome":"fail"}"#;
    let path: &[&str] = if is_translated(cell) {
        &["error", "code"]
    } else if cell.client_era == Era::Modern {
        &["result", "error", "code"]
    } else {
        &["error", "code"]
    };
    let answer = if is_translated(cell) {
        cell.start_with(WITHOUT_TASKS).await;
        cell.call(TOOL, arguments).await
    } else {
        cell.start().await;
        follow(cell, arguments).await
    };
    assert_eq!(
        integer_at(&answer.text, path),
        Some(-31_337),
        "{}",
        answer.text
    );
}

/// A client with tasks gets a handle, and fetches the result later.
pub(super) async fn task_handle(cell: &Cell) {
    cell.start().await;
    if let Some(sentence) = cell.sentence {
        let params = format!(r#"{},"task":{{"ttl":6e4}}"#, call_params(TOOL, "{}"));
        let answer = cell.ask("tools/call", &params).await;
        let result = cell.result(&answer);
        assert_eq!(raw_at(&result, &["task"]), None, "{sentence}: {result}");
        assert_ended(&result);
        return;
    }
    for outcome in ["", "is_error"] {
        let end = follow(cell, &format!(r#"{{"outcome":"{outcome}"}}"#)).await;
        let path: &[&str] = match cell.client_era {
            Era::Legacy => &["result"],
            Era::Modern => &["result", "result"],
        };
        let result = raw_at(&end.text, path);
        let result = result.unwrap_or_else(|| panic!("{}", cell.client.history()));
        assert_ended(&result);
        if cell.server_era == Era::Legacy {
            let is_error = raw_at(&result, &["isError"]);
            assert_eq!(is_error.as_deref() == Some("true"), outcome == "is_error");
        }
    }
    // Questions reach the client through the task.
    let end = follow(cell, r#"{"ask":true}"#).await;
    assert!(end.text.contains(WHO), "{}", cell.client.history());
    // An unknown task is an error.
    let unknown = cell.ask("tasks/get", r#""taskId":"nobody""#).await;
    if cell.server_era == Era::Modern {
        let code = integer_at(&unknown.text, &["error", "code"]);
        assert_eq!(code, Some(-32_602), "{}", unknown.text);
    }
}

/// A client that cancels its call, or its task, cancels the task of the server.
pub(super) async fn cancelled_task(cell: &Cell) {
    let arguments = r#"{"outcome":"never"}"#;
    if is_translated(cell) {
        cell.start_with(WITHOUT_TASKS).await;
        // The server runs before the call, which is cancelled soon.
        cell.call("cancelled_tasks", "{}").await;
        let id = cell.next_id();
        let params = call_params(TOOL, arguments);
        let text = cell.text(&id, "tools/call", &params, "");
        cell.client.send(&text).await;
        // The task is created meanwhile.
        tokio::time::sleep(Duration::from_millis(300)).await;
        cell.client.cancel(&id).await;
    } else {
        cell.start().await;
        let handle = create(cell, arguments).await;
        let cancelled = cell.ask("tasks/cancel", &task_param(&handle)).await;
        assert!(
            raw_at(&cancelled.text, &["result"]).is_some(),
            "{}",
            cancelled.text
        );
    }
    for _ in 0..MAX_POLLS {
        let seen = cell.result(&cell.call("cancelled_tasks", "{}").await);
        if integer_at(&seen, &["structuredContent", "n"]) == Some(1) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing was cancelled: {}", cell.client.history());
}

fn task_param(task: &str) -> String {
    let id = raw_at(task, &["taskId"]).unwrap_or_else(|| panic!("no task: {task}"));
    format!(r#""taskId":{id}"#)
}

/// Calls the tool in the way of the client's era, and returns the task.
async fn create(cell: &Cell, arguments: &str) -> String {
    let params = call_params(TOOL, arguments);
    let answer = match cell.client_era {
        Era::Legacy => {
            let params = format!(r#"{params},"task":{{}}"#);
            cell.ask("tools/call", &params).await
        }
        Era::Modern => cell.ask("tools/call", &params).await,
    };
    let path: &[&str] = match cell.client_era {
        Era::Legacy => &["result", "task"],
        Era::Modern => &["result"],
    };
    let task = raw_at(&answer.text, path);
    let task = task.unwrap_or_else(|| panic!("no task: {}", answer.text));
    if cell.client_era == Era::Modern {
        let kind = string_at(&task, &["resultType"]);
        assert_eq!(kind.as_deref(), Some("task"), "{task}");
        assert!(raw_at(&task, &["ttlMs"]).is_some(), "{task}");
        assert!(raw_at(&task, &["pollIntervalMs"]).is_some(), "{task}");
    }
    let status = string_at(&task, &["status"]);
    assert_eq!(status.as_deref(), Some("working"), "{task}");
    task
}

/// Creates a task and follows it to its end. Returns the last answer: the result of a legacy task, or
/// the state of a modern one.
async fn follow(cell: &Cell, arguments: &str) -> ReceivedMessage {
    let task = task_param(&create(cell, arguments).await);
    for _ in 0..MAX_POLLS {
        let state = cell.ask("tasks/get", &task).await;
        let status = string_at(&state.text, &["result", "status"]).unwrap_or_default();
        match (cell.client_era, status.as_str()) {
            (_, "working") => {}
            (Era::Legacy, _) => return cell.ask("tasks/result", &task).await,
            (Era::Modern, "input_required") => answer_questions(cell, &task, &state.text).await,
            (Era::Modern, _) => {
                cell.result(&state);
                return state;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the task does not end: {}", cell.client.history());
}

async fn answer_questions(cell: &Cell, task: &str, state: &str) {
    let asked = raw_at(state, &["result", "inputRequests"]);
    let asked = asked.unwrap_or_else(|| panic!("no inputRequests: {state}"));
    let asked: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&asked).expect("inputRequests is an object");
    assert!(!asked.is_empty(), "{state}");
    let responses: Vec<String> = asked
        .iter()
        .map(|(key, request)| {
            let request = riglm_tests::envelope::Envelope::one(&request.to_string());
            let request = request.expect("an input request is an object");
            let key = serde_json::Value::from(key.as_str());
            format!("{key}:{}", canned_response(&request))
        })
        .collect();
    let params = format!(r#"{task},"inputResponses":{{{}}}"#, responses.join(","));
    let updated = cell.ask("tasks/update", &params).await;
    cell.result(&updated);
}
