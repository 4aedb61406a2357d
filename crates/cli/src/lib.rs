//! The program `riglm`: arguments, configuration, composition, subcommands.
//!
//! This is the only crate that depends on every other one. It is a library so that tests can use
//! its parts, and so that other programs can be riglm with adapters of their own: [`main_with`] is
//! the whole program.

mod announcement;
pub mod args;
pub mod commands;
pub mod compose;
pub mod config;
pub mod demo;
pub mod exit;
pub mod output;
pub mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use crate::compose::Extensions;

/// Parses the arguments of the process, runs the command, and returns the exit code. `extensions`
/// replace configured parts of the proxy of `serve`.
///
/// # Examples
///
/// A riglm with a predictor of its own, whose other parts follow the configuration:
///
/// ```no_run
/// use std::process::ExitCode;
/// use std::sync::Arc;
///
/// use riglm_cli::compose::{Extensions, PredictorFactory};
/// use riglm_ports::predictor::Learner;
///
/// // In place of one that is implemented here: a predictor of riglm.
/// fn my_predictor() -> Box<dyn Learner> {
///     riglm_adapters_prediction::predictor_from(&Default::default())
/// }
///
/// fn main() -> ExitCode {
///     let predictor = PredictorFactory {
///         model: "my predictor, version 1".into(),
///         make: Arc::new(my_predictor),
///     };
///     riglm_cli::main_with(Extensions {
///         predictor: Some(predictor),
///         ..Extensions::default()
///     })
/// }
/// ```
#[must_use]
pub fn main_with(extensions: Extensions) -> ExitCode {
    riglm_adapters_mcp::upstream::huge_pages::turn_off();
    let cli = match Cli::try_parse().and_then(Cli::validate) {
        Ok(cli) => cli,
        Err(error) => return exit::refuse(&error),
    };
    match commands::run(cli, extensions) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
