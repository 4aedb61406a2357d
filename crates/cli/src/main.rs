//! The entry point of `riglm`: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use riglm_cli::args::Cli;
use riglm_cli::{commands, exit};

fn main() -> ExitCode {
    // Wrong usage ends the process here, with exit code 2.
    let cli = Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
