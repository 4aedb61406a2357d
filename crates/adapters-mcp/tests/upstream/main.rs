//! The upstream transports over real processes and real sockets.

mod detect;
mod guard;
mod http;
mod http_streams;
mod sse;
mod stdio;
mod support;
