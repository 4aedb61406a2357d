//! The options of `tune`.

use clap::Args;

use super::StoreArgs;

/// Options of `tune`.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Say what would be changed, and change nothing
    #[arg(long, conflicts_with_all = ["rollback", "history"])]
    pub dry_run: bool,
    /// Go back to the version before the one that is used, or to this one
    #[arg(long, value_name = "VERSION", num_args = 0..=1, conflicts_with = "history",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub rollback: Option<Option<u64>>,
    /// Show all versions of the weights instead
    #[arg(long)]
    pub history: bool,
}
