//! The MCP port as of revision 2026-07-28 over a real socket, with an upstream that a test lets
//! speak.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod cancellation;
mod names;
mod refusals;
mod scene;
mod sessions;
