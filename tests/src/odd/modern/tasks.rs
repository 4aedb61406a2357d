//! The tasks extension: a handle in place of a result, one question to the client, and the final
//! result.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{Exchange, catalog, complete};
use crate::envelope::{json_string, raw_at, string_at};
use crate::odd::session::{error, result_of};

const TIMES: &str =
    r#""createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00.0Z""#;

#[derive(Clone, Debug)]
enum TaskState {
    Asking,
    Done(String),
    Cancelled,
    /// It works until the second question for it, and then goes on with this outcome: `ask`, `fail`,
    /// `never`, or another for a result.
    Working(String, usize),
    Failed,
}

#[derive(Debug, Default)]
pub(super) struct Tasks {
    by_id: Mutex<HashMap<String, TaskState>>,
}

impl Tasks {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<String, TaskState>) -> T) -> T {
        look(&mut self.by_id.lock())
    }

    /// Answers a call of one of the tools about tasks.
    pub(super) fn call(&self, exchange: &Exchange, name: &str) -> String {
        match name {
            "task" => self.start(exchange),
            "task_only" => self.start_only(exchange),
            _ => {
                let n = self.n_cancelled();
                let members = format!(r#""content":[],"structuredContent":{{"n":{n}}}"#);
                complete(&exchange.id, &members)
            }
        }
    }

    /// Starts a task and answers the call with its handle. A client without the extension gets a
    /// normal result.
    fn start(&self, exchange: &Exchange) -> String {
        let capabilities = exchange
            .reserved_meta("clientCapabilities")
            .unwrap_or_default();
        let path = ["extensions", "io.modelcontextprotocol/tasks"];
        if raw_at(&capabilities, &path).is_none() {
            return complete(
                &exchange.id,
                r#""content":[{"type":"text","text":"without a task"}]"#,
            );
        }
        let id = self.with(|tasks| {
            let id = format!("t\u{e4}sk {}", tasks.len() + 1);
            tasks.insert(id.clone(), TaskState::Asking);
            id
        });
        result_of(
            &exchange.id,
            &format!(
                r#"{{"taskId":{},"status":"working",{TIMES},"ttlMs":6e4,"pollIntervalMs":1.0,"resultType":"task","x":null,"_meta":{{{}}}}}"#,
                json_string(&id),
                catalog::IDENTITY
            ),
        )
    }

    /// Starts a task of the tool that runs only as a task.
    fn start_only(&self, exchange: &Exchange) -> String {
        let capabilities = exchange
            .reserved_meta("clientCapabilities")
            .unwrap_or_default();
        let path = ["extensions", "io.modelcontextprotocol/tasks"];
        if raw_at(&capabilities, &path).is_none() {
            return error(
                &exchange.id,
                -32021,
                "odd: runs only as a task",
                r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#,
            );
        }
        let outcome = string_at(&exchange.params, &["arguments", "outcome"]).unwrap_or_default();
        let outcome = match exchange.param(&["arguments", "ask"]).as_deref() {
            Some("true") => "ask".to_owned(),
            _ => outcome,
        };
        let id = self.with(|tasks| {
            let id = format!("t\u{e4}sk {}", tasks.len() + 1);
            tasks.insert(id.clone(), TaskState::Working(outcome, 0));
            id
        });
        result_of(
            &exchange.id,
            &format!(
                r#"{{"taskId":{},"status":"working",{TIMES},"ttlMs":6e4,"pollIntervalMs":1.0,"resultType":"task"}}"#,
                json_string(&id)
            ),
        )
    }

    /// Returns the number of cancelled tasks.
    fn n_cancelled(&self) -> usize {
        self.with(|tasks| {
            let states = tasks.values();
            states
                .filter(|state| matches!(state, TaskState::Cancelled))
                .count()
        })
    }

    /// Lets the time pass that a task works before its outcome.
    fn go_on(&self, task: &str) {
        self.with(|tasks| {
            if let Some(state) = tasks.get_mut(task)
                && let TaskState::Working(outcome, n_gets) = state
            {
                *n_gets += 1;
                if *n_gets > 1 {
                    *state = match outcome.as_str() {
                        "ask" => TaskState::Asking,
                        "fail" => TaskState::Failed,
                        "never" => return,
                        _ => TaskState::Done("null".into()),
                    };
                }
            }
        });
    }

    pub(super) fn answer(&self, exchange: &Exchange) -> String {
        let id = exchange.id.as_str();
        let task = string_at(&exchange.params, &["taskId"]).unwrap_or_default();
        if exchange.method == "tasks/get" {
            self.go_on(&task);
        }
        let Some(state) = self.with(|tasks| tasks.get(&task).cloned()) else {
            return error(id, -32602, "odd: no such task", &json_string(&task));
        };
        match exchange.method.as_str() {
            "tasks/update" => {
                let given = exchange.param(&["inputResponses"]);
                let given = given.unwrap_or_else(|| "null".into());
                self.with(|tasks| tasks.insert(task, TaskState::Done(given)));
                complete(id, r#""x-noted":1.0"#)
            }
            "tasks/cancel" => {
                self.with(|tasks| tasks.insert(task, TaskState::Cancelled));
                complete(id, r#""x-noted":1e0"#)
            }
            _ => complete(id, &task_members(&task, &state)),
        }
    }
}

fn task_members(task: &str, state: &TaskState) -> String {
    let particulars = match state {
        TaskState::Asking => {
            r#""status":"input_required","inputRequests":{"k \u00bf":{"method":"elicitation/create","params":{"message":"which?","requestedSchema":{"type":"object","properties":{}}}}}"#.to_owned()
        }
        TaskState::Done(given) => format!(
            r#""status":"completed","result":{{"content":[{{"type":"hologram","n":1e3}}],"x-given":{given}}}"#
        ),
        TaskState::Working(..) => r#""status":"working","statusMessage":"bus\u0079""#.into(),
        TaskState::Failed => {
            r#""status":"failed","error":{"code":-31337,"message":"odd: the task failed","data":1.0}"#
                .into()
        }
        TaskState::Cancelled => r#""status":"cancelled","statusMessage":"no longer w\u0061nted""#.into(),
    };
    format!(
        r#""taskId":{},{particulars},{TIMES},"ttlMs":null,"pollIntervalMs":5e0"#,
        json_string(task)
    )
}
