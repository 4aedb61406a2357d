//! The tasks of a session and the upstream sessions that work on them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::unescape;

/// The maximum number of tasks whose upstream is remembered.
const MAX_TASKS: usize = 4_096;

/// The upstream session of each task, oldest first.
#[derive(Debug, Default)]
pub(in crate::proxy) struct TaskOwners(Mutex<VecDeque<(String, u64)>>);

impl TaskOwners {
    /// Stores the upstream session that works on a task, if its result contains one.
    pub(super) fn note_result(&self, result: &str, number: u64) {
        if memchr::memmem::find(result.as_bytes(), b"taskId").is_none() {
            return;
        }
        let inner = member(result, "task").unwrap_or(result);
        let Some(task) = member(inner, "taskId").and_then(unescape) else {
            return;
        };
        let mut tasks = self.0.lock();
        tasks.retain(|(known, _)| *known != task);
        if tasks.len() >= MAX_TASKS {
            tasks.pop_front();
        }
        tasks.push_back((task.into_owned(), number));
    }

    /// Returns the upstream session that works on a task.
    pub(super) fn owner(&self, task: &str) -> Option<u64> {
        let tasks = self.0.lock();
        let mut known = tasks.iter();
        let found = known.find(|(known, _)| known == task);
        found.map(|(_, number)| *number)
    }

    /// Removes the tasks of an upstream session that has ended.
    pub(super) fn forget_upstream(&self, number: u64) {
        self.0.lock().retain(|(_, owner)| *owner != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_belong_to_the_upstream_of_their_result() {
        let owners = TaskOwners::default();
        owners.note_result(r#"{"task":{"taskId":"a"}}"#, 1);
        owners.note_result(r#"{"taskId":"b"}"#, 2);
        owners.note_result(r#"{"content":[{"text":"taskId"}]}"#, 3);
        assert_eq!(owners.owner("a"), Some(1));
        assert_eq!(owners.owner("b"), Some(2));
        owners.forget_upstream(1);
        assert_eq!(owners.owner("a"), None);
    }
}
