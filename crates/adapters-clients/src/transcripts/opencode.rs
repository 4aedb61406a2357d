//! The transcripts of opencode. It kept them in three ways:
//!
//! | Versions | Place | Contents |
//! | --- | --- | --- |
//! | 0.6 to 1.1 (September 2025 to January 2026) | `storage` | One small JSON document for each session, message and part |
//! | 1.2 to 1.18 (since February 2026) | `opencode.db`, tables `session`, `message` and `part` | The same documents in the columns `data`, without their identifiers |
//! | 2 (since September 2026) | the same database, tables `session_v2` and `session_message` | One document for each message, with its calls |
//!
//! Version 1.2 copied the files into the database, version 2 copied the first tables into the later
//! ones, and both left the originals. Channels have databases of their own (`opencode-CHANNEL.db`).
//! A previous stage of version 2 had `session_message` beside `session`. So everything that is there
//! is read, and calls and messages are recognized by what the copies keep: the identifier and time of
//! a call, the identifier of a message.
//!
//! MCP tools are called `SERVER_TOOL`. A script that the tool `execute` runs calls them as
//! `SERVER.TOOL`: that is the default since version 2, and was an experiment of version 1 from July
//! 2026 on.
//!
//! The sources of opencode (`anomalyco/opencode`, before `sst/opencode`) have the first tables in
//! `packages/opencode/migration/20260127222353_familiar_lady_ursula`, the copy of the files in
//! `packages/opencode/src/storage/json-migration.ts`, the messages of version 2 in
//! `packages/schema/src/session-message.ts`, and their copy in
//! `packages/core/src/database/v1-migration.ts`.

mod calls;
mod database;
mod entries;
mod files;
mod parts;

use std::path::Path;

use jiff::Timestamp;

use super::event::CallingAgent;

pub(super) use database::read_database;
pub(super) use files::read_session;

/// A message of a session.
#[derive(Clone, Copy, Debug)]
struct Origin {
    at: Timestamp,
    agent: CallingAgent,
}

/// Returns whether a file in the folder of opencode is a database of sessions.
pub(super) fn is_database(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("opencode") && name.ends_with(".db")
}

/// Returns the agent of a session. Sessions of subagents have a parent.
fn agent_of(parent: Option<&str>) -> CallingAgent {
    match parent {
        Some(_) => CallingAgent::Subagent,
        None => CallingAgent::Main,
    }
}

/// Returns the time that is this number of milliseconds after 1970.
fn moment(milliseconds: f64) -> Option<Timestamp> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast of a float saturates, and the time is checked"
    )]
    Timestamp::from_millisecond(milliseconds as i64).ok()
}
