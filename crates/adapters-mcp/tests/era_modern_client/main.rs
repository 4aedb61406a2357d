//! Tests of a legacy server behind the bridge for a modern client: the messages to both sides.

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
mod tasks;
mod through_the_proxy;
