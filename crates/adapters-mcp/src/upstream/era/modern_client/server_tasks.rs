//! Tasks of a legacy server (revision 2025-11-25) for modern clients.
//!
//! A tool that the server runs only as a task is called as one. A client with the tasks extension
//! gets a handle, and asks for its state with the requests that are answered here. For any other
//! client the bridge waits for the result of the task, and answers the call with it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::answers;
use super::asking::{GATHERING, Questions, REPLY_TIMEOUT, tell_server};
use super::bridge_core::BridgeCore;
use super::call::{
    Call, CallWaiter, MAX_OPEN, ModernRequest, SendProgress, ServerRequest, legacy_id,
    name_questions,
};
use super::connection::Connection;
use super::opening::Connections;
use super::state::BridgeState;
use super::welcome::{Hello, Welcome};
use crate::upstream::era::tasks::{
    TASKS_EXTENSION, TaskStatus, as_extension_members, created_task, task_id,
};

/// The maximum number of tasks of a client that are known.
const MAX_TASKS: usize = 256;
/// The maximum number of requests of a client about tasks.
const MAX_REQUESTS: usize = 256;
/// The time to wait for the questions of a task that requires input. The server sends them once it
/// is asked for the result.
const QUESTIONS_TIMEOUT: Duration = Duration::from_secs(2);

/// The relation of a call to a task of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum TaskStage {
    /// It is an ordinary call.
    #[default]
    None,
    /// It requests a task, because the server refused the call without one.
    Requested,
    /// It requests a task, because the tool needed one before.
    Assumed,
    /// It is an ordinary call, because the tool needs no task any more.
    Declined,
    /// It waits for the result of the task with this name.
    Running(Box<str>),
}

/// A task at the server that the client asks about.
#[derive(Debug)]
pub(super) struct ServerTask {
    pub(super) connection: Arc<Connection>,
    /// The open questions of the server.
    open: Vec<ServerRequest>,
    /// The number of keys that were assigned to questions.
    n_keys: u32,
    /// Whether the bridge waits for the result, through which the server asks its questions.
    is_awaited: bool,
    /// Notified of new questions.
    asked: Arc<Notify>,
    /// Whether it has ended. The client may still ask for its result.
    is_over: bool,
    /// The time when it is forgotten if the client does not ask for it.
    pub(super) until: Instant,
}

impl ServerTask {
    /// Returns a task without questions. `n_keys` tells the keys of its questions from earlier ones.
    fn new(connection: &Arc<Connection>, until: Instant, n_keys: u32) -> Self {
        Self {
            connection: Arc::clone(connection),
            open: Vec::new(),
            n_keys,
            is_awaited: false,
            asked: Arc::default(),
            is_over: false,
            until,
        }
    }

    /// Returns whether the server still works on it, as far as is known.
    pub(super) fn is_active(&self) -> bool {
        !self.is_over
    }

    /// Attaches a question of the server. Returns it if too many are open.
    pub(super) fn ask(&mut self, request: ServerRequest) -> Option<ServerRequest> {
        if self.open.len() >= MAX_OPEN {
            return Some(request);
        }
        self.open.push(request);
        name_questions(&mut self.open, &mut self.n_keys);
        self.asked.notify_waiters();
        None
    }

    /// Removes a question that the server cancelled.
    pub(super) fn server_took_back(&mut self, id: &RequestId) {
        self.open.retain(|request| request.id != *id);
    }

    /// Returns the open questions as the JSON text of `inputRequests`; `None` without any.
    fn input_requests(&self) -> Option<String> {
        (!self.open.is_empty()).then(|| answers::input_requests(&self.open))
    }

    /// Removes the questions that the client answers. Returns the answers for the server.
    fn take_answers(&mut self, responses: &str) -> Vec<Message> {
        super::call::take_answers(&mut self.open, responses)
    }
}

impl BridgeState {
    /// Remembers a task whose handle the client gets. The task that was not used for longest is
    /// forgotten if there are too many. Returns the task that is replaced or forgotten.
    #[must_use]
    pub(super) fn remember_task(&mut self, id: Box<str>, task: ServerTask) -> Option<ServerTask> {
        let replaced = self.tasks.remove(&id);
        let forgotten = replaced.or_else(|| {
            let tasks = self.tasks.iter();
            let tasks = tasks.map(|(id, task)| (task.is_active(), task.until, id));
            let oldest = tasks.min().map(|(.., id)| id.clone());
            let oldest = oldest.filter(|_| self.tasks.len() >= MAX_TASKS)?;
            self.tasks.remove(&oldest)
        });
        self.tasks.insert(id, task);
        forgotten
    }

    /// Continues a call for which the server requires, or has created, a task: requests a task, or
    /// its result. Returns the new number of the call, under which it must be sent. Returns `None`
    /// if the answer is for the client.
    pub(super) fn continue_as_task(&mut self, number: u64, answer: &Message) -> Option<u64> {
        let call = self.calls.get(&number)?;
        if &*call.method != method::TOOLS_CALL {
            return None;
        }
        let params = call.params()?;
        if matches!(call.seat, CallWaiter::Cancelled(_)) {
            return None;
        }
        let (message, stage) = match &call.task {
            TaskStage::None if requires_task(call, answer) => {
                let message = call.message.with_params(&with_task(params));
                (message, TaskStage::Requested)
            }
            TaskStage::Assumed if requires_task(call, answer) => {
                self.task_tools.remove(params);
                let plain = edit::without_member(params, "task");
                (call.message.with_params(&plain), TaskStage::Declined)
            }
            TaskStage::Requested | TaskStage::Assumed => {
                let task = task_id(created_task(answer)?)?;
                self.task_tools.add(params);
                if call.connection.hello.has_tasks() {
                    return None; // The client gets the handle.
                }
                (
                    result_request(&call.message, &task),
                    TaskStage::Running(task),
                )
            }
            TaskStage::Declined | TaskStage::None | TaskStage::Running(_) => return None,
        };
        self.renumber(number, &message, stage)
    }

    /// Gives a call a new number and message. The ids of requests must not be used twice.
    fn renumber(&mut self, number: u64, message: &Message, stage: TaskStage) -> Option<u64> {
        let mut call = self.calls.remove(&number)?;
        let number = self.next_number();
        match &call.seat {
            CallWaiter::Taken(client) => {
                self.waiting.insert(client.id.clone(), number);
            }
            CallWaiter::Parked { parking, .. } => {
                self.parked.insert(parking.clone(), number);
            }
            CallWaiter::Cancelled(_) => {}
        }
        call.number = number;
        call.message = message.with_id(&legacy_id(number));
        call.task = stage;
        call.progress = SendProgress::Waiting;
        call.is_gathering = false;
        self.calls.insert(number, call);
        Some(number)
    }
}

/// Returns whether the server refused a call because the tool runs only as a task.
///
/// "If taskSupport is required [...] Servers MUST return a -32601 (Method not found) error if a
/// client does not attempt to do so" (revision 2025-11-25, basic/utilities/tasks).
fn requires_task(call: &Call, answer: &Message) -> bool {
    // Some servers say that the request is invalid.
    let codes = [RpcErrorCode::MethodNotFound, RpcErrorCode::InvalidRequest];
    let error = answer.single().and_then(|envelope| answer.error(envelope));
    let welcome = call.connection.welcome();
    welcome.is_some_and(|welcome| welcome.runs_tasks)
        && error
            .and_then(|error| edit::member(error, "code"))
            .is_some_and(|code| codes.iter().any(|known| known.code().to_string() == code))
}

/// Returns the parameters of a call with the request for a task.
pub(super) fn with_task(params: &str) -> String {
    edit::with_member(params, "task", "{}")
}

/// Returns the request for the result of a task, with the metadata of the call.
fn result_request(call: &Message, task: &str) -> Message {
    let params = task_params(task);
    let meta = call
        .single()
        .and_then(|envelope| call.params(envelope))
        .and_then(|params| edit::member(params, "_meta"));
    let params = match meta {
        Some(meta) => edit::with_member(&params, "_meta", meta),
        None => params,
    };
    Message::request(&legacy_id(0), method::TASKS_RESULT, Some(&params))
        .with_trace(call.trace().cloned())
}

fn task_params(task: &str) -> String {
    format!(r#"{{"taskId":{}}}"#, Value::from(task))
}

/// Returns the request that cancels a task.
pub(super) fn task_cancellation(task: &str, number: u64) -> Message {
    let id = InternalRequest::BridgedTask.id(number);
    Message::request(&id, method::TASKS_CANCEL, Some(&task_params(task)))
}

/// Returns whether a method belongs to the tasks extension.
pub(super) fn is_about_tasks(method: &str) -> bool {
    [
        method::TASKS_GET,
        method::TASKS_UPDATE,
        method::TASKS_CANCEL,
    ]
    .contains(&method)
}

/// One request of the client about a task.
#[derive(Debug)]
struct TaskRequest {
    id: RequestId,
    method: Box<str>,
    task: Box<str>,
    /// The answers to questions, as JSON text.
    responses: Box<str>,
}

/// Answers the requests of clients about tasks.
#[derive(Debug)]
pub(super) struct ServerTasks {
    core: Arc<BridgeCore>,
    connections: Arc<Connections>,
    questions: Arc<Questions>,
}

impl ServerTasks {
    /// Returns the tasks of the same link as the connections and questions.
    pub(super) fn new(
        core: Arc<BridgeCore>,
        connections: Arc<Connections>,
        questions: Arc<Questions>,
    ) -> Self {
        Self {
            core,
            connections,
            questions,
        }
    }

    /// Handles a request about a task.
    pub(super) async fn take(
        self: &Arc<Self>,
        request: ModernRequest<'_>,
    ) -> Result<SendOutcome, UpstreamError> {
        let id = request.id;
        let hello = Arc::new(Hello::of(&RequestMeta::read(request.params)));
        let task = request.params.and_then(task_id);
        let checked = match task {
            _ if !hello.has_tasks() => Err(lacks_extension()),
            Some(task) => Ok(task),
            None => Err(RpcError::new(
                RpcErrorCode::InvalidParams,
                "taskId is missing or not a string",
            )),
        };
        let task = match checked {
            Ok(task) => task,
            Err(error) => {
                self.core.deliver_error(id, &error).await;
                return Ok(SendOutcome::Delivered);
            }
        };
        let responses = request
            .params
            .and_then(|params| edit::member(params, "inputResponses"))
            .unwrap_or("{}");
        let begun = {
            let mut state = self.core.state.lock();
            if state.task_requests.len() >= MAX_REQUESTS {
                None
            } else {
                let known = state.tasks.get_mut(&task).map(|known| {
                    known.until = Instant::now() + self.core.options.state_ttl;
                    Arc::clone(&known.connection)
                });
                let connection = match known {
                    Some(connection) => connection,
                    None => self.connections.connection_for(&mut state, &hello)?,
                };
                state.task_requests.insert(id.clone());
                Some(connection)
            }
        };
        let Some(connection) = begun else {
            let text = "too many requests about tasks are in flight; try again later";
            let error = RpcError::new(RpcErrorCode::LimitReached, text);
            self.core.deliver_error(id, &error).await;
            return Ok(SendOutcome::Delivered);
        };
        let request = TaskRequest {
            id: id.clone(),
            method: request.method.into(),
            task,
            responses: responses.into(),
        };
        // Later messages of the client do not wait for the answer.
        let tasks = Arc::clone(self);
        self.core
            .tasks
            .spawn(async move { tasks.answer(&connection, request).await });
        Ok(SendOutcome::Delivered)
    }

    /// Forgets a request that the client cancelled. Returns whether it was in flight.
    pub(super) fn forget_request(&self, id: &RequestId) -> bool {
        self.core.state.lock().task_requests.remove(id)
    }

    async fn answer(self: &Arc<Self>, connection: &Arc<Connection>, request: TaskRequest) {
        let answer = self.answer_to(connection, &request).await;
        if !self.forget_request(&request.id) {
            return; // The client cancelled it.
        }
        match answer {
            Ok(answer) => {
                let answer = answer.with_id(&request.id);
                self.core.deliver(answer, &request.id).await;
            }
            Err(error) => self.core.report_unanswered(&request.id, error).await,
        }
    }

    async fn answer_to(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        request: &TaskRequest,
    ) -> Result<Message, UpstreamError> {
        let welcome = connection.wait_open().await?;
        if !welcome.runs_tasks {
            let text = "the server has no tasks";
            let error = RpcError::new(RpcErrorCode::MethodNotFound, text);
            return Ok(error.to_message(Some(&request.id)));
        }
        match &*request.method {
            method::TASKS_GET => self.state_of(connection, request, &welcome).await,
            method::TASKS_UPDATE => self.update(connection, request, &welcome).await,
            _ => self.cancel(connection, request, &welcome).await,
        }
    }

    /// Returns the state of a task, with its result or its questions.
    async fn state_of(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        request: &TaskRequest,
        welcome: &Welcome,
    ) -> Result<Message, UpstreamError> {
        let task = &*request.task;
        let answer = self.ask(connection, method::TASKS_GET, task).await?;
        let Some(state) = result_of(&answer) else {
            return Ok(answers::as_modern(&answer, method::TASKS_GET, welcome));
        };
        let with_status = |status| Cow::Owned(edit::with_member(state, "status", status));
        let (state, added) = match TaskStatus::of(state) {
            // Revision 2025-11-25 calls a task failed whose result has `isError`. For the extension,
            // "the failed status MUST NOT be used to represent non-JSON-RPC errors".
            Some(TaskStatus::Completed | TaskStatus::Failed) => {
                let outcome = self.ask(connection, method::TASKS_RESULT, task).await?;
                self.note_end(task);
                let error = outcome
                    .single()
                    .and_then(|envelope| outcome.error(envelope));
                if let Some(error) = error {
                    (with_status("\"failed\""), format!(r#","error":{error}"#))
                } else {
                    let result = result_of(&outcome).unwrap_or("{}");
                    let result = format!(r#","result":{result}"#);
                    (with_status("\"completed\""), result)
                }
            }
            Some(TaskStatus::InputRequired) => match self.questions_of(connection, task).await {
                Some(asked) => {
                    let asked = format!(r#","inputRequests":{asked}"#);
                    (Cow::Borrowed(state), asked)
                }
                // "inputRequests MUST contain all outstanding requests", and none is known yet.
                None => (with_status("\"working\""), String::new()),
            },
            Some(TaskStatus::Cancelled) => {
                self.note_end(task);
                (Cow::Borrowed(state), String::new())
            }
            Some(TaskStatus::Working) | None => (Cow::Borrowed(state), String::new()),
        };
        let members = as_extension_members(&state);
        Ok(answers::about_task(
            &request.id,
            "complete",
            &format!("{members}{added}"),
            welcome,
        ))
    }

    /// Returns the questions of a task that requires input, as the JSON text of `inputRequests`.
    async fn questions_of(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        task: &str,
    ) -> Option<String> {
        let deadline = Instant::now() + QUESTIONS_TIMEOUT;
        let asked = self.await_result(connection, task);
        loop {
            let mut next = std::pin::pin!(asked.notified());
            next.as_mut().enable();
            if self.has_questions(task) {
                // The server may ask several questions at once.
                tokio::time::sleep(GATHERING).await;
                let state = self.core.state.lock();
                return state.tasks.get(task)?.input_requests();
            }
            tokio::time::timeout_at(deadline, next).await.ok()?;
        }
    }

    fn has_questions(&self, task: &str) -> bool {
        let state = self.core.state.lock();
        state
            .tasks
            .get(task)
            .is_some_and(|task| !task.open.is_empty())
    }

    /// Asks for the result of a task in the background, unless that is being done. Returns the
    /// notification of new questions.
    fn await_result(self: &Arc<Self>, connection: &Arc<Connection>, task: &str) -> Arc<Notify> {
        let ttl = self.core.options.state_ttl;
        let (asked, is_new) = {
            let mut state = self.core.state.lock();
            if !state.tasks.contains_key(task) {
                // Clients take a key that they have seen for the same question.
                let n_keys = u32::try_from(state.next_number()).unwrap_or(u32::MAX / 2);
                let new = ServerTask::new(connection, Instant::now() + ttl, n_keys);
                let forgotten = state.remember_task(task.into(), new);
                refuse_forgotten(&self.core, forgotten);
                self.core.changed.notify_one();
            }
            let Some(known) = state.tasks.get_mut(task) else {
                return Arc::default();
            };
            let is_new = !known.is_awaited && known.open.is_empty();
            known.is_awaited |= is_new;
            (Arc::clone(&known.asked), is_new)
        };
        if is_new {
            let (tasks, connection) = (Arc::clone(self), Arc::clone(connection));
            let task: Box<str> = task.into();
            self.core.tasks.spawn(async move {
                // The result is requested again when the client asks for it.
                let message = tasks.request(method::TASKS_RESULT, &task);
                if let Err(error) = connection.ask(message, ttl).await {
                    tracing::debug!("failed to wait for a task: {error}");
                }
                let mut state = tasks.core.state.lock();
                if let Some(known) = state.tasks.get_mut(&task) {
                    known.is_awaited = false;
                }
            });
        }
        asked
    }

    /// Gives the answers of the client to the server.
    async fn update(
        &self,
        connection: &Arc<Connection>,
        request: &TaskRequest,
        welcome: &Welcome,
    ) -> Result<Message, UpstreamError> {
        let replies = {
            let mut state = self.core.state.lock();
            let known = state.tasks.get_mut(&request.task);
            known.map(|known| known.take_answers(&request.responses))
        };
        if let Some(replies) = replies {
            tell_server(Arc::clone(connection), replies).await;
        } else {
            let answer = self
                .ask(connection, method::TASKS_GET, &request.task)
                .await?;
            if result_of(&answer).is_none() {
                return Ok(answer);
            }
            if &*request.responses != "{}" {
                let text = "no question of this task is open; ask for its state again";
                let error = RpcError::new(RpcErrorCode::InvalidParams, text);
                return Ok(error.to_message(Some(&request.id)));
            }
        }
        Ok(answers::acknowledgement(&request.id, welcome))
    }

    /// Cancels a task at the server.
    async fn cancel(
        &self,
        connection: &Arc<Connection>,
        request: &TaskRequest,
        welcome: &Welcome,
    ) -> Result<Message, UpstreamError> {
        let cancelled = self
            .ask(connection, method::TASKS_CANCEL, &request.task)
            .await?;
        if result_of(&cancelled).is_none() {
            // Servers refuse to cancel a task that has ended; in the extension they acknowledge it.
            let known = self
                .ask(connection, method::TASKS_GET, &request.task)
                .await?;
            if result_of(&known).is_none() {
                return Ok(cancelled);
            }
        }
        self.note_end(&request.task);
        Ok(answers::acknowledgement(&request.id, welcome))
    }

    /// Marks a task as ended, and refuses its open questions. The client may still ask for it: an
    /// answer can be lost on the way.
    fn note_end(&self, task: &str) {
        let ended = {
            let mut state = self.core.state.lock();
            state.tasks.get_mut(task).map(|known| {
                known.is_over = true;
                let open = std::mem::take(&mut known.open);
                (Arc::clone(&known.connection), open)
            })
        };
        if let Some((connection, open)) = ended {
            let reason = "the task has ended";
            self.questions.refuse_open(&connection, &open, reason);
        }
    }

    fn request(&self, method: &str, task: &str) -> Message {
        let number = self.core.state.lock().next_number();
        let id = InternalRequest::BridgedTask.id(number);
        Message::request(&id, method, Some(&task_params(task)))
    }

    async fn ask(
        &self,
        connection: &Connection,
        method: &str,
        task: &str,
    ) -> Result<Message, UpstreamError> {
        connection
            .ask(self.request(method, task), REPLY_TIMEOUT)
            .await
    }
}

impl Questions {
    /// Refuses the questions of tasks for which the client did not ask in time.
    pub(super) fn expire_tasks(&self, state: &mut BridgeState, now: Instant) {
        let expired = state.tasks.extract_if(|_, task| task.until <= now);
        for (_, task) in expired {
            let reason = "the client did not ask for the task in time";
            self.refuse_open(&task.connection, &task.open, reason);
        }
    }
}

/// Returns the answer with the handle of a task, and remembers the task.
pub(super) fn handle(core: &BridgeCore, call: &Call, answer: &Message) -> Option<Message> {
    let client = call.client().filter(|_| call.requests_task())?;
    let task = created_task(answer)?;
    let welcome = call.connection.welcome()?;
    let until = Instant::now() + core.options.state_ttl;
    let id = task_id(task)?;
    let new = ServerTask::new(&call.connection, until, 0);
    let forgotten = core.state.lock().remember_task(id, new);
    refuse_forgotten(core, forgotten);
    core.changed.notify_one();
    let members = as_extension_members(task);
    Some(answers::about_task(&client.id, "task", &members, &welcome))
}

/// Refuses the open questions of a forgotten task.
fn refuse_forgotten(core: &BridgeCore, forgotten: Option<ServerTask>) {
    if let Some(task) = forgotten.filter(|task| !task.open.is_empty()) {
        let reason = "too many tasks are open";
        let refusals = task.open.iter().map(|open| open.refusal_for(reason));
        let refusals = refusals.collect();
        let connection = task.connection;
        core.tasks
            .spawn(async move { tell_server(connection, refusals).await });
    }
}

/// Cancels a task whose handle came after the client had cancelled its call.
pub(super) fn cancel_late_task(core: &BridgeCore, connection: &Arc<Connection>, answer: &Message) {
    let Some(task) = created_task(answer).and_then(task_id) else {
        return;
    };
    let message = {
        let mut state = core.state.lock();
        let is_running = |call: &Call| call.task == TaskStage::Running(task.clone());
        // A server may answer twice.
        if state.tasks.contains_key(&task) || state.calls.values().any(is_running) {
            return;
        }
        task_cancellation(&task, state.next_number())
    };
    let connection = Arc::clone(connection);
    core.tasks
        .spawn(async move { tell_server(connection, vec![message]).await });
}

/// Returns the error for a client without the tasks extension.
fn lacks_extension() -> RpcError {
    RpcError::new(
        RpcErrorCode::MissingRequiredClientCapability,
        format!("the request needs the extension {TASKS_EXTENSION}"),
    )
    .with_data(json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}))
}

fn result_of(answer: &Message) -> Option<&str> {
    answer.result(answer.single()?)
}
