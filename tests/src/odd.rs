//! A server with unusual but legal messages, and tools that misbehave on demand.
//!
//! Its messages are literal text, so that number forms, key order, explicit nulls and unknown
//! fields are exactly the ones that a test compares. Legacy sessions are served over stdio,
//! Streamable HTTP and HTTP+SSE; requests of revision 2026-07-28 (`modern`) over stdio and HTTP.

mod catalog;
mod http_server;
mod legacy_http;
mod modern;
mod outlet;
mod plain;
mod session;
mod settings;
mod skills;
mod stdio_server;
mod streams;
mod tasks;
mod tools;

pub use http_server::serve as serve_http;
pub use outlet::Framing;
pub use settings::{Era, Settings};
pub use stdio_server::serve as serve_stdio;
