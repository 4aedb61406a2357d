//! The transcripts that clients keep of their sessions: which MCP tools were called, when, in which
//! session, with which outcome and duration.
//!
//! # Use
//!
//! [`TranscriptFolders`] finds the files without reading them, and [`read_transcripts`] reads them
//! one after the other and passes on one [`TranscriptEvent`] at a time. [`ToolUsage`] and
//! [`SessionCollector`] turn the events into figures and into sessions for a replay.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use riglm_adapters_clients::transcripts::{
//!     ReadOptions, ServerNames, ToolUsage, TranscriptEvent, TranscriptFolders, read_transcripts,
//! };
//!
//! let folders = TranscriptFolders::new(Path::new("/home/dev"), &|name| std::env::var_os(name));
//! let listing = folders.find();
//! let options = ReadOptions {
//!     servers: ServerNames::new(["github", "my_files"]),
//!     ..ReadOptions::default()
//! };
//! let mut usage = ToolUsage::default();
//! let mut count = |event| {
//!     if let TranscriptEvent::Call(call) = event {
//!         usage.add(&call);
//!     }
//! };
//! let summary = read_transcripts(&listing, &options, &mut count, &mut |_| {});
//! println!("{} calls to MCP tools", summary.total().n_mcp_calls);
//! for tool in usage.figures().tools {
//!     println!("{} {}: {} calls", tool.key.server, tool.key.tool, tool.n_calls);
//! }
//! ```
//!
//! # Limits
//!
//! The formats are private to the clients and change without notice. So every part of a line is
//! optional, unknown lines are counted and skipped, and one broken file never ends a run. The files
//! are large, and are read with bounded memory: line by line or, in a database, page by page, with a
//! limit for a line, for a document and for the calls that wait for their result. What grows with the
//! files is a hash of eight bytes for each call and message, and for each line of Claude Code, to
//! recognize those that a client copied into another file.
//!
//! A database is opened for reading only, and nothing is written beside it. A client that runs may go
//! on writing.

mod claude_code;
mod codex;
mod event;
mod folders;
mod gemini_cli;
mod lines;
mod opencode;
mod reader;
mod session_log;
mod sessions;
mod tool_key;
mod tool_names;
mod usage;

pub use event::{
    CallOutcome, CallingAgent, RecordedCall, TranscriptClient, TranscriptEvent, UserMessage,
};
pub use folders::{
    TranscriptFile, TranscriptFolders, TranscriptListing, UnreadableFile, UnreadableReason,
};
pub use reader::{
    ClientSummary, ReadOptions, ReadProgress, ReadSummary, SkippedLines, read_transcripts,
};
pub use sessions::{RecordedSession, SessionCall, SessionCollector, ToolEntry};
pub use tool_key::{ToolKey, comparable_name};
pub use tool_names::{QualifiedTool, ServerNames};
pub use usage::{ServerFigures, ToolFigures, ToolUsage, UsageFigures};
