//! Reads transcripts one after the other.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;

use super::claude_code::ClaudeCodeFormat;
use super::cline;
use super::codex::CodexFormat;
use super::continue_dev;
use super::copilot::CopilotFormat;
use super::event::{TranscriptClient, TranscriptEvent};
use super::folders::{TranscriptFile, TranscriptListing, UnreadableFile, UnreadableReason};
use super::gemini_cli::{self, GeminiFormat};
use super::line_format::{LineContent, LineFormat, PROGRESS_BYTES, io_reason};
use super::lines::{LineReader, TextLine};
use super::opencode;
use super::qwen_code::QwenFormat;
use super::session_log::{RunState, SessionLog};
use super::summary::{ClientSummary, ReadOptions, ReadProgress, ReadSummary};

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
    let is_of_opencode = matches!(
        file.client,
        TranscriptClient::Opencode | TranscriptClient::Kilo
    );
    if is_of_opencode && opencode::is_database(&file.path) {
        return opencode::read_database(file, run, counts, report);
    }
    // Copilot CLI has a folder for each session, with files of equal names.
    let named = match file.client {
        TranscriptClient::Copilot => file.path.parent().and_then(Path::file_name),
        _ => file.path.file_stem(),
    };
    let stem = named.unwrap_or_default().to_string_lossy();
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
        TranscriptClient::Opencode | TranscriptClient::Kilo => {
            opencode::read_session(&file.path, log, counts, report)
        }
        TranscriptClient::QwenCode => read_lines(&file.path, QwenFormat, log, counts, report),
        TranscriptClient::Copilot => read_lines(&file.path, CopilotFormat, log, counts, report),
        TranscriptClient::Cline => cline::read_document(&file.path, log, counts),
        TranscriptClient::Continue => continue_dev::read_document(&file.path, log, counts),
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

#[cfg(test)]
mod tests;
