//! Tests of the detection of eras, and of legacy clients with modern servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod detection;
mod passing;
mod rounds;
mod scene;
mod session;
mod subscriptions;
mod tasks;
