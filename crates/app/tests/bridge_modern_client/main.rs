//! A legacy server presented as a modern one: what it is sent, and what the client is told.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod calls;
mod connections;
mod exchanges;
mod input;
mod listening;
mod request_state;
mod scene;
