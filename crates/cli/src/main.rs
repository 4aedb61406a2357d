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
    // Wrong usage ends the process here, with exit code 2.
    let cli = Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
