//! Options of `replay`.

use std::path::PathBuf;

use clap::Args;
use riglm_adapters_prediction::PredictorName;
use riglm_domain::evaluation::replay::SimulatedPolicy;

use super::Places;

/// Returns the predictor with this name.
fn predictor(name: &str) -> Result<PredictorName, String> {
    PredictorName::parse(name).ok_or_else(|| {
        let names: Vec<&str> = PredictorName::ALL.iter().map(|it| it.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Options of `replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// What is replayed.
    #[command(flatten)]
    pub input: ReplayInput,
    /// Hide what was asked for, as a proxy would not see it
    #[arg(long)]
    pub no_query: bool,
    /// Predict the sessions of each fifth of the tasks with what was learned from all other tasks
    #[arg(long)]
    pub unseen_tasks: bool,
    /// A predictor, as the configuration names them; may be given several times, and lists are made
    /// of what the first one predicts [default: mix, cooccurrence and frequency]
    #[arg(long, value_name = "NAME", value_parser = predictor)]
    pub predictor: Vec<PredictorName>,
    /// A list policy: live (what the proxy shows by default), static, static+inline, rerank, sticky, or
    /// conformal-N to cover N % of the calls; may be given several times [default: all, with 80, 90,
    /// 95 and 98 %]
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<SimulatedPolicy>,
    /// How many tools a list has at most, and lists of a fixed length have [default: as configured]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tools: Option<u32>,
    /// How many tools the answer of a search carries besides the found one [default: as configured]
    #[arg(long, value_name = "M")]
    pub inline: Option<u32>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// What is replayed.
#[derive(Clone, Debug, Args)]
pub struct ReplayInput {
    /// The tools: one JSON object with `tools`, a list of objects with name, description and
    /// server
    #[arg(long, value_name = "FILE", requires = "sessions")]
    pub catalog: Option<PathBuf>,
    /// The sessions in the order of their beginnings: one JSON object a line with `session_id`,
    /// client, `task_id`, query and calls (objects with tool and ok, optionally turn and t),
    /// optionally `started_at` and turns
    #[arg(long, value_name = "FILE", requires = "catalog")]
    pub sessions: Option<PathBuf>,
    /// Replay what was recorded in the database
    #[arg(long, conflicts_with_all = ["catalog", "sessions", "lenient"])]
    pub from_store: bool,
    /// Skip what cannot be read, and say how much that was
    #[arg(long)]
    pub lenient: bool,
}
