//! The journal on disk: records are appended to files, and a task drains them into the database.
//!
//! Each run of the proxy has a directory `spool/<run>` with a file `lock`, which the process keeps
//! locked while it lives. It also has segments `000001.jsonl`, `000002.jsonl`, ... with one JSON
//! record per line. A record survives the death of the process as soon as its line is written,
//! because the page cache of the system outlives the process. A segment only grows, until the next
//! one follows. It is deleted as a whole once its records are rows, about a second after its first
//! line while the database keeps up. Other processes can therefore read it meanwhile. The next
//! process that takes the lock of a dead process replays its records.

mod apply;
mod condition;
mod contents;
mod drainer;
mod flusher;
mod journal;
mod line;
pub(crate) mod lock;
mod reader;
mod recovery;
mod segment;
mod write_queue;
mod writer;

pub(crate) use self::contents::{bytes, contains_any, wait_until_drained};
pub use self::journal::{SpoolJournal, SpoolOptions};
pub(crate) use self::lock::try_hold;
pub(crate) use self::recovery::import;
