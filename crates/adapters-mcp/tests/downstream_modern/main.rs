//! The MCP port with revision 2026-07-28 over a real socket, with a scripted upstream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod cancellation;
mod names;
mod refusals;
mod scene;
mod sessions;
