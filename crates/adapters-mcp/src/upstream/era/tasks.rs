//! Tasks in both forms: those of revision 2025-11-25, and those of the tasks extension of revision
//! 2026-07-28 (SEP-2663).

use std::borrow::Cow;
use std::collections::HashSet;

use riglm_domain::mcp::edit::{member, meta, with_member};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::mcp::scan::unescape;
use serde_json::Value;

/// The maximum number of tools that are known to run only as tasks.
const MAX_TASK_TOOLS: usize = 1_024;
/// The maximum length of their names in bytes.
const MAX_TOOL_NAME: usize = 256;

/// The name of the extension by which modern clients and servers declare tasks.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The entry of `_meta` by which revision 2025-11-25 names the task of a message.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The state of a task, with the same names in both forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub(super) enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// Reads the state of the JSON text of a task. Returns `None` for another text.
    pub(super) fn of(task: &str) -> Option<Self> {
        member(task, "status").and_then(unescape)?.parse().ok()
    }
}

/// The maximum length of the name of a task in bytes. Longer ones are not translated.
const MAX_TASK_ID: usize = 1_024;

/// The tools that a server runs only as tasks, as its refusals have shown.
#[derive(Debug, Default)]
pub(super) struct TaskTools(HashSet<Box<str>>);

impl TaskTools {
    /// Returns whether the parameters of a call name one of the tools.
    pub(super) fn has(&self, params: &str) -> bool {
        !self.0.is_empty() && tool_name(params).is_some_and(|name| self.0.contains(name.as_ref()))
    }

    /// Adds the tool that the parameters of a call name, unless there are too many.
    pub(super) fn add(&mut self, params: &str) {
        let name = tool_name(params).filter(|name| name.len() <= MAX_TOOL_NAME);
        if let Some(name) = name.filter(|_| self.0.len() < MAX_TASK_TOOLS) {
            self.0.insert(name.as_ref().into());
        }
    }

    /// Removes the tool that the parameters of a call name.
    pub(super) fn remove(&mut self, params: &str) {
        if let Some(name) = tool_name(params) {
            self.0.remove(name.as_ref());
        }
    }
}

fn tool_name(params: &str) -> Option<Cow<'_, str>> {
    member(params, "name").and_then(unescape)
}

/// Returns the name of a task, from the JSON text of the task or of parameters that name one.
pub(super) fn task_id(task: &str) -> Option<Box<str>> {
    let id = member(task, "taskId").and_then(unescape)?;
    (id.len() <= MAX_TASK_ID).then(|| id.as_ref().into())
}

/// Returns the task in the answer to a call of revision 2025-11-25, as JSON text.
pub(super) fn created_task(answer: &Message) -> Option<&str> {
    let result = answer.result(answer.single()?)?;
    member(result, "task").filter(|task| member(task, "taskId").is_some())
}

/// Returns the name of the task to which a message of revision 2025-11-25 belongs.
pub(super) fn related_task(params: &str) -> Option<Box<str>> {
    task_id(meta(params, RELATED_TASK)?)
}

/// The members of a task, with their names in the extension. Others could pass for members that
/// only the bridge may add.
const MEMBERS: [(&str, &str); 8] = [
    ("taskId", "taskId"),
    ("status", "status"),
    ("statusMessage", "statusMessage"),
    ("createdAt", "createdAt"),
    ("lastUpdatedAt", "lastUpdatedAt"),
    ("ttl", "ttlMs"),
    ("pollInterval", "pollIntervalMs"),
    ("_meta", "_meta"),
];

/// Returns the members of a task of revision 2025-11-25 as members of the extension, without braces.
/// The times have other names there, and the time to live is required.
pub(super) fn as_extension_members(task: &str) -> String {
    let named = MEMBERS.iter().filter_map(|(key, name)| {
        let value = member(task, key).or((*key == "ttl").then_some("null"))?;
        Some(format!("{}:{value}", Value::from(*name)))
    });
    named.collect::<Vec<_>>().join(",")
}

/// Returns whether an error says that the client must support the tasks extension.
pub(super) fn requires_tasks(error: &str) -> bool {
    let code = RpcErrorCode::MissingRequiredClientCapability.code();
    member(error, "code") == Some(code.to_string().as_str())
        && member(error, "data")
            .and_then(|data| member(data, "requiredCapabilities"))
            .is_some_and(declares_extension)
}

/// Returns whether capabilities contain the tasks extension.
pub(super) fn declares_extension(capabilities: &str) -> bool {
    member(capabilities, "extensions")
        .and_then(|extensions| member(extensions, TASKS_EXTENSION))
        .is_some_and(|settings| !matches!(settings, "null" | "false"))
}

pub(super) fn with_extension(capabilities: &str) -> String {
    let extensions = member(capabilities, "extensions").filter(|text| text.starts_with('{'));
    let extensions = with_member(extensions.unwrap_or("{}"), TASKS_EXTENSION, "{}");
    with_member(capabilities, "extensions", &extensions)
}

/// Returns whether the capabilities of a server of revision 2025-11-25 contain tasks for calls of
/// tools.
pub(super) fn runs_calls_as_tasks(capabilities: &str) -> bool {
    ["tasks", "requests", "tools", "call"]
        .iter()
        .try_fold(capabilities, |object, key| member(object, key))
        .is_some_and(|call| !matches!(call, "null" | "false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_get_the_names_of_the_extension() {
        let task =
            r#"{"taskId":"a\u00e4","status":"working","ttl":6e4,"pollInterval":5.0,"result":{}}"#;
        assert_eq!(
            as_extension_members(task),
            r#""taskId":"a\u00e4","status":"working","ttlMs":6e4,"pollIntervalMs":5.0"#
        );
        assert_eq!(
            as_extension_members(r#"{"taskId":"a"}"#),
            r#""taskId":"a","ttlMs":null"#
        );
        assert_eq!(task_id(task).as_deref(), Some("a\u{e4}"));
    }

    #[test]
    fn tools_are_known_by_unescaped_names_within_bounds() {
        let mut tools = TaskTools::default();
        tools.add(r#"{"name":"a\u00e4"}"#);
        tools.add(&format!(
            r#"{{"name":"{}"}}"#,
            "n".repeat(MAX_TOOL_NAME + 1)
        ));
        assert!(tools.has(r#"{"arguments":{},"name":"aä"}"#));
        assert!(!tools.has(r#"{"name":"b"}"#) && !tools.has("{}"));
        assert_eq!(tools.0.len(), 1);
        tools.remove(r#"{"name":"aä"}"#);
        assert!(!tools.has(r#"{"name":"aä"}"#));
    }

    #[test]
    fn states_of_tasks_are_read() {
        let status = |text: &str| TaskStatus::of(&format!(r#"{{"status":"{text}"}}"#));
        assert_eq!(status("input_required"), Some(TaskStatus::InputRequired));
        assert_eq!(status("completed"), Some(TaskStatus::Completed));
        assert_eq!(status("resting"), None);
        assert_eq!(TaskStatus::of("{}"), None);
    }

    #[test]
    fn only_a_missing_tasks_extension_requires_tasks() {
        let error = |code: i32, data: &str| {
            requires_tasks(&format!(r#"{{"code":{code},"message":"m","data":{data}}}"#))
        };
        let tasks =
            r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert!(error(-32021, tasks));
        assert!(!error(-32602, tasks));
        assert!(!error(
            -32021,
            r#"{"requiredCapabilities":{"sampling":{}}}"#
        ));
    }

    #[test]
    fn extensions_are_added_to_capabilities() {
        assert_eq!(
            with_extension(r#"{"roots":{},"extensions":{"a/b":{"n":1.0}}}"#),
            r#"{"roots":{},"extensions":{"a/b":{"n":1.0},"io.modelcontextprotocol/tasks":{}}}"#
        );
        assert!(declares_extension(&with_extension("{}")));
        assert!(!declares_extension(r#"{"tasks":{}}"#));
        assert!(runs_calls_as_tasks(
            r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#
        ));
        assert!(!runs_calls_as_tasks(r#"{"tasks":{"list":{}}}"#));
    }
}
