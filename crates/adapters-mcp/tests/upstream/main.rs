//! The upstream transports over real processes and real sockets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking, in their supporting functions too"
)]

mod credential_programs;
mod detect;
mod guard;
mod http;
mod http_modern;
mod http_streams;
mod invalid_messages;
mod oauth;
mod oauth_server;
mod pool;
mod sse;
mod stdio;
mod support;
