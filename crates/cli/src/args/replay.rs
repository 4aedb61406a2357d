//! Options of `replay`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use riglm_domain::prediction::PredictorName;
use riglm_evaluation::simulation::SimulatedPolicy;

use super::{LocationArgs, OutputFormat};

/// Options of `replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The source of the sessions.
    #[command(flatten)]
    pub input: ReplayInput,
    /// Hide the queries, as in a proxy whose clients send none
    #[arg(long)]
    pub no_query: bool,
    /// Compare texts also by vectors: none, embedded, the name of a model, or the directory of a
    /// model. A model is combined with the embedded encoder, as in the proxy [default: words alone]
    #[arg(
        long,
        value_name = "none|embedded|NAME|DIR",
        conflicts_with = "no_query"
    )]
    pub encoder: Option<String>,
    /// Predict the sessions of each fifth of the tasks with a model that learned all other tasks
    #[arg(long)]
    pub unseen_tasks: bool,
    /// Predictor, named as in the configuration; may be given several times. Lists are made from
    /// the predictions of the first one; `external` is the external predictor of the configuration
    /// [default: mix, cooccurrence and frequency]
    #[arg(long, value_name = "NAME", value_parser = predictor)]
    pub predictor: Vec<PredictorToReplay>,
    /// List policy: live (the default of the proxy), static, static+inline, rerank, sticky, or
    /// conformal-N to cover N % of the calls; may be given several times [default: all, with 80,
    /// 90, 95 and 98 %]
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<SimulatedPolicy>,
    /// Maximum number of tools in a list, and the size of lists of fixed length [default: from the
    /// configuration]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tools: Option<u32>,
    /// Number of predicted tools in the answer of a search, in addition to the found tool [default:
    /// from the configuration]
    #[arg(long, value_name = "M")]
    pub inline: Option<u32>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// The name of the external predictor of the configuration.
const EXTERNAL: &str = "external";

/// The source of the sessions: files or the database.
#[derive(Clone, Debug, Args)]
pub struct ReplayInput {
    /// Tools: one JSON object with `tools`, a list of objects with name, description and server
    #[arg(long, value_name = "FILE", requires = "sessions")]
    pub catalog: Option<PathBuf>,
    /// Sessions in the order of their start: one JSON object per line with `session_id`, client,
    /// `task_id`, query and calls (objects with tool and ok, optionally turn and t), optionally
    /// `started_at` and turns
    #[arg(long, value_name = "FILE", requires = "catalog")]
    pub sessions: Option<PathBuf>,
    /// Replay the sessions recorded in the database
    #[arg(long, conflicts_with_all = ["catalog", "sessions", "lenient"])]
    pub from_store: bool,
    /// Skip unreadable sessions and calls, and print their number
    #[arg(long)]
    pub lenient: bool,
}

/// A predictor to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictorToReplay {
    /// A predictor of riglm.
    Named(PredictorName),
    /// The external predictor of the configuration.
    External,
}

/// No predictor has the name.
#[derive(Clone, Debug, thiserror::Error)]
#[error("expected one of {0}")]
struct UnknownPredictor(String);

fn predictor(name: &str) -> Result<PredictorToReplay, UnknownPredictor> {
    if name == EXTERNAL {
        return Ok(PredictorToReplay::External);
    }
    let parsed = name.parse().map(PredictorToReplay::Named);
    parsed.map_err(|_| {
        let names = PredictorName::ALL.iter().map(|it| it.as_str());
        let names: Vec<&str> = names.chain([EXTERNAL]).collect();
        UnknownPredictor(names.join(", "))
    })
}
