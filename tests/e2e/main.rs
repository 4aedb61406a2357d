//! End-to-end tests of the program: its records, and its state after a crash.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share fails the test that uses it"
)]

mod agents;
mod approvals;
mod auditing;
mod budget;
mod cold_start;
mod connecting;
mod control;
mod crash;
mod data;
mod data_at_rest;
mod diminishing_returns;
mod doctor;
mod escalation;
mod evaluation;
mod event_stream;
mod experiments;
mod external_predictors;
mod faults;
mod forbidding;
mod gating;
mod habits;
mod hostile;
mod importing_history;
mod invalid_calls;
mod isolation;
mod key_rotation;
mod learning;
mod limits;
mod list_lengths;
mod metamcp;
mod models;
mod operators;
mod overriding;
mod page;
mod pausing;
mod postgres;
mod profiles;
mod recommending;
mod recording;
mod replay;
mod replicas;
mod revoked_keys;
mod run_time_control;
mod safeguards;
mod scenarios;
mod sdk;
mod setting_up;
mod settings;
mod shared_data_dir;
#[expect(dead_code, reason = "the bench compares with replays")]
#[path = "../agents/lib.rs"]
mod simulation;
mod traces;
mod work_sessions;

use riglm_tests::fixture::{Server, Upstream};

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
