//! The tasks of revision 2025-11-25: calls that are answered with a handle, and their results.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::outlet::Route;
use super::session::{ReceivedRequest, Session, error, result_of};
use crate::envelope::{json_string, raw_at, string_at};

const TIMES: &str =
    r#""createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00.0Z""#;

/// The tools of the tasks, which are in no list.
pub(super) const TASK_ONLY: &str = "task_only";

/// One task.
#[derive(Clone, Debug)]
struct Task {
    id: String,
    /// Whether the user is asked before it ends.
    asks: bool,
    /// `fail`, `is_error`, `never` or empty: the kind of its end.
    outcome: String,
    /// The answer of the client.
    given: Option<String>,
    is_cancelled: bool,
    n_gets: usize,
}

impl Task {
    fn status(&self) -> &'static str {
        match self.outcome.as_str() {
            _ if self.is_cancelled => "cancelled",
            _ if self.n_gets < 2 => "working",
            _ if self.asks && self.given.is_none() => "input_required",
            "never" => "working",
            "fail" | "is_error" => "failed",
            _ => "completed",
        }
    }

    fn members(&self) -> String {
        format!(
            r#""taskId":{},"status":"{}",{TIMES},"ttl":6e4,"pollInterval":5.0,"x":null"#,
            json_string(&self.id),
            self.status()
        )
    }

    fn related(&self) -> String {
        format!(
            r#""_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":{}}}}}"#,
            json_string(&self.id)
        )
    }

    fn end(&self, request: &str) -> String {
        let given = self.given.as_deref().unwrap_or("null");
        if self.outcome == "fail" {
            return error(request, -31_337, "odd: the task failed", given);
        }
        let is_error = self.outcome == "is_error";
        let result = format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"isError":{is_error},{}}}"#,
            json_string(given),
            self.related()
        );
        result_of(request, &result)
    }
}

/// The tasks of one session.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<Vec<Task>>);

impl Tasks {
    /// Answers a call of the tool that runs only as a task.
    pub(super) fn start(&self, request: &ReceivedRequest) -> String {
        if raw_at(&request.params, &["task"]).is_none() {
            return error(&request.id, -32601, "odd: runs only as a task", "null");
        }
        let mut tasks = self.0.lock();
        let argument = |key| raw_at(&request.params, &["arguments", key]);
        let task = Task {
            id: format!("t\u{e4}sk {}", tasks.len() + 1),
            asks: argument("ask").as_deref() == Some("true"),
            outcome: string_at(&request.params, &["arguments", "outcome"]).unwrap_or_default(),
            given: None,
            is_cancelled: false,
            n_gets: 0,
        };
        let result = format!(r#"{{"x":1.0,"task":{{{}}}}}"#, task.members());
        tasks.push(task);
        result_of(&request.id, &result)
    }

    /// Returns the number of cancelled tasks.
    pub(super) fn n_cancelled(&self) -> usize {
        let tasks = self.0.lock();
        tasks.iter().filter(|task| task.is_cancelled).count()
    }

    fn change<T>(&self, id: &str, change: impl FnOnce(&mut Task) -> T) -> Option<T> {
        let mut tasks = self.0.lock();
        tasks.iter_mut().find(|task| task.id == id).map(change)
    }
}

/// Answers a request about a task. Returns `None` for an unknown task.
pub(super) async fn answer(session: &Arc<Session>, request: &ReceivedRequest) -> Option<String> {
    let id = string_at(&request.params, &["taskId"])?;
    match request.method.as_str() {
        "tasks/get" => session.tasks.change(&id, |task| {
            task.n_gets += 1;
            result_of(&request.id, &format!("{{{}}}", task.members()))
        }),
        "tasks/cancel" => session.tasks.change(&id, |task| {
            task.is_cancelled = true;
            result_of(&request.id, &format!("{{{}}}", task.members()))
        }),
        "tasks/result" => result(session, request, &id).await,
        _ => None,
    }
}

/// Waits for the end of a task, and asks the client for its input meanwhile.
async fn result(session: &Arc<Session>, request: &ReceivedRequest, id: &str) -> Option<String> {
    let task = session.tasks.change(id, |task| task.clone())?;
    if task.asks && task.given.is_none() {
        let params = format!(
            r#"{{"message":"who?","requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string","x":null}}}}}},"mode":"form",{}}}"#,
            task.related()
        );
        let here = Route::Request(request.id.clone());
        let given = session.ask(&here, "elicitation/create", &params).await;
        let given = given.unwrap_or_else(|| "null".into());
        session.tasks.change(id, |task| task.given = Some(given));
    }
    loop {
        let task = session.tasks.change(id, |task| task.clone())?;
        if task.is_cancelled {
            return Some(error(&request.id, -32603, "odd: cancelled", "null"));
        }
        if task.outcome != "never" {
            session.tasks.change(id, |task| task.n_gets = 2);
            return Some(task.end(&request.id));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
