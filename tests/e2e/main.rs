//! The program end to end: what it records, and what is left after it was killed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share fails the test that uses it"
)]

mod agents;
mod approvals;
mod budget;
mod circles;
mod cold_start;
mod control;
mod crash;
mod data;
mod data_at_rest;
mod evaluation;
mod experiments;
mod faults;
mod following;
mod forbidding;
mod gating;
mod hostile;
mod key_rotation;
mod ladder;
mod learning;
mod limits;
mod list_lengths;
mod misnamed;
mod models;
mod operators;
mod overriding;
mod postgres;
mod profiles;
mod recommending;
mod recording;
mod replay;
mod replicas;
mod revoked;
mod safeguards;
mod scenarios;
mod settings;
mod setups;
#[expect(dead_code, reason = "the bench compares with replays")]
#[path = "../agents/lib.rs"]
mod simulation;
mod traces;
mod work_sessions;

use riglm_tests::fixture::{Server, Upstream};

/// Returns the unusual server.
fn odd() -> Server {
    Server::Odd(env!("CARGO_BIN_EXE_odd-server").into())
}

/// Returns the command of the unusual server over stdio.
fn odd_over_stdio() -> Upstream {
    Upstream::of_command(vec![
        env!("CARGO_BIN_EXE_odd-server").into(),
        "stdio".into(),
    ])
}
