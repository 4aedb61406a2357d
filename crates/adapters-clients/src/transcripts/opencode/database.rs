//! Reads the sessions of a database.
//!
//! One thread queries, and this one handles what it found, because the receiver of the events may
//! stay in its thread. Between them lies at most one batch.

mod connection;
mod layout;
mod queries;

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::agent_of;
use super::entries::read_entry;
use super::parts::MessageOfParts;
use crate::transcripts::event::CallingAgent;
use crate::transcripts::folders::{TranscriptFile, UnreadableReason};
use crate::transcripts::reader::{ClientSummary, LineContent, PROGRESS_BYTES, io_reason};
use crate::transcripts::session_log::{RunState, SessionLog};

/// Something that was found in the database. The messages of a session follow it, and the parts of a
/// message follow that.
#[derive(Debug)]
enum Record {
    Session(SessionRow),
    Message(Document),
    Part(Document),
    /// A message of version 2.
    Entry {
        kind: String,
        document: Document,
    },
}

#[derive(Debug)]
struct SessionRow {
    id: String,
    parent: Option<String>,
    directory: Option<String>,
}

#[derive(Debug)]
struct Document {
    id: String,
    /// `None` if it is too long.
    text: Option<String>,
}

/// Reads the sessions of a database. What was found before a failure counts.
pub(in crate::transcripts) fn read_database(
    file: &TranscriptFile,
    run: &mut RunState<'_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) -> Result<(), UnreadableReason> {
    let (sender, receiver) = sync_channel(1);
    thread::scope(|scope| {
        let queries = thread::Builder::new()
            .name("opencode-database".to_owned())
            .spawn_scoped(scope, move || queries::send_records(&file.path, sender))
            .map_err(io_reason)?;
        read_records(receiver, file, run, counts, report);
        match queries.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read_records(
    receiver: Receiver<Vec<Record>>,
    file: &TranscriptFile,
    run: &mut RunState<'_>,
    counts: &mut ClientSummary,
    report: &mut dyn FnMut(u64),
) {
    let mut n_bytes = 0;
    let mut next_report = PROGRESS_BYTES;
    let mut records = receiver.into_iter().flatten().peekable();
    while let Some(record) = records.next() {
        let Record::Session(session) = record else {
            continue;
        };
        let time = file.modified.unwrap_or_default();
        let mut log = SessionLog::new(&mut *run, file.client, &session.id, time);
        if let Some(directory) = &session.directory {
            log.set_project(directory);
        }
        LineContent::Understood.count(counts);
        let mut reading = SessionReading {
            agent: agent_of(session.parent.as_deref()),
            message: None,
        };
        let is_of_session = |record: &Record| !matches!(record, Record::Session(_));
        while let Some(record) = records.next_if(is_of_session) {
            n_bytes += reading.read(&record, &mut log, counts);
            if n_bytes >= next_report {
                report(n_bytes);
                next_report = n_bytes + PROGRESS_BYTES;
            }
        }
        log.end(counts);
    }
}

/// A session while it is read.
struct SessionReading {
    agent: CallingAgent,
    /// The message whose parts follow; `None` if it could not be read.
    message: Option<MessageOfParts>,
}

impl SessionReading {
    /// Reads a record, and returns its size.
    fn read(
        &mut self,
        record: &Record,
        log: &mut SessionLog<'_, '_>,
        counts: &mut ClientSummary,
    ) -> u64 {
        let document = match record {
            Record::Session(_) => return 0,
            Record::Message(document) | Record::Part(document) | Record::Entry { document, .. } => {
                document
            }
        };
        let Some(text) = &document.text else {
            counts.n_lines += 1;
            counts.skipped.too_long += 1;
            // The parts of a message that is too long can still be read.
            if matches!(record, Record::Message(_)) {
                self.message = MessageOfParts::read("{}", &document.id, self.agent, log);
            }
            return 0;
        };
        match record {
            Record::Session(_) => {}
            Record::Message(_) => {
                self.message = MessageOfParts::read(text, &document.id, self.agent, log);
                let content = match self.message {
                    Some(_) => LineContent::Understood,
                    None => LineContent::Malformed,
                };
                content.count(counts);
            }
            Record::Part(_) => {
                if let Some(message) = &mut self.message {
                    (message.read_part(text, &document.id, log)).count(counts);
                }
            }
            Record::Entry { kind, .. } => {
                read_entry(kind, &document.id, text, self.agent, log, counts);
            }
        }
        text.len() as u64
    }
}
