//! Options of `experiment`.

use clap::{Args, Subcommand};

use super::StoreArgs;

/// What to do with experiments.
#[derive(Clone, Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Show what came of the experiments of the configuration so far
    Status(ExperimentStatusArgs),
    /// Stop an experiment for ever, for all processes that share the database
    Stop(ExperimentStopArgs),
}

/// Options of `experiment status`.
#[derive(Clone, Debug, Args)]
pub struct ExperimentStatusArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The name of the experiment; otherwise all are shown
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Options of `experiment stop`.
#[derive(Clone, Debug, Args)]
pub struct ExperimentStopArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The name of the experiment
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}
