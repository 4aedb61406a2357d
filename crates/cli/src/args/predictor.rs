//! Options of `riglm predictor`.

use clap::{ArgAction, Args, Subcommand};
use url::Url;

use super::{LocationArgs, OutputFormat};

/// A command of `riglm predictor`.
#[derive(Clone, Debug, Subcommand)]
pub enum PredictorCommand {
    /// Test whether a program or a server works as an external predictor
    Check(PredictorCheckArgs),
}

/// Options of `predictor check`.
#[derive(Clone, Debug, Args)]
pub struct PredictorCheckArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// URL of a server [default: the predictor of the configuration]
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<Url>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
    /// Program with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
