//! Reads transcripts one after the other.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use ruzstd::decoding::StreamingDecoder;

use super::claude_code::ClaudeCodeFormat;
use super::codex::CodexFormat;
use super::event::{TranscriptClient, TranscriptEvent};
use super::folders::{TranscriptFile, TranscriptListing, UnreadableFile, UnreadableReason};
use super::gemini_cli::{self, GeminiFormat};
use super::lines::{LineReader, TextLine};
use super::opencode;
use super::session_log::{RunState, SessionLog};
use super::tool_names::ServerNames;

/// The largest document that is read as a whole, in bytes. Files with lines have no limit.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// The number of bytes between two reports of progress.
pub(super) const PROGRESS_BYTES: u64 = 1 << 20;

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

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineContent {
    Understood,
    Unknown,
    Malformed,
}

impl LineContent {
    /// Returns the content of a line with two parts. One that cannot be read is enough.
    pub(super) fn or(self, other: Self) -> Self {
        if self == Self::Malformed { self } else { other }
    }

    /// Counts the line.
    pub(super) fn count(self, counts: &mut ClientSummary) {
        counts.n_lines += 1;
        match self {
            Self::Understood => {}
            Self::Unknown => counts.skipped.unknown += 1,
            Self::Malformed => counts.skipped.malformed += 1,
        }
    }
}

/// The format of the lines of a client.
pub(super) trait LineFormat {
    /// Reads a line and adds its events. Never fails: a line that cannot be read is only counted.
    fn read_line(&mut self, line: &str, log: &mut SessionLog<'_, '_>) -> LineContent;
}

/// Reads transcripts. The events of a session come in order of time; the files come in the order of
/// the listing, so sessions with several files, such as those of subagents, are not in order.
///
/// A file that is written meanwhile is read to the size that it has when it is opened.
pub fn read_transcripts(
    listing: &TranscriptListing,
    options: &ReadOptions,
    on_event: &mut dyn FnMut(TranscriptEvent),
    on_progress: &mut dyn FnMut(ReadProgress),
) -> ReadSummary {
    let mut summary = ReadSummary {
        clients: BTreeMap::new(),
        unreadable: listing.unreadable.clone(),
    };
    let mut run = RunState {
        options,
        on_event,
        known: HashSet::new(),
        sessions: HashSet::new(),
    };
    let mut n_bytes = 0;
    for (n_files, file) in listing.files.iter().enumerate() {
        let counts = summary.clients.entry(file.client).or_default();
        let is_old = options
            .since
            .is_some_and(|since| file.modified < Some(since));
        if is_old && file.modified.is_some() {
            counts.n_old_files += 1;
        } else {
            counts.n_files += 1;
            let mut report = |done: u64| {
                on_progress(ReadProgress {
                    client: file.client,
                    n_files,
                    n_bytes: n_bytes + done.min(file.size),
                });
            };
            if let Err(reason) = read_file(file, &mut run, counts, &mut report) {
                summary.unreadable.push(UnreadableFile {
                    client: file.client,
                    path: file.path.clone(),
                    reason,
                });
            }
        }
        n_bytes += file.size;
        on_progress(ReadProgress {
            client: file.client,
            n_files: n_files + 1,
            n_bytes,
        });
    }
    summary
}

fn read_file(
    file: &TranscriptFile,
    run: &mut RunState<'_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) -> Result<(), UnreadableReason> {
    if file.client == TranscriptClient::Opencode && opencode::is_database(&file.path) {
        return opencode::read_database(file, run, counts, report);
    }
    let stem = file.path.file_stem().unwrap_or_default().to_string_lossy();
    let time = file.modified.unwrap_or_default();
    let is_document = file.path.extension().is_some_and(|it| it == "json");
    let log = SessionLog::new(run, file.client, &stem, time);
    match file.client {
        TranscriptClient::ClaudeCode => {
            read_lines(&file.path, ClaudeCodeFormat, log, counts, report)
        }
        TranscriptClient::Codex => {
            read_lines(&file.path, CodexFormat::default(), log, counts, report)
        }
        TranscriptClient::GeminiCli if is_document => {
            gemini_cli::read_document(&file.path, log, counts)
        }
        TranscriptClient::GeminiCli => read_lines(
            &file.path,
            GeminiFormat::of(&file.path),
            log,
            counts,
            report,
        ),
        TranscriptClient::Opencode => opencode::read_session(&file.path, log, counts, report),
    }
}

fn read_lines(
    path: &Path,
    format: impl LineFormat,
    log: SessionLog<'_, '_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) -> Result<(), UnreadableReason> {
    let file = File::open(path).map_err(io_reason)?;
    let size = file.metadata().map_err(io_reason)?.len();
    let stream = file.take(size);
    let outcome = if path.extension().is_some_and(|it| it == "zst") {
        match StreamingDecoder::new(BufReader::new(stream)) {
            Ok(stream) => read_stream(stream, format, log, counts, report),
            Err(error) => Err(io::Error::other(error)),
        }
    } else {
        read_stream(stream, format, log, counts, report)
    };
    outcome.map_err(io_reason)
}

/// Reads the lines of a stream. The events so far are passed on when it fails.
pub(super) fn read_stream<R: Read>(
    stream: R,
    mut format: impl LineFormat,
    mut log: SessionLog<'_, '_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut lines = LineReader::new(stream);
    let mut next_report = PROGRESS_BYTES;
    let outcome = loop {
        match lines.next() {
            Ok(Some(TextLine::Whole(line))) => format.read_line(&line, &mut log).count(counts),
            Ok(Some(TextLine::Last(line))) => match format.read_line(&line, &mut log) {
                LineContent::Malformed => {
                    counts.n_lines += 1;
                    counts.skipped.incomplete += 1;
                }
                content => content.count(counts),
            },
            Ok(Some(TextLine::TooLong)) => {
                counts.n_lines += 1;
                counts.skipped.too_long += 1;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        if lines.n_bytes() >= next_report {
            report(lines.n_bytes());
            next_report = lines.n_bytes() + PROGRESS_BYTES;
        }
    };
    log.end(counts);
    outcome
}

/// Reads a JSON document as a whole.
pub(super) fn read_whole(path: &Path, limit: u64) -> Result<String, UnreadableReason> {
    let file = File::open(path).map_err(io_reason)?;
    let size = file.metadata().map_err(io_reason)?.len();
    if size > limit {
        return Err(UnreadableReason::TooLarge { bytes: size, limit });
    }
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes).map_err(io_reason)?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

pub(super) fn io_reason(error: io::Error) -> UnreadableReason {
    UnreadableReason::Io(Arc::new(error))
}

#[cfg(test)]
mod tests;
