//! Eras of upstreams: finding them out, and legacy clients on modern servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod detection;
mod passing;
mod rounds;
mod scene;
mod session;
mod subscriptions;
