//! The files of versions 0.6 to 1.1.
//!
//! Below `storage`: `session/PROJECT/SESSION.json`, `message/SESSION/MESSAGE.json` and
//! `part/MESSAGE/PART.json`, each a small document. Identifiers sort by time.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::agent_of;
use super::parts::MessageOfParts;
use crate::transcripts::folders::UnreadableReason;
use crate::transcripts::lines::MAX_LINE_BYTES;
use crate::transcripts::reader::{ClientSummary, LineContent, io_reason, read_whole};
use crate::transcripts::session_log::SessionLog;

#[derive(Deserialize)]
struct Session<'a> {
    directory: Option<Cow<'a, str>>,
    #[serde(rename = "parentID")]
    parent: Option<Cow<'a, str>>,
}

/// Reads a session with its messages and their parts.
pub(in crate::transcripts) fn read_session(
    path: &Path,
    mut log: SessionLog<'_, '_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) -> Result<(), UnreadableReason> {
    let outcome = read_messages(path, &mut log, counts, report);
    log.end(counts);
    outcome
}

fn read_messages(
    path: &Path,
    log: &mut SessionLog<'_, '_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) -> Result<(), UnreadableReason> {
    let text = read_whole(path, MAX_LINE_BYTES)?;
    let mut n_bytes = text.len() as u64;
    let session: Session<'_> =
        serde_json::from_str(&text).map_err(|_| UnreadableReason::NotTranscript)?;
    LineContent::Understood.count(counts);
    if let Some(directory) = &session.directory {
        log.set_project(directory);
    }
    let agent = agent_of(session.parent.as_deref());
    let (Some(storage), Some(id)) = (path.ancestors().nth(3), path.file_stem()) else {
        return Err(UnreadableReason::NotTranscript);
    };
    for message in documents(&storage.join("message").join(id))? {
        let Some(text) = read_document(&message, counts) else {
            continue;
        };
        n_bytes += text.len() as u64;
        let id = message.file_stem().unwrap_or_default();
        let Some(mut of_parts) = MessageOfParts::read(&text, &id.to_string_lossy(), agent, log)
        else {
            LineContent::Malformed.count(counts);
            continue;
        };
        LineContent::Understood.count(counts);
        for part in documents(&storage.join("part").join(id))? {
            if let Some(text) = read_document(&part, counts) {
                n_bytes += text.len() as u64;
                let id = part.file_stem().unwrap_or_default().to_string_lossy();
                of_parts.read_part(&text, &id, log).count(counts);
            }
        }
        report(n_bytes);
    }
    Ok(())
}

/// Returns the documents of a folder, in order of their identifiers. A folder that does not exist
/// has none.
fn documents(folder: &Path) -> Result<Vec<PathBuf>, UnreadableReason> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_reason(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(io_reason)?.path();
        if path.extension() == Some(OsStr::new("json")) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads a document, and counts one that cannot be read.
fn read_document(path: &Path, counts: &mut ClientSummary) -> Option<String> {
    match read_whole(path, MAX_LINE_BYTES) {
        Ok(text) => Some(text),
        Err(UnreadableReason::TooLarge { .. }) => {
            counts.n_lines += 1;
            counts.skipped.too_long += 1;
            None
        }
        Err(_) => {
            LineContent::Malformed.count(counts);
            None
        }
    }
}
