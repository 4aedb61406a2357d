//! What the end-to-end, protocol and architecture suites share.
//!
//! A raw client for the three transports of the protocol, transcripts that can be compared,
//! a server that says unusual but legal things and misbehaves on demand, and the handling of
//! processes. Nothing here uses the code under test or an MCP library: an independent reading
//! of the protocol is what makes a comparison worth something. A failed wait or an impossible
//! start fails the test that asked for it, by a panic that shows what was seen so far.
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
