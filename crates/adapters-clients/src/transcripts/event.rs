//! The contents of transcripts, in the same form for all clients.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A client whose transcripts can be read.
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
    IntoStaticStr,
    EnumString,
    VariantArray,
    Display,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum TranscriptClient {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    GeminiCli,
    /// opencode.
    Opencode,
}

impl TranscriptClient {
    /// All clients.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name for arguments and files, such as `claude-code`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the name of the product.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::GeminiCli => "Gemini CLI",
            Self::Opencode => "opencode",
        }
    }

    /// Returns the name that the client declares to servers, `clientInfo.name`.
    #[must_use]
    pub fn declared_name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex-mcp-client",
            Self::GeminiCli => "gemini-cli-mcp-client",
            Self::Opencode => "opencode",
        }
    }
}

/// The outcome of a call, as far as the transcript says.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CallOutcome {
    /// The tool answered.
    Success,
    /// The tool or the client reported an error.
    Error,
    /// The user or a rule of the client refused or stopped the call.
    Cancelled,
    /// The transcript has no result of the call.
    Unknown,
}

/// The agent that made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallingAgent {
    /// The agent that the user talks to.
    Main,
    /// An agent that another agent started.
    Subagent,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The client.
    pub client: TranscriptClient,
    /// The session, by the identifier of the client. It is unique for each client.
    pub session: Arc<str>,
    /// The working directory or, where the client does not record it, the client's name for it.
    pub project: Option<Arc<str>>,
    /// The identifier of the call. It may be unique only within its session.
    pub call_id: String,
    /// A value that copies of the call in other sessions have in common, and no other call of the
    /// client has. It is the same in every run.
    pub identity: u64,
    /// The MCP server, by its configured name if that is known; `None` for a tool of the client.
    pub server: Option<String>,
    /// The name of the tool without its server. Clients replace characters that their model does
    /// not take, so it can differ from the name that the server lists.
    pub tool: String,
    /// The time of the call. If the transcript has none, the time of the line before it.
    pub started_at: Timestamp,
    /// The time to the result, if recorded. For some clients it includes the time in which the user
    /// was asked for permission.
    pub duration: Option<Duration>,
    /// The outcome.
    pub outcome: CallOutcome,
    /// The agent that made the call.
    pub agent: CallingAgent,
    /// The arguments as JSON text, if they were asked for and are not too long.
    pub arguments: Option<String>,
}

impl RecordedCall {
    /// Returns whether the tool belongs to the client and not to an MCP server.
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        self.server.is_none()
    }
}

/// A text that the user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserMessage {
    /// The client.
    pub client: TranscriptClient,
    /// The session, as in its calls.
    pub session: Arc<str>,
    /// The project, as in the calls of the session.
    pub project: Option<Arc<str>>,
    /// The time of the message.
    pub sent_at: Timestamp,
    /// The beginning of the text.
    pub text: String,
}

/// A part of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscriptEvent {
    /// A call, after its end or at the end of its file.
    Call(RecordedCall),
    /// A text of the user.
    UserMessage(UserMessage),
}
