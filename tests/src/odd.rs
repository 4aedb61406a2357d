//! A server that says unusual but legal things, and misbehaves when a tool asks it to.
//!
//! It writes its messages as literal text, so that number forms, key order, explicit nulls and
//! unknown fields are exactly those that a test compares. The same sessions are served over
//! stdio, Streamable HTTP and HTTP+SSE.

mod catalog;
mod http_server;
mod legacy_http;
mod outlet;
mod session;
mod stdio_server;
mod streams;
mod tools;

pub use http_server::serve as serve_http;
pub use stdio_server::serve as serve_stdio;
