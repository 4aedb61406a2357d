//! The journal: records in files, from where a task carries them to the database.
//!
//! Each run of the proxy has a directory `spool/<run>` with a file `lock`, which the process holds
//! locked as long as it lives, and with segments `000001.jsonl`, `000002.jsonl`, ... of one JSON
//! record a line. A record is safe from the death of the process as soon as its line is written:
//! the page cache outlives the process. A segment only grows, until it is followed by the next
//! one, and is deleted as a whole once its records are rows, about a second after its first line
//! while the database keeps up; so other processes can read along.
//! What a dead process left is replayed by the next one that takes its lock.

mod apply;
mod condition;
mod contents;
mod drainer;
mod flusher;
mod journal;
pub(crate) mod lock;
mod reader;
mod recovery;
mod segment;
mod writer;

pub(crate) use self::contents::{bytes, mentions, passed};
pub use self::journal::{SpoolJournal, SpoolOptions};
pub(crate) use self::lock::try_hold;
pub(crate) use self::recovery::import;
