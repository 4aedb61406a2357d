//! The options and the counts of a run.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::event::TranscriptClient;
use super::folders::UnreadableFile;
use super::tool_names::ServerNames;

/// Options for reading transcripts.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Leaves out files that did not change since this time, and earlier calls and messages.
    pub since: Option<Timestamp>,
    /// The names of the MCP servers, as configured in the clients.
    pub servers: ServerNames,
    /// Arguments of more bytes are left out. 0 leaves out all.
    pub max_argument_bytes: usize,
    /// The number of characters of a user message that are kept. 0 leaves out the messages.
    pub max_message_chars: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            since: None,
            servers: ServerNames::default(),
            max_argument_bytes: 0,
            max_message_chars: 500,
        }
    }
}

/// The progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadProgress {
    /// The client of the file that is being read.
    pub client: TranscriptClient,
    /// The number of files that are done.
    pub n_files: usize,
    /// The number of bytes that are done. At most the size of the listing.
    pub n_bytes: u64,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub struct ReadSummary {
    /// The counts for each client that has files.
    pub clients: BTreeMap<TranscriptClient, ClientSummary>,
    /// The files and folders that could not be read, or not to their end.
    pub unreadable: Vec<UnreadableFile>,
}

/// The counts of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSummary {
    /// Files that were read.
    pub n_files: u64,
    /// Files that were left out because they did not change since the start of the time span.
    pub n_old_files: u64,
    /// Sessions with calls or messages.
    pub n_sessions: u64,
    /// Calls to tools of MCP servers.
    pub n_mcp_calls: u64,
    /// Calls to tools of the client.
    pub n_builtin_calls: u64,
    /// Calls that the client refused, so that no server got them: of unknown tools, or against a rule.
    pub n_refused_calls: u64,
    /// Messages of the user.
    pub n_messages: u64,
    /// Copies of lines, calls and messages that were counted before.
    pub n_repeated: u64,
    /// Lines that are not empty or, for clients that write documents, parts of them.
    pub n_lines: u64,
    /// Lines that were skipped.
    pub skipped: SkippedLines,
    /// The time of the first call or message. Clients remove old transcripts, so it is the time
    /// since which a tool without calls was not used.
    pub first_at: Option<Timestamp>,
    /// The time of the last call or message.
    pub last_at: Option<Timestamp>,
}

/// The numbers of lines that were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedLines {
    /// Lines of more than 16 MiB.
    pub too_long: u64,
    /// Lines that are not JSON, or whose fields have unexpected types.
    pub malformed: u64,
    /// Lines of an unknown type.
    pub unknown: u64,
    /// Last lines that were not complete, because the client is writing them.
    pub incomplete: u64,
}

impl SkippedLines {
    /// Returns the number of all skipped lines.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.too_long + self.malformed + self.unknown + self.incomplete
    }
}

impl ClientSummary {
    /// Adds the counts of other files.
    pub(super) fn add(&mut self, other: &Self) {
        self.n_files += other.n_files;
        self.n_old_files += other.n_old_files;
        self.n_sessions += other.n_sessions;
        self.n_mcp_calls += other.n_mcp_calls;
        self.n_builtin_calls += other.n_builtin_calls;
        self.n_refused_calls += other.n_refused_calls;
        self.n_messages += other.n_messages;
        self.n_repeated += other.n_repeated;
        self.n_lines += other.n_lines;
        self.skipped.too_long += other.skipped.too_long;
        self.skipped.malformed += other.skipped.malformed;
        self.skipped.unknown += other.skipped.unknown;
        self.skipped.incomplete += other.skipped.incomplete;
        self.first_at = self.first_at.into_iter().chain(other.first_at).min();
        self.last_at = self.last_at.max(other.last_at);
    }
}

impl ReadSummary {
    /// Returns the sum of the counts of all clients.
    #[must_use]
    pub fn total(&self) -> ClientSummary {
        let mut total = ClientSummary::default();
        for client in self.clients.values() {
            total.add(client);
        }
        total
    }
}
