//! Several upstreams as one server: use cases over upstreams that do what a test tells them.

#![expect(
    clippy::unwrap_used,
    reason = "what these tests are made of cannot fail without the test failing"
)]

mod changes;
mod health;
mod lists;
mod modern;
mod observed;
mod own_tools;
mod requests;
mod scene;
mod search;
mod slow;
