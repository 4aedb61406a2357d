//! The entry point of `riglm`: it parses the arguments, runs the command, and sets the exit code.

use std::process::ExitCode;

use riglm_cli::compose::Extensions;

/// An allocator for memory that is often allocated on one thread and freed on another, as messages
/// are.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    riglm_cli::main_with(Extensions::default())
}
