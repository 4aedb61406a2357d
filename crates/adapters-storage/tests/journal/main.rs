//! The journal keeps records through crashes, load and a database that does not answer.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share fails the test that uses it"
)]

mod condition;
mod erasure;
mod killed;
mod load;
mod recovery;
mod scene;
