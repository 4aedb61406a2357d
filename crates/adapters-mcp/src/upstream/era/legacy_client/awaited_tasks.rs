//! Calls that a modern server runs as tasks. A legacy client cannot follow such a task, so the
//! bridge asks for its state until it ends, and answers the call with its result (tasks extension,
//! SEP-2663).
//!
//! The extension is declared only in calls of tools for which the server required it, so that a server
//! that has the choice answers calls directly.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::{members, unescape};
use riglm_domain::resilience::Backoff;
use riglm_ports::upstream::SendOutcome;
use serde_json::Value;

use super::multi_round_calls::MultiRoundCalls;
use super::requests::EndedRequest;
use crate::upstream::era::tasks::{TaskStatus, requires_tasks, task_id};

/// The type of a result that asks for input, as a JSON string.
const INPUT_REQUIRED: &str = "\"input_required\"";
/// The type of a result that is the handle of a task.
const TASK: &str = "\"task\"";
/// The time between two questions for a task whose server proposes none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The bounds of the times that servers propose. Each answer is reported as progress, which must come
/// before the deadline of the call.
const POLL_BOUNDS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(20));
/// The back-off before a failed question for a task is repeated.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// The maximum number of consecutive questions without an answer. The task continues meanwhile.
const MAX_FAILURES: u32 = 5;

/// A task of the server that a request of the client waits for.
#[derive(Debug)]
pub(super) struct AwaitedTask {
    /// The name of the task.
    id: Box<str>,
    /// The keys of the inputs that the client has answered, as JSON strings.
    pub(super) answered: Vec<String>,
    /// The answers of the client that the server has not acknowledged, as the JSON text of
    /// `inputResponses`.
    update: Option<Box<str>>,
    /// The number of consecutive questions without an answer.
    n_failures: u32,
    n_answers: u32,
    interval: Duration,
}

impl AwaitedTask {
    /// Returns the task in the result of a call.
    fn of(result: &str) -> Option<Self> {
        Some(Self {
            id: task_id(result)?,
            answered: Vec::new(),
            update: None,
            n_failures: 0,
            n_answers: 0,
            interval: interval(result).unwrap_or(POLL_INTERVAL),
        })
    }

    /// Returns whether it is the task with this name.
    pub(super) fn has_id(&self, id: &str) -> bool {
        *self.id == *id
    }

    /// Returns the parameters of a request about the task, without metadata.
    fn params(&self) -> String {
        format!(r#"{{"taskId":{}}}"#, Value::from(&*self.id))
    }

    /// Registers an answer of the server. Returns the time until the next question, and the number
    /// of answers.
    pub(super) fn note_answer(&mut self) -> (Duration, u32) {
        self.n_answers += 1;
        (self.interval, self.n_answers)
    }

    /// Stores the answers of the client, the JSON text of `inputResponses`, to the questions with
    /// these keys.
    pub(super) fn note_answers(&mut self, keys: impl Iterator<Item = String>, answers: String) {
        self.answered.extend(keys);
        self.update = Some(answers.into());
    }

    /// Returns method and parameters of the next request about the task.
    fn request(&self) -> (&'static str, String) {
        match &self.update {
            Some(answers) => {
                let params = with_member(&self.params(), "inputResponses", answers);
                (method::TASKS_UPDATE, params)
            }
            None => (method::TASKS_GET, self.params()),
        }
    }
}

impl MultiRoundCalls {
    /// Handles the answer of the server to a request of the client. Returns the answer for the
    /// client, or `None` if the request continues.
    pub(super) async fn settle(
        self: &Arc<Self>,
        client: &RequestId,
        message: Message,
        envelope: &Envelope,
    ) -> Option<Message> {
        let is_task = self.requests.lock().task(client).is_some();
        let Some(result) = message.result(envelope) else {
            if is_task {
                return self.note_task_error(client, message, envelope);
            }
            let is_refused = message.error(envelope).is_some_and(requires_tasks);
            if is_refused && self.declare_tasks(client) {
                self.retry(client).await;
                return None;
            }
            return Some(message);
        };
        if is_task {
            return self.note_state(client, result).await;
        }
        // A result may have megabytes, so it is searched once.
        match member(result, "resultType") {
            Some(INPUT_REQUIRED) => {
                self.input_required(client.clone(), result).await;
                None
            }
            Some(TASK) => {
                let Some(task) = AwaitedTask::of(result) else {
                    let text = "invalid answer of the upstream: a task without a usable taskId";
                    let error = RpcError::new(RpcErrorCode::UpstreamGarbled, text);
                    return Some(error.to_message(Some(client)));
                };
                let interval = task.interval;
                self.requests.lock().await_task(client, task);
                self.poll_later(client, interval);
                None
            }
            _ => Some(message),
        }
    }

    /// Declares the tasks extension for a call that was refused without it. Returns whether the call
    /// can be sent again.
    fn declare_tasks(&self, client: &RequestId) -> bool {
        let mut identity = self.peers.identity.lock();
        let mut requests = self.requests.lock();
        let is_declared =
            requests.with_params(client, |params| Some(identity.declare_tasks_for(params)));
        is_declared == Some(true)
            && requests.sign_again(client, |params| identity.sign(Some(params)))
    }

    /// Handles an error in place of the state of a task. Returns the answer for the client if the
    /// task is lost.
    fn note_task_error(
        self: &Arc<Self>,
        client: &RequestId,
        message: Message,
        envelope: &Envelope,
    ) -> Option<Message> {
        let (was_update, interval) = {
            let mut requests = self.requests.lock();
            requests.note_task_answer(client)?;
            let task = requests.task_mut(client)?;
            (task.update.take().is_some(), task.interval)
        };
        // The task may have ended before its input came. Its state says so.
        if was_update {
            self.poll_later(client, interval);
            return None;
        }
        let code = (message.error(envelope)).and_then(|error| member(error, "code"));
        let is_unknown = code == Some(RpcErrorCode::InvalidParams.code().to_string().as_str());
        (is_unknown || !self.repeats_question(client)).then_some(message)
    }

    /// Handles the state of a task, or the acknowledgement of an input. Returns the answer for the
    /// client if the task has ended.
    async fn note_state(self: &Arc<Self>, client: &RequestId, task: &str) -> Option<Message> {
        let (interval, n_answers) = {
            let mut requests = self.requests.lock();
            let noted = requests.note_task_answer(client)?;
            let task = requests.task_mut(client)?;
            task.n_failures = 0;
            if task.update.take().is_some() {
                drop(requests);
                self.poll_later(client, noted.0);
                return None;
            }
            noted
        };
        let result = match TaskStatus::of(task) {
            Some(TaskStatus::Completed) => {
                Message::success(client, member(task, "result").unwrap_or("{}"))
            }
            Some(TaskStatus::Failed) => match member(task, "error") {
                Some(error) => Message::failure(Some(client), error),
                None => task_failure(client, "the task of the call failed", task),
            },
            Some(TaskStatus::Cancelled) => {
                task_failure(client, "the server cancelled the task of the call", task)
            }
            Some(TaskStatus::InputRequired) if self.has_new_question(client, task) => {
                self.input_required(client.clone(), task).await;
                return None;
            }
            Some(TaskStatus::InputRequired) => {
                self.poll_later(client, self::interval(task).unwrap_or(interval));
                return None;
            }
            Some(TaskStatus::Working) => {
                self.report_progress(client, n_answers, task).await;
                self.poll_later(client, self::interval(task).unwrap_or(interval));
                return None;
            }
            None => {
                self.poll_later(client, interval);
                return None;
            }
        };
        Some(result)
    }

    /// Returns whether a task asks for input that the client has not given yet. A task repeats its
    /// questions until it has processed the answers.
    fn has_new_question(&self, client: &RequestId, task: &str) -> bool {
        let requests = self.requests.lock();
        let Some(known) = requests.task(client) else {
            return false;
        };
        let asked = member(task, "inputRequests").unwrap_or("{}");
        members(asked).any(|(key, _)| !known.answered.contains(&Value::from(key).to_string()))
    }

    /// Reports that the task is still running, if the client wants progress. Clients wait longer for
    /// calls that make progress.
    async fn report_progress(&self, client: &RequestId, n_answers: u32, task: &str) {
        let token = self.requests.lock().with_params(client, |params| {
            RequestMeta::read(Some(params))
                .progress_token
                .map(str::to_owned)
        });
        let Some(token) = token else {
            return;
        };
        let text = member(task, "statusMessage")
            .filter(|text| text.starts_with('"'))
            .map(|text| format!(r#","message":{text}"#))
            .unwrap_or_default();
        let params = format!(r#"{{"progressToken":{token},"progress":{n_answers}{text}}}"#);
        let message = Message::notification(method::NOTIFICATIONS_PROGRESS, Some(&params));
        self.peers.deliver(message, client).await;
    }

    /// Asks the server for the state of the task after a time.
    pub(super) fn poll_later(self: &Arc<Self>, client: &RequestId, after: Duration) {
        let (calls, client) = (Arc::clone(self), client.clone());
        self.peers.tasks.spawn(async move {
            tokio::time::sleep(after).await;
            calls.ask_about_task(&client).await;
        });
    }

    /// Gives the answers of the client to the task.
    pub(super) async fn update_task(self: &Arc<Self>, client: &RequestId) {
        self.requests.lock().take_task_answers(client);
        self.ask_about_task(client).await;
    }

    /// Gives the server the answers that it has not acknowledged, or else asks it for the state of
    /// the task.
    async fn ask_about_task(self: &Arc<Self>, client: &RequestId) {
        let asked = self.requests.lock().task(client).map(AwaitedTask::request);
        let Some((method, params)) = asked else {
            return; // The client cancelled its request meanwhile.
        };
        let id = self.peers.next_id(InternalRequest::BridgedTask);
        let params = self.peers.identity.lock().describe_for_tasks(&params);
        let message = Message::request(&id, method, Some(&params));
        if self.requests.lock().send_for(client, id) {
            self.send_again(client, message).await;
        }
    }

    /// Handles a question for a task that got no answer. Returns whether the question is repeated.
    pub(super) fn repeats_question(self: &Arc<Self>, client: &RequestId) -> bool {
        let n_failures = {
            let mut requests = self.requests.lock();
            let Some(task) = requests.task_mut(client) else {
                return false;
            };
            task.n_failures += 1;
            if task.n_failures > MAX_FAILURES {
                let params = task.params();
                drop(requests);
                self.send_cancellation(&params);
                return false;
            }
            task.n_failures
        };
        self.poll_later(client, BACKOFF.delay(n_failures, fastrand::f64()));
        true
    }

    /// Cancels the task of an ended request at the server.
    pub(super) fn cancel_task(&self, ended: &EndedRequest) {
        if let Some(task) = &ended.task {
            self.send_cancellation(&task.params());
        }
    }

    /// Cancels a task whose handle came after the client had cancelled its call. Returns whether the
    /// message is such a handle.
    pub(super) fn cancel_late_task(&self, message: &Message, envelope: &Envelope) -> bool {
        let result = message.result(envelope).unwrap_or("{}");
        if member(result, "resultType") != Some(TASK) {
            return false;
        }
        // A server may send the handle of a task twice.
        let task = AwaitedTask::of(result).filter(|task| !self.requests.lock().awaits(&task.id));
        if let Some(task) = task {
            self.send_cancellation(&task.params());
        }
        true
    }

    fn send_cancellation(&self, params: &str) {
        let id = self.peers.next_id(InternalRequest::BridgedTask);
        let params = self.peers.identity.lock().describe_for_tasks(params);
        let message = Message::request(&id, method::TASKS_CANCEL, Some(&params));
        let server = Arc::clone(&self.peers.server);
        // Nobody waits for the answer: the server decides whether the work stops.
        self.peers.tasks.spawn(async move {
            if let Ok(SendOutcome::UnderWay(exchange)) = server.send(message).await {
                exchange.run.await;
            }
        });
    }
}

/// Returns the time that the server proposes until the next question.
fn interval(task: &str) -> Option<Duration> {
    let millis: f64 = member(task, "pollIntervalMs")?.parse().ok()?;
    let interval = Duration::try_from_secs_f64(millis / 1e3).ok()?;
    Some(interval.clamp(POLL_BOUNDS.0, POLL_BOUNDS.1))
}

fn task_failure(client: &RequestId, text: &str, task: &str) -> Message {
    let reason = member(task, "statusMessage")
        .and_then(unescape)
        .map_or_else(|| text.to_owned(), |reason| format!("{text}: {reason}"));
    RpcError::new(RpcErrorCode::UpstreamUnavailable, reason).to_message(Some(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposed_intervals_are_bounded() {
        let read = |value: &str| interval(&format!(r#"{{"pollIntervalMs":{value}}}"#));
        assert_eq!(read("5e3"), Some(Duration::from_secs(5)));
        assert_eq!(read("0"), Some(POLL_BOUNDS.0));
        assert_eq!(read("1e30"), None);
        assert_eq!(read("3600000"), Some(POLL_BOUNDS.1));
        assert_eq!(read("-1"), None);
        assert_eq!(read("\"5\""), None);
        assert_eq!(interval("{}"), None);
    }
}
