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
}

#[derive(Debug, Default)]
pub(super) struct Tasks {
    by_id: Mutex<HashMap<String, TaskState>>,
}

impl Tasks {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<String, TaskState>) -> T) -> T {
        look(&mut self.by_id.lock())
    }

    /// Starts a task and answers the call with its handle. A client without the extension gets a
    /// normal result.
    pub(super) fn start(&self, exchange: &Exchange) -> String {
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

    pub(super) fn answer(&self, exchange: &Exchange) -> String {
        let id = exchange.id.as_str();
        let task = string_at(&exchange.params, &["taskId"]).unwrap_or_default();
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
        TaskState::Cancelled => r#""status":"cancelled","statusMessage":"no longer w\u0061nted""#.into(),
    };
    format!(
        r#""taskId":{},{particulars},{TIMES},"ttlMs":null,"pollIntervalMs":5e0"#,
        json_string(task)
    )
}
