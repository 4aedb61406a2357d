//! Shared code of the end-to-end, protocol and architecture tests.
//!
//! Contains a raw client for the three transports of the protocol, transcripts for comparisons, a
//! server with unusual but legal messages that misbehaves on demand, and the control of processes.
//! Nothing here uses the code under test or an MCP library: a comparison is only useful with an
//! independent implementation of the protocol. A wait or a start that fails panics with the history
//! so far, and so fails the test.
#![expect(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "the library reports a failed expectation to the test that calls it by panicking"
)]

pub mod answers;
pub mod binary;
pub mod client;
pub mod envelope;
pub mod fixture;
pub mod header_value;
pub mod inbox;
pub mod kit;
pub mod messages;
pub mod metadata;
pub mod modern;
pub mod normalise;
pub mod odd;
pub mod plain_http;
pub mod process;
pub mod relay;
pub mod riglm;
pub mod script;
pub mod sse;
pub mod streams;
pub mod transcript;
