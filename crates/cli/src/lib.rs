//! The program `riglm`: arguments, configuration, composition, subcommands.
//!
//! This is the only crate that knows every other one. It is a library so that tests can use its
//! parts; `main.rs` calls [`commands::run`] and turns what comes back into an exit code.

mod announcement;
pub mod args;
pub mod commands;
pub mod compose;
pub mod config;
pub mod demo;
pub mod exit;
pub mod output;
pub mod telemetry;
