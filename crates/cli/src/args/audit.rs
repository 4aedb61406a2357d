//! The command line of `riglm audit`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use riglm_adapters_clients::transcripts::TranscriptClient;

use super::{HomeArgs, LocationArgs, OutputFormat};

/// Options of `audit`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Reads the files and transcripts of your MCP clients, and starts each of their servers once to list
its tools. Nothing leaves this machine.

Examples:
  riglm audit
  riglm audit --no-start             Do not start servers: tokens stay unknown
  riglm audit --html audit.html      Also write a page
  riglm audit --import-history       Also let the predictor learn from the calls")]
pub struct AuditArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Client whose servers and transcripts are read; may be given several times [default: all]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(
        TranscriptClient::ALL.iter().map(|client| client.as_str()))
        .try_map(|name| name.parse::<TranscriptClient>()))]
    pub client: Vec<TranscriptClient>,
    /// Days without a call after which a tool counts as unused
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub days: u32,
    /// Seconds that each server has to list its tools; a program may have to be downloaded first
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: u64,
    /// Do not start servers
    #[arg(long)]
    pub no_start: bool,
    /// Record the calls of the transcripts, so that the predictor knows them. Arguments are hashed or
    /// stored as those of recorded calls. Calls are recorded once, also if this is run again
    #[arg(long, conflicts_with = "no_start")]
    pub import_history: bool,
    /// Write a page with the figures to a new file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}
