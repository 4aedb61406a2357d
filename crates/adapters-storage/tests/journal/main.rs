//! The journal keeps its records through crashes, load and outages of the database.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share fails the test that uses it"
)]

mod condition;
mod contract;
mod erasure;
mod killed;
mod load;
mod recovery;
mod scene;
