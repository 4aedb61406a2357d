//! Several sessions over one connection of a scripted upstream: what the server sees, and what each
//! session is told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod handshake;
mod life;
mod messages;
mod scene;
mod subscriptions;
mod through_the_proxy;
