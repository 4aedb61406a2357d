//! Tests of the proxy over fakes: one upstream, and several as one (`aggregator`).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aggregator;
mod approvals;
mod connections;
mod intents;
mod lists;
mod messages;
mod own_tools;
mod places;
mod recording;
mod requests;
mod rounds;
mod scene;
mod search;
mod session_app;
mod sessions;
mod traces;
