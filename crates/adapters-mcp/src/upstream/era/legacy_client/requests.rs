//! The unanswered requests of the client, with their ids upstream.

use std::collections::HashMap;
use std::time::Duration;

use riglm_domain::mcp::edit::{with_member, without_member};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::scan::members;

use super::awaited_tasks::AwaitedTask;
use super::inputs::InputQuestions;

#[derive(Debug)]
struct ClientRequest {
    /// The message as it was first sent upstream.
    message: Message,
    /// Its id upstream while it is in flight there.
    upstream: Option<RequestId>,
    n_rounds: u32,
    /// The number of consecutive rounds without a question.
    n_bare: u32,
    inputs: Vec<Input>,
    /// The state that the server wants back, as JSON text.
    state: Option<Box<str>>,
    /// Whether it was sent again with more capabilities of the client.
    was_signed_again: bool,
    /// The task that the server runs in place of an answer.
    task: Option<AwaitedTask>,
}

impl ClientRequest {
    /// Returns the answers of the client as the JSON text of `inputResponses`.
    fn input_responses(&self) -> String {
        let answers: Vec<String> = self
            .inputs
            .iter()
            .map(|input| format!("{}:{}", input.key, input.answer.as_deref().unwrap_or("{}")))
            .collect();
        format!("{{{}}}", answers.join(","))
    }
}

/// A question to the client on behalf of a request.
#[derive(Debug)]
struct Input {
    id: RequestId,
    key: String,
    method: &'static str,
    answer: Option<Box<str>>,
}

#[derive(Debug)]
pub(super) struct EndedRequest {
    /// Its id upstream if it is in flight there.
    pub(super) upstream: Option<RequestId>,
    /// The questions that the client did not answer.
    pub(super) open_inputs: Vec<RequestId>,
    pub(super) method: Box<str>,
    /// Its task at the server.
    pub(super) task: Option<AwaitedTask>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerEffect {
    /// None: the question is unknown, or not from the bridge.
    Unasked,
    /// Other answers are missing.
    Waiting,
    /// The request with this id has all its answers.
    Complete(RequestId),
}

/// The unanswered requests of one client.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: HashMap<RequestId, ClientRequest>,
    /// The client's ids by the ids upstream.
    owners: HashMap<RequestId, RequestId>,
    /// The request of the client to which each question belongs.
    questions: HashMap<RequestId, RequestId>,
}

impl Requests {
    /// Registers a request that goes upstream under the client's id.
    pub(super) fn begin(&mut self, id: RequestId, message: Message) {
        self.owners.insert(id.clone(), id.clone());
        let request = ClientRequest {
            message,
            upstream: Some(id.clone()),
            n_rounds: 0,
            n_bare: 0,
            inputs: Vec::new(),
            state: None,
            was_signed_again: false,
            task: None,
        };
        self.open.insert(id, request);
    }

    /// Returns the client's id of a request that is in flight upstream.
    pub(super) fn owner(&self, upstream: &RequestId) -> Option<&RequestId> {
        self.owners.get(upstream)
    }

    /// Returns whether a question to the client waits for its answer.
    pub(super) fn is_asked(&self, input: &RequestId) -> bool {
        self.questions.contains_key(input)
    }

    /// Returns the request to which a question belongs, and the method of the question.
    pub(super) fn question(&self, input: &RequestId) -> Option<(RequestId, &'static str)> {
        let owner = self.questions.get(input)?;
        let inputs = &self.open.get(owner)?.inputs;
        let found = inputs.iter().find(|known| known.id == *input)?;
        Some((owner.clone(), found.method))
    }

    pub(super) fn end(&mut self, id: &RequestId) -> Option<EndedRequest> {
        let request = self.open.remove(id)?;
        if let Some(upstream) = &request.upstream {
            self.owners.remove(upstream);
        }
        let method = request.message.single().and_then(|part| part.method());
        let method = method.unwrap_or_default().into();
        let open_inputs: Vec<RequestId> = request
            .inputs
            .into_iter()
            .filter(|input| input.answer.is_none())
            .map(|input| input.id)
            .collect();
        for input in &open_inputs {
            self.questions.remove(input);
        }
        Some(EndedRequest {
            upstream: request.upstream,
            open_inputs,
            method,
            task: request.task,
        })
    }

    /// Removes all requests. Returns the open questions, each with its request.
    pub(super) fn end_all(&mut self) -> Vec<(RequestId, RequestId)> {
        self.open.clear();
        self.owners.clear();
        self.questions.drain().collect()
    }

    /// Returns the task that a request waits for.
    pub(super) fn task(&self, id: &RequestId) -> Option<&AwaitedTask> {
        self.open.get(id)?.task.as_ref()
    }

    /// Returns the task that a request waits for.
    pub(super) fn task_mut(&mut self, id: &RequestId) -> Option<&mut AwaitedTask> {
        self.open.get_mut(id)?.task.as_mut()
    }

    /// Returns whether a request waits for the task with this name.
    pub(super) fn awaits(&self, task: &str) -> bool {
        let mut tasks = self
            .open
            .values()
            .filter_map(|request| request.task.as_ref());
        tasks.any(|known| known.has_id(task))
    }

    /// Lets a request wait for a task.
    pub(super) fn await_task(&mut self, id: &RequestId, task: AwaitedTask) {
        self.detach(id);
        if let Some(request) = self.open.get_mut(id) {
            request.task = Some(task);
        }
    }

    /// Registers an answer of the server about the task of a request. Returns the time until the
    /// next question, and the number of answers.
    pub(super) fn note_task_answer(&mut self, id: &RequestId) -> Option<(Duration, u32)> {
        self.detach(id);
        Some(self.task_mut(id)?.note_answer())
    }

    /// Gives the answers of the client to the task of a request.
    pub(super) fn take_task_answers(&mut self, id: &RequestId) {
        let Some(request) = self.open.get_mut(id) else {
            return;
        };
        let answers = request.input_responses();
        let keys = request.inputs.drain(..).map(|input| input.key);
        if let Some(task) = &mut request.task {
            task.note_answers(keys, answers);
        }
    }

    /// Registers a request of the bridge that is sent for a request of the client. Returns whether
    /// that one is still open.
    pub(super) fn send_for(&mut self, id: &RequestId, upstream: RequestId) -> bool {
        self.detach(id);
        let Some(request) = self.open.get_mut(id) else {
            return false;
        };
        request.upstream = Some(upstream.clone());
        self.owners.insert(upstream, id.clone());
        true
    }

    /// Changes the parameters of a request before it is sent again. Returns whether it is open and
    /// was not changed before.
    pub(super) fn sign_again(&mut self, id: &RequestId, sign: impl Fn(&str) -> String) -> bool {
        self.detach(id);
        let Some(request) = self.open.get_mut(id) else {
            return false;
        };
        if std::mem::replace(&mut request.was_signed_again, true) {
            return false;
        }
        let params = request
            .message
            .single()
            .and_then(|envelope| request.message.params(envelope));
        let params = sign(params.unwrap_or("{}"));
        request.message = request.message.with_params(&params);
        true
    }

    /// Reads the parameters of a request.
    pub(super) fn with_params<T>(
        &self,
        id: &RequestId,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let message = &self.open.get(id)?.message;
        read(message.params(message.single()?)?)
    }

    /// Removes the id of a request upstream, because it is not in flight there.
    fn detach(&mut self, id: &RequestId) {
        let request = self.open.get_mut(id);
        if let Some(upstream) = request.and_then(|request| request.upstream.take()) {
            self.owners.remove(&upstream);
        }
    }

    /// Returns the number of rounds in which the server asked for input.
    pub(super) fn n_rounds(&self, id: &RequestId) -> u32 {
        self.open.get(id).map_or(0, |request| request.n_rounds)
    }

    /// Stores the questions of the server under ids from `next_id`. Returns these ids, and the
    /// number of consecutive rounds without a question.
    pub(super) fn suspend(
        &mut self,
        id: &RequestId,
        asked: &InputQuestions<'_>,
        mut next_id: impl FnMut() -> RequestId,
    ) -> (Vec<RequestId>, u32) {
        self.detach(id);
        let Some(request) = self.open.get_mut(id) else {
            return (Vec::new(), 0);
        };
        request.n_rounds += 1;
        request.n_bare = if asked.requests.is_empty() {
            request.n_bare + 1
        } else {
            0
        };
        request.state = asked.state.map(Into::into);
        request.inputs = asked
            .requests
            .iter()
            .map(|asked| Input {
                id: next_id(),
                key: asked.key.clone(),
                method: asked.method,
                answer: None,
            })
            .collect();
        let ids = request.inputs.iter().map(|input| input.id.clone());
        let ids: Vec<RequestId> = ids.collect();
        for input in &ids {
            self.questions.insert(input.clone(), id.clone());
        }
        (ids, request.n_bare)
    }

    /// Stores an answer of the client, which is the JSON text of a result.
    pub(super) fn store_answer(&mut self, input: &RequestId, result: &str) -> AnswerEffect {
        let Some(owner) = self.questions.remove(input) else {
            return AnswerEffect::Unasked;
        };
        let Some(request) = self.open.get_mut(&owner) else {
            return AnswerEffect::Unasked;
        };
        for known in &mut request.inputs {
            if known.id == *input {
                known.answer = Some(result.into());
            }
        }
        if request.inputs.iter().all(|input| input.answer.is_some()) {
            AnswerEffect::Complete(owner)
        } else {
            AnswerEffect::Waiting
        }
    }

    /// Returns the request to send again under the id `upstream`. Returns `None` if it has ended.
    pub(super) fn retry(&mut self, id: &RequestId, upstream: RequestId) -> Option<Message> {
        let request = self.open.get_mut(id)?;
        let envelope = request.message.single()?;
        let mut params = request.message.params(envelope).unwrap_or("{}").to_owned();
        if !request.inputs.is_empty() {
            params = with_member(&params, "inputResponses", &request.input_responses());
        }
        match &request.state {
            Some(state) => params = with_member(&params, "requestState", state),
            // The state of an earlier round must not be sent again.
            None if members(&params).any(|(key, _)| key == "requestState") => {
                params = without_member(&params, "requestState");
            }
            None => {}
        }
        let message = request.message.with_params(&params).with_id(&upstream);
        request.upstream = Some(upstream.clone());
        request.inputs.clear();
        self.owners.insert(upstream, id.clone());
        Some(message)
    }
}
