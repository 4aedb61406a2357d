//! A tool call: opened when it is forwarded, closed before its reply leaves.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::id::{InvocationId, SessionId, ToolName, UpstreamName};
use crate::principal::Principal;

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
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::Error,
        Self::Timeout,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// Returns the name under which the outcome is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
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

/// How the client came to know the tool that it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// The tool was in the list that the client was shown, or no list was filtered.
    Shown,
    /// The tool was hidden from the client's list and called by its name.
    Hidden,
}

impl ToolSource {
    /// Returns the name under which the source is stored and printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Hidden => "hidden",
        }
    }

    /// Returns the source with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Shown, Self::Hidden]
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
    /// Position among the calls of its session, from 1.
    pub sequence: u64,
    /// How the client came to know the tool.
    pub source: ToolSource,
    /// Size of the request message in bytes.
    pub request_bytes: u64,
}

/// The end of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvocationEnd {
    /// The call that ended.
    pub id: InvocationId,
    /// How it ended.
    pub outcome: Outcome,
    /// Time from receipt of the request to receipt of the answer, in microseconds.
    pub duration_us: u64,
    /// Size of the answer message in bytes; 0 without an answer.
    pub response_bytes: u64,
    /// The result as JSON text with secrets removed, when the operator asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// A recorded tool call with its end, when it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationSummary {
    /// The call as it was forwarded.
    pub invocation: Invocation,
    /// Its end; `None` while it is in flight.
    pub end: Option<InvocationEnd>,
}
