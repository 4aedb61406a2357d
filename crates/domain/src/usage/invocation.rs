//! Tool calls. A call is opened when it is forwarded, and closed before its reply leaves.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::catalog::tool::ToolRef;
use crate::id::{ContextId, InvocationId, SessionId, ToolName, UpstreamName, WorkSessionId};
use crate::privacy::canonical::KeyedHash;
use crate::privacy::principal::Principal;

/// The outcome of a call or of another request.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    EnumString,
    VariantArray,
    Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Answered with a result.
    Ok,
    /// Answered with a JSON-RPC error or a result with `isError: true`, or the upstream failed.
    Error,
    /// Not answered within its deadline.
    Timeout,
    /// Cancelled by the client.
    Cancelled,
    /// In flight when the proxy died. It is not known whether the call was executed.
    Unknown,
    /// Not forwarded: a safeguard refused it, and the client received the reason.
    Refused,
    /// Answered with the recent result of the same call, without the upstream.
    Cached,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns whether the call reached its tool, as far as is known.
    #[must_use]
    pub fn reached_tool(self) -> bool {
        !matches!(self, Self::Refused | Self::Cached)
    }

    /// Returns whether the outcome says something about the tool. Cancelled and refused calls, and
    /// calls with an unknown end, say nothing about it.
    #[must_use]
    pub fn reflects_tool(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Unknown | Self::Refused)
    }

    /// Returns whether the client received a result that is no error.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Ok | Self::Cached)
    }

    /// Returns the name under which the outcome is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The state of a call: in flight, or ended with an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallState {
    /// The end of the call is not recorded.
    InFlight,
    /// The call ended with this outcome.
    Ended(Outcome),
}

/// The source from which the client knew the tool that it called.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ToolSource {
    /// The tool was in the list of the client, or no list was filtered.
    Shown,
    /// The tool was hidden from the list of the client, and an answer of riglm had named it before: of
    /// a search, with or beside its results, of a declared context, or of a recommendation.
    Found,
    /// The tool was hidden from the list of the client, which called it by its name.
    Hidden,
    /// No list of the upstream has such a tool.
    Unlisted,
}

impl ToolSource {
    /// Returns the name under which the source is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A tool call, as recorded when it is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// Identifies the call; made at receipt.
    pub id: InvocationId,
    /// The session of the call.
    pub session: SessionId,
    /// The principal of the client.
    pub principal: Principal,
    /// The upstream that it was forwarded to.
    pub upstream: UpstreamName,
    /// The tool, by the name that the upstream knows.
    pub tool: ToolName,
    /// Keyed hash of the canonical arguments.
    pub arguments_hash: KeyedHash,
    /// The arguments as JSON text without secrets, if storing them is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The time of receipt.
    pub started_at: Timestamp,
    /// Position among the calls of the session, from 1. A call that continues another call has the
    /// position of that call.
    pub sequence: u64,
    /// The source from which the client knew the tool.
    pub source: ToolSource,
    /// Size of the request message in bytes.
    pub request_bytes: u64,
    /// The first call of a multi-round call, if this call is a further round: the server asked for
    /// input, and the client sent the call again with its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<InvocationId>,
    /// The work session of the call, if one was derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_session: Option<WorkSessionId>,
    /// The epoch of the client's list, if lists have epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_epoch: Option<u64>,
    /// The context of the client at the time of the call. The row of the context holds the
    /// embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextId>,
}

/// The end of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvocationEnd {
    /// The call that ended.
    pub id: InvocationId,
    /// The outcome of the call.
    pub outcome: Outcome,
    /// The time that the upstream took, in microseconds: from the moment at which it was sent the
    /// call over an open connection, to the receipt of its answer. 0 for a call that was never
    /// sent.
    pub duration_us: u64,
    /// The time that the call waited before that, in microseconds: from its receipt, mostly until a
    /// connection is open or a process has started.
    #[serde(default)]
    pub wait_us: u64,
    /// Size of the answer message in bytes; 0 without an answer.
    pub response_bytes: u64,
    /// The result as JSON text without secrets, if storing it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// The numbers of tokens in the texts of a call, counted with a tokenizer.
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
    /// Bytes per token of JSON text, about the rate of the tokenizers of large models.
    const BYTES_PER_TOKEN: u64 = 4;

    /// Returns the estimated size of a message that was not counted.
    #[must_use]
    pub fn estimate(bytes: u64) -> Self {
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
        counted.map_or_else(|| Self::estimate(bytes), Self::Counted)
    }
}

/// A recorded tool call with its end, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationSummary {
    /// The call as it was forwarded.
    pub invocation: Invocation,
    /// Its end; `None` while it is in flight.
    pub end: Option<InvocationEnd>,
    /// The number of tokens in its arguments, if they were counted.
    pub request_tokens: Option<u64>,
    /// The number of tokens in its result, if they were counted.
    pub response_tokens: Option<u64>,
}

/// A recorded call as learners read it: principal, tool, time and session, without arguments and
/// result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// Identifies the call.
    pub id: InvocationId,
    /// The session of the call.
    pub session: SessionId,
    /// The work session of the call, if one was derived.
    pub work_session: Option<WorkSessionId>,
    /// The principal of the client.
    pub principal: Principal,
    /// The name of the client in its own words; `None` if its session is not recorded.
    pub client: Option<String>,
    /// The upstream of the tool.
    pub upstream: UpstreamName,
    /// The tool, by the name that the upstream knows.
    pub tool: ToolName,
    /// The time of receipt.
    pub started_at: Timestamp,
    /// The first call of a multi-round call, if this call is a further round.
    pub continues: Option<InvocationId>,
    /// The context of the call, if there was one.
    pub context: Option<ContextId>,
    /// The outcome; `None` while the call is in flight.
    pub outcome: Option<Outcome>,
}

/// The session key: calls with the same key are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SessionKey {
    /// The work session of the calls.
    Work(WorkSessionId),
    /// The connection of the calls, if no work session was derived.
    Connection(SessionId),
}

impl SessionKey {
    /// Returns the session key for this work session, if one was derived, or else for this
    /// connection.
    #[must_use]
    pub fn of(work_session: Option<WorkSessionId>, connection: SessionId) -> Self {
        work_session.map_or(Self::Connection(connection), Self::Work)
    }

    /// Returns the work session, if one was derived.
    #[must_use]
    pub fn work_session(self) -> Option<WorkSessionId> {
        match self {
            Self::Work(id) => Some(id),
            Self::Connection(_) => None,
        }
    }
}

impl PastCall {
    /// Returns the called tool.
    #[must_use]
    pub fn tool_ref(&self) -> ToolRef {
        ToolRef {
            upstream: self.upstream.clone(),
            tool: self.tool.clone(),
        }
    }

    /// Returns the session key of the call.
    #[must_use]
    pub fn session_key(&self) -> SessionKey {
        SessionKey::of(self.work_session, self.session)
    }
}

impl InvocationSummary {
    /// Returns the state of the call.
    #[must_use]
    pub fn state(&self) -> CallState {
        (self.end.as_ref()).map_or(CallState::InFlight, |end| CallState::Ended(end.outcome))
    }

    /// Returns the size of the request.
    #[must_use]
    pub fn request_size(&self) -> TokenSize {
        TokenSize::new(self.request_tokens, self.invocation.request_bytes)
    }

    /// Returns the size of the answer; 0 tokens without an answer.
    #[must_use]
    pub fn response_size(&self) -> TokenSize {
        let bytes = self.end.as_ref().map_or(0, |end| end.response_bytes);
        TokenSize::new(self.response_tokens, bytes)
    }
}
