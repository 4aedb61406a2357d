//! The events of one file in order of time, with calls and their results put together.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::event::{
    CallOutcome, CallingAgent, RecordedCall, TranscriptClient, TranscriptEvent, UserMessage,
};
use super::reader::{ClientSummary, ReadOptions};
use super::tool_names::QualifiedTool;

/// The most events that wait because a call before them has no result yet. A client rarely runs
/// more than a few calls at the same time, but the calls of a subagent lie between a call and its
/// result.
const MAX_WAITING: usize = 4096;
/// The most bytes of texts and arguments that wait.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The state over all files of a run.
pub(super) struct RunState<'a> {
    pub(super) options: &'a ReadOptions,
    pub(super) on_event: &'a mut dyn FnMut(TranscriptEvent),
    /// Hashes of the calls and lines so far: eight bytes for each.
    pub(super) known: HashSet<u64>,
    pub(super) sessions: HashSet<u64>,
}

/// The start of a call.
pub(super) struct CallStart<'a> {
    pub(super) call_id: &'a str,
    pub(super) tool: QualifiedTool,
    pub(super) at: Timestamp,
    /// The arguments as JSON text.
    pub(super) arguments: Option<&'a str>,
    pub(super) agent: CallingAgent,
    /// A value that copies of the call have in common, and no other call of the client has.
    pub(super) identity: u64,
}

/// The end of a call.
pub(super) struct CallEnd {
    pub(super) outcome: CallOutcome,
    /// The time of the result.
    pub(super) at: Option<Timestamp>,
    /// The duration, where the client records it.
    pub(super) duration: Option<Duration>,
}

/// The file that is being read.
pub(super) struct SessionLog<'a, 'b> {
    run: &'a mut RunState<'b>,
    client: TranscriptClient,
    /// The counts of events. Lines are counted by the reader.
    counts: ClientSummary,
    session: Arc<str>,
    project: Option<Arc<str>>,
    time: Timestamp,
    waiting: VecDeque<Waiting>,
    /// The number of events that left the queue.
    n_passed: usize,
    waiting_bytes: usize,
    /// The places of the calls in the queue.
    places: HashMap<String, usize>,
    /// Hashes of the identifiers of all calls of the file.
    call_ids: HashSet<u64>,
}

struct Waiting {
    event: TranscriptEvent,
    is_open: bool,
}

impl<'a, 'b> SessionLog<'a, 'b> {
    /// Starts a file. `session` and `time` count until a line has better ones.
    pub(super) fn new(
        run: &'a mut RunState<'b>,
        client: TranscriptClient,
        session: &str,
        time: Timestamp,
    ) -> Self {
        Self {
            run,
            client,
            counts: ClientSummary::default(),
            session: session.into(),
            project: None,
            time,
            waiting: VecDeque::new(),
            n_passed: 0,
            waiting_bytes: 0,
            places: HashMap::new(),
            call_ids: HashSet::new(),
        }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    pub(super) fn set_session(&mut self, session: &str) {
        if *self.session != *session {
            self.session = session.into();
        }
    }

    pub(super) fn set_project(&mut self, project: &str) {
        if self.project.as_deref() != Some(project) {
            self.project = Some(project.into());
        }
    }

    /// Splits the name of a tool into server and tool.
    pub(super) fn split(&self, name: &str) -> QualifiedTool {
        self.run.options.servers.split(self.client, name)
    }

    /// Splits the path of a tool that a script calls.
    pub(super) fn split_path(&self, path: &str) -> QualifiedTool {
        self.run.options.servers.split_path(path)
    }

    pub(super) fn split_namespace(&self, namespace: &str, name: &str) -> QualifiedTool {
        self.run.options.servers.split_namespace(namespace, name)
    }

    /// Reads the time of a line. Without one, it is the time of the line before.
    pub(super) fn time_of(&mut self, text: Option<&str>) -> Timestamp {
        if let Some(time) = text.and_then(|text| text.parse().ok()) {
            self.time = time;
        }
        self.time
    }

    /// Returns a time, or the time of the line before.
    pub(super) fn time_or_last(&mut self, time: Option<Timestamp>) -> Timestamp {
        self.time = time.unwrap_or(self.time);
        self.time
    }

    /// Returns whether a line with this identifier was read before, in this or another file.
    pub(super) fn is_repeated_line(&mut self, uuid: &str) -> bool {
        let is_new = (self.run.known).insert(identity(&["line", self.client.as_str(), uuid]));
        if !is_new {
            self.counts.n_repeated += 1;
        }
        !is_new
    }

    /// Returns whether the file has a call with this identifier.
    pub(super) fn has_call(&self, call_id: &str) -> bool {
        self.call_ids.contains(&identity(&[call_id]))
    }

    /// Adds a call whose end is not known yet. A call that was read before is left out.
    pub(super) fn start(&mut self, start: CallStart<'_>) {
        self.call_ids.insert(identity(&[start.call_id]));
        if !self.run.known.insert(start.identity) {
            self.counts.n_repeated += 1;
            return;
        }
        let limit = self.run.options.max_argument_bytes;
        let call = RecordedCall {
            client: self.client,
            session: Arc::clone(&self.session),
            project: self.project.clone(),
            call_id: start.call_id.to_owned(),
            identity: start.identity,
            server: start.tool.server,
            tool: start.tool.tool,
            started_at: start.at,
            duration: None,
            outcome: CallOutcome::Unknown,
            agent: start.agent,
            arguments: (start.arguments)
                .filter(|text| text.len() <= limit)
                .map(str::to_owned),
        };
        let place = self.n_passed + self.waiting.len();
        self.places.insert(start.call_id.to_owned(), place);
        self.push(Waiting {
            event: TranscriptEvent::Call(call),
            is_open: true,
        });
    }

    /// Sets the server and tool of a call, where a later line has their exact names.
    pub(super) fn set_tool(&mut self, call_id: &str, tool: QualifiedTool) {
        if let Some((call, _)) = self.call_mut(call_id) {
            call.server = tool.server;
            call.tool = tool.tool;
        }
    }

    /// Returns whether a call to an MCP server with this identifier waits for its end.
    pub(super) fn is_open_mcp_call(&mut self, call_id: &str) -> bool {
        (self.call_mut(call_id)).is_some_and(|(call, is_open)| *is_open && call.server.is_some())
    }

    /// Ends a call. The first end counts, and an end without a call is ignored.
    pub(super) fn finish(&mut self, call_id: &str, end: &CallEnd) {
        if let Some((call, is_open)) = self.call_mut(call_id)
            && *is_open
        {
            *is_open = false;
            close(call, end);
            self.pass_closed();
        }
    }

    /// Ends all calls that wait.
    pub(super) fn finish_all(&mut self, end: &CallEnd) {
        for waiting in &mut self.waiting {
            if let TranscriptEvent::Call(call) = &mut waiting.event
                && waiting.is_open
            {
                waiting.is_open = false;
                close(call, end);
            }
        }
        self.pass_closed();
    }

    /// Adds a text of the user. `key` is equal for copies of the message.
    pub(super) fn message(&mut self, text: &str, sent_at: Timestamp, key: &str) {
        let limit = self.run.options.max_message_chars;
        let text = text.trim();
        if text.is_empty() || limit == 0 {
            return;
        }
        let identity = identity(&["message", self.client.as_str(), key]);
        if !self.run.known.insert(identity) {
            self.counts.n_repeated += 1;
            return;
        }
        let end = text.char_indices().nth(limit).map(|(place, _)| place);
        let message = UserMessage {
            client: self.client,
            session: Arc::clone(&self.session),
            project: self.project.clone(),
            sent_at,
            text: text[..end.unwrap_or(text.len())].to_owned(),
        };
        self.push(Waiting {
            event: TranscriptEvent::UserMessage(message),
            is_open: false,
        });
    }

    /// Passes on all events. Calls without a result keep their unknown outcome.
    pub(super) fn end(mut self, counts: &mut ClientSummary) {
        while self.pass_first() {}
        counts.add(&self.counts);
    }

    fn call_mut(&mut self, call_id: &str) -> Option<(&mut RecordedCall, &mut bool)> {
        let place = self.places.get(call_id)?.checked_sub(self.n_passed)?;
        let waiting = self.waiting.get_mut(place)?;
        match &mut waiting.event {
            TranscriptEvent::Call(call) => Some((call, &mut waiting.is_open)),
            TranscriptEvent::UserMessage(_) => None,
        }
    }

    fn push(&mut self, waiting: Waiting) {
        self.waiting_bytes += size_of_event(&waiting.event);
        self.waiting.push_back(waiting);
        while self.waiting.len() > MAX_WAITING || self.waiting_bytes > MAX_WAITING_BYTES {
            self.pass_first();
        }
        self.pass_closed();
    }

    fn pass_closed(&mut self) {
        while self.waiting.front().is_some_and(|first| !first.is_open) {
            self.pass_first();
        }
    }

    fn pass_first(&mut self) -> bool {
        let Some(first) = self.waiting.pop_front() else {
            return false;
        };
        self.waiting_bytes -= size_of_event(&first.event);
        let place = self.n_passed;
        self.n_passed += 1;
        let (session, at) = match &first.event {
            TranscriptEvent::Call(call) => {
                if self.places.get(&call.call_id) == Some(&place) {
                    self.places.remove(&call.call_id);
                }
                (&call.session, call.started_at)
            }
            TranscriptEvent::UserMessage(message) => (&message.session, message.sent_at),
        };
        if self.run.options.since.is_some_and(|since| at < since) {
            return true;
        }
        if (self.run.sessions).insert(identity(&[self.client.as_str(), session])) {
            self.counts.n_sessions += 1;
        }
        self.counts.first_at = Some(self.counts.first_at.map_or(at, |first| first.min(at)));
        self.counts.last_at = self.counts.last_at.max(Some(at));
        match &first.event {
            TranscriptEvent::Call(call) if call.is_builtin() => self.counts.n_builtin_calls += 1,
            TranscriptEvent::Call(_) => self.counts.n_mcp_calls += 1,
            TranscriptEvent::UserMessage(_) => self.counts.n_messages += 1,
        }
        (self.run.on_event)(first.event);
        true
    }
}

fn close(call: &mut RecordedCall, end: &CallEnd) {
    call.outcome = end.outcome;
    let between = end.at.and_then(|at| {
        let between = at.duration_since(call.started_at);
        Duration::try_from(between).ok()
    });
    call.duration = end.duration.or(between);
}

/// Returns the bytes of an event that depend on the transcript.
fn size_of_event(event: &TranscriptEvent) -> usize {
    match event {
        TranscriptEvent::Call(call) => {
            let arguments = call.arguments.as_deref().unwrap_or_default();
            call.call_id.len() + call.tool.len() + arguments.len()
        }
        TranscriptEvent::UserMessage(message) => message.text.len(),
    }
}

/// Returns a hash of texts. It is the same in every run and in every version, because imported calls
/// are recognized by it.
pub(super) fn identity(parts: &[&str]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest: [u8; 32] = digest.finalize().into();
    let (first, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests;
