//! The form that the formats of all clients have in common.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::folders::UnreadableReason;
use super::session_log::SessionLog;
use super::summary::ClientSummary;

/// The largest document that is read as a whole, in bytes. Files with lines have no limit.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// The number of bytes between two reports of progress.
pub(super) const PROGRESS_BYTES: u64 = 1 << 20;

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
