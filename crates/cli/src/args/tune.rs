//! Options of `tune`.

use clap::Args;

use super::StoreArgs;

/// Options of `tune`.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Show the result without changing anything
    #[arg(long, conflicts_with_all = ["rollback", "history"])]
    pub dry_run: bool,
    /// Return to the previous version, or to VERSION
    #[arg(long, value_name = "VERSION", num_args = 0..=1, conflicts_with = "history",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub rollback: Option<Option<u64>>,
    /// Show all versions of the weights instead
    #[arg(long)]
    pub history: bool,
}
