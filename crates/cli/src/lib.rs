//! The program `riglm`: arguments, configuration, composition, subcommands.
//!
//! This is the only crate that depends on every other one. It is a library so that tests can use
//! its parts; `main.rs` calls [`commands::run`] and converts the result to an exit code.

mod announcement;
pub mod args;
pub mod commands;
pub mod compose;
pub mod config;
pub mod demo;
pub mod exit;
pub mod output;
pub mod telemetry;
