//! Options of `experiment`.

use clap::{Args, Subcommand};

use super::StoreArgs;

/// A command of `riglm experiment`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExperimentCommand {
    /// Show the results of experiments so far
    Status(ExperimentStatusArgs),
    /// Stop an experiment permanently, for all processes on the database
    Stop(ExperimentStopArgs),
}

/// Options of `experiment status`.
#[derive(Clone, Debug, Args)]
pub struct ExperimentStatusArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Name of the experiment [default: all]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// Options of `experiment stop`.
#[derive(Clone, Debug, Args)]
pub struct ExperimentStopArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Name of the experiment
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Reason, for the audit trail
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}
