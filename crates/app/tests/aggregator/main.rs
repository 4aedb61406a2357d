//! Tests of several upstreams as one server, with scripted upstreams.

#![expect(
    clippy::unwrap_used,
    reason = "what these tests are made of cannot fail without the test failing"
)]

mod changes;
mod health;
mod lists;
mod modern;
mod observed_events;
mod own_tools;
mod requests;
mod scene;
mod search;
mod slow;
