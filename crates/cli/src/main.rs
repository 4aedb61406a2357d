//! The entry point of `riglm`: it parses the arguments, runs the command, and sets the exit code.

use std::process::ExitCode;

use clap::Parser;
use riglm_cli::args::Cli;
use riglm_cli::{commands, exit};

/// An allocator for memory that is often allocated on one thread and freed on another, as messages
/// are.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse().and_then(Cli::validate) {
        Ok(cli) => cli,
        Err(error) => return exit::refuse(&error),
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
