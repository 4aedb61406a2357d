//! Reads a transcript of each client, made by hand with every kind of line, and compares the events
//! with what the files say.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod claude_code;
mod codex;
mod database;
mod gemini_cli;
mod hostile;
mod opencode;
mod opencode_database;
mod scene;
