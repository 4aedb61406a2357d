//! A tool call: opened when it is forwarded, closed before its reply leaves.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::id::{ContextId, InvocationId, SessionId, ToolName, UpstreamName, WorkSessionId};
use crate::principal::Principal;
use crate::tool::ToolRef;

/// How a call or another request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered with a result.
    Ok,
    /// Answered with a JSON-RPC error or a result with `isError: true`, or the upstream failed.
    Error,
    /// Not answered within its deadline.
    Timeout,
    /// Cancelled by the client.
    Cancelled,
    /// Open when the proxy died: whether it was executed is not known.
    Unknown,
    /// Not passed on: a safeguard held it back, and the client was told why.
    Refused,
    /// Answered with the result of the same call a moment before, without the upstream.
    Cached,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Error,
        Self::Timeout,
        Self::Cancelled,
        Self::Unknown,
        Self::Refused,
        Self::Cached,
    ];

    /// Returns whether the call was passed on to its tool, as far as is known.
    #[must_use]
    pub fn came_to_tool(self) -> bool {
        !matches!(self, Self::Refused | Self::Cached)
    }

    /// Returns whether the end says something of the tool: not of a call that was taken back, was held
    /// back, or whose end nobody saw.
    #[must_use]
    pub fn tells_of_tool(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Unknown | Self::Refused)
    }

    /// Returns whether the client was given a result that is no error.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Ok | Self::Cached)
    }

    /// Returns the name under which the outcome is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Cached => "cached",
        }
    }

    /// Returns the outcome with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a call is over, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallState {
    /// Its end is not recorded.
    InFlight,
    /// It ended so.
    Ended(Outcome),
}

/// How the client came to know the tool that it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// The tool was in the list that the client was shown, or no list was filtered.
    Shown,
    /// The tool was hidden from the client's list, and a search had named it before.
    Found,
    /// The tool was hidden from the client's list and called by its name.
    Hidden,
    /// No list of its upstream has such a tool.
    Unlisted,
}

impl ToolSource {
    /// Returns the name under which the source is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Found => "found",
            Self::Hidden => "hidden",
            Self::Unlisted => "unlisted",
        }
    }

    /// Returns the source with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Shown, Self::Found, Self::Hidden, Self::Unlisted]
            .into_iter()
            .find(|source| source.as_str() == name)
    }
}

/// A tool call as it is recorded when it is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// Identifies the call; made at receipt.
    pub id: InvocationId,
    /// The session that made it.
    pub session: SessionId,
    /// Who is calling.
    pub principal: Principal,
    /// The upstream that it was forwarded to.
    pub upstream: UpstreamName,
    /// The tool, by the name that the upstream knows.
    pub tool: ToolName,
    /// Keyed hash of the canonical arguments.
    pub arguments_hash: KeyedHash,
    /// The arguments as JSON text with secrets removed, when the operator asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// When the call was received.
    pub started_at: Timestamp,
    /// Position among the calls of its session, from 1. A call that continues another one has the
    /// position of that one.
    pub sequence: u64,
    /// How the client came to know the tool.
    pub source: ToolSource,
    /// Size of the request message in bytes.
    pub request_bytes: u64,
    /// The first call of the same logical call, of which this one is a further round: the server
    /// asked for input, and the client sent the call again with its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<InvocationId>,
    /// The work session that the call belongs to, where one was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_session: Option<WorkSessionId>,
    /// The epoch of the list that the client had, where lists have epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_epoch: Option<u64>,
    /// What the client was known to be doing; its row holds the embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextId>,
}

/// The end of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvocationEnd {
    /// The call that ended.
    pub id: InvocationId,
    /// How it ended.
    pub outcome: Outcome,
    /// How long the upstream took, in microseconds: from the moment at which it was handed the call
    /// over a connection that was up, to the receipt of its answer. 0 for a call that never came so
    /// far.
    pub duration_us: u64,
    /// How long the call waited before that, in microseconds: from its receipt, mostly for a
    /// connection to be made or a process to start.
    #[serde(default)]
    pub wait_us: u64,
    /// Size of the answer message in bytes; 0 without an answer.
    pub response_bytes: u64,
    /// The result as JSON text with secrets removed, when the operator asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// How many tokens the texts of a call have, counted with a tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTokens {
    /// The call.
    pub id: InvocationId,
    /// Tokens of the arguments.
    pub request: Option<u64>,
    /// Tokens of the result.
    pub response: Option<u64>,
}

/// The size of a text in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSize {
    /// Counted with a tokenizer.
    Counted(u64),
    /// Estimated from the size of the message in bytes.
    Estimated(u64),
}

impl TokenSize {
    /// Bytes for each token of JSON text, about what the tokenizers of large models have.
    const BYTES_PER_TOKEN: u64 = 4;

    /// Returns the size of a message that was not counted.
    #[must_use]
    pub fn estimated(bytes: u64) -> Self {
        Self::Estimated(bytes.div_ceil(Self::BYTES_PER_TOKEN))
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn tokens(self) -> u64 {
        match self {
            Self::Counted(tokens) | Self::Estimated(tokens) => tokens,
        }
    }

    fn new(counted: Option<u64>, bytes: u64) -> Self {
        counted.map_or_else(|| Self::estimated(bytes), Self::Counted)
    }
}

/// A recorded tool call with its end, when it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationSummary {
    /// The call as it was forwarded.
    pub invocation: Invocation,
    /// Its end; `None` while it is in flight.
    pub end: Option<InvocationEnd>,
    /// Tokens of its arguments, where they were counted.
    pub request_tokens: Option<u64>,
    /// Tokens of its result, where they were counted.
    pub response_tokens: Option<u64>,
}

/// What is learned from a recorded call: who called what, when and in which session, without what
/// was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// Identifies the call.
    pub id: InvocationId,
    /// The session that made it.
    pub session: SessionId,
    /// The work session that it belongs to, where one was derived.
    pub work_session: Option<WorkSessionId>,
    /// Who called.
    pub principal: Principal,
    /// The name that the client gives itself; `None` when its session is not recorded.
    pub client: Option<String>,
    /// The upstream of the tool.
    pub upstream: UpstreamName,
    /// The tool, by the name that the upstream knows.
    pub tool: ToolName,
    /// When the call was received.
    pub started_at: Timestamp,
    /// The first call of the same logical call, of which this one is a further round.
    pub continues: Option<InvocationId>,
    /// The text that said what the call was for, where one did.
    pub context: Option<ContextId>,
    /// How it ended; `None` while it is in flight.
    pub outcome: Option<Outcome>,
}

/// What the calls of one session have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CallSession {
    /// They belong to one work session.
    Work(WorkSessionId),
    /// No work session was derived, but they came over one connection.
    Connection(SessionId),
}

impl CallSession {
    /// Returns the session of what belongs to this work session, if one was derived, and came over
    /// this connection.
    #[must_use]
    pub fn of(work_session: Option<WorkSessionId>, connection: SessionId) -> Self {
        work_session.map_or(Self::Connection(connection), Self::Work)
    }

    /// Returns the work session, where one was derived.
    #[must_use]
    pub fn work_session(self) -> Option<WorkSessionId> {
        match self {
            Self::Work(id) => Some(id),
            Self::Connection(_) => None,
        }
    }
}

impl PastCall {
    /// Returns the tool that was called.
    #[must_use]
    pub fn tool_ref(&self) -> ToolRef {
        ToolRef {
            upstream: self.upstream.clone(),
            tool: self.tool.clone(),
        }
    }

    /// Returns the session that the call belongs to.
    #[must_use]
    pub fn belongs_to(&self) -> CallSession {
        CallSession::of(self.work_session, self.session)
    }
}

impl InvocationSummary {
    /// Returns whether the call is over, and how it ended.
    #[must_use]
    pub fn state(&self) -> CallState {
        (self.end.as_ref()).map_or(CallState::InFlight, |end| CallState::Ended(end.outcome))
    }

    /// Returns the size of what the client sent.
    #[must_use]
    pub fn request_size(&self) -> TokenSize {
        TokenSize::new(self.request_tokens, self.invocation.request_bytes)
    }

    /// Returns the size of the answer; 0 tokens without one.
    #[must_use]
    pub fn response_size(&self) -> TokenSize {
        let bytes = self.end.as_ref().map_or(0, |end| end.response_bytes);
        TokenSize::new(self.response_tokens, bytes)
    }
}
