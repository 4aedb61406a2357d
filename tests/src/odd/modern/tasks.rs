//! The tasks extension: a handle in the place of a result, a question on the way, and the result.

use std::collections::HashMap;
use std::sync::Mutex;

use super::{Exchange, catalog, complete};
use crate::envelope::{quoted, raw_at, string_at};
use crate::odd::session::{error, result_of};

const TIMES: &str =
    r#""createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00.0Z""#;

#[derive(Clone, Debug)]
enum State {
    Asking,
    Done(String),
    Cancelled,
}

/// The tasks of a server.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    by_id: Mutex<HashMap<String, State>>,
}

impl Tasks {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<String, State>) -> T) -> T {
        look(&mut self.by_id.lock().expect("no holder of the tasks panics"))
    }

    /// Starts a task and answers the call with its handle, if the client knows tasks.
    pub(super) fn start(&self, exchange: &Exchange) -> String {
        let capabilities = exchange.reserved("clientCapabilities").unwrap_or_default();
        let path = ["extensions", "io.modelcontextprotocol/tasks"];
        if raw_at(&capabilities, &path).is_none() {
            return complete(
                &exchange.id,
                r#""content":[{"type":"text","text":"without a task"}]"#,
            );
        }
        let id = self.with(|tasks| {
            let id = format!("t\u{e4}sk {}", tasks.len() + 1);
            tasks.insert(id.clone(), State::Asking);
            id
        });
        result_of(
            &exchange.id,
            &format!(
                r#"{{"taskId":{},"status":"working",{TIMES},"ttlMs":6e4,"pollIntervalMs":1.0,"resultType":"task","x":null,"_meta":{{{}}}}}"#,
                quoted(&id),
                catalog::IDENTITY
            ),
        )
    }

    /// Answers `tasks/get`, `tasks/update` and `tasks/cancel`.
    pub(super) fn answer(&self, exchange: &Exchange) -> String {
        let id = exchange.id.as_str();
        let task = string_at(&exchange.params, &["taskId"]).unwrap_or_default();
        let Some(state) = self.with(|tasks| tasks.get(&task).cloned()) else {
            return error(id, -32602, "odd: no such task", &quoted(&task));
        };
        match exchange.method.as_str() {
            "tasks/update" => {
                let given = exchange.param(&["inputResponses"]);
                let given = given.unwrap_or_else(|| "null".into());
                self.with(|tasks| tasks.insert(task, State::Done(given)));
                complete(id, r#""x-noted":1.0"#)
            }
            "tasks/cancel" => {
                self.with(|tasks| tasks.insert(task, State::Cancelled));
                complete(id, r#""x-noted":1e0"#)
            }
            _ => complete(id, &described(&task, &state)),
        }
    }
}

fn described(task: &str, state: &State) -> String {
    let particulars = match state {
        State::Asking => {
            r#""status":"input_required","inputRequests":{"k \u00bf":{"method":"elicitation/create","params":{"message":"which?","requestedSchema":{"type":"object","properties":{}}}}}"#.to_owned()
        }
        State::Done(given) => format!(
            r#""status":"completed","result":{{"content":[{{"type":"hologram","n":1e3}}],"x-given":{given}}}"#
        ),
        State::Cancelled => r#""status":"cancelled","statusMessage":"no longer w\u0061nted""#.into(),
    };
    format!(
        r#""taskId":{},{particulars},{TIMES},"ttlMs":null,"pollIntervalMs":5e0"#,
        quoted(task)
    )
}
