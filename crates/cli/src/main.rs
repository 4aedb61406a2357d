//! The entry point of `riglm`: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use riglm_cli::args::Cli;
use riglm_cli::{commands, exit};

/// Messages are allocated on one thread and freed on another all the time, which this allocator
/// is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse().and_then(Cli::checked) {
        Ok(cli) => cli,
        Err(error) => return exit::refuse(&error),
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
