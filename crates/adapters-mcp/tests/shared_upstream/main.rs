//! Tests of several sessions over one connection of a scripted upstream: the messages to the
//! server, and to each session.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod handshake;
mod life;
mod messages;
mod scene;
mod subscriptions;
mod through_the_proxy;
