//! Options of `eval`.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use riglm_evaluation::counterfactual::OutcomeMeasure;

use super::{LocationArgs, OutputFormat};

/// A command of `riglm eval`.
#[derive(Clone, Debug, Subcommand)]
pub enum EvalCommand {
    /// Measure the search on queries with known tools
    Search(EvalSearchArgs),
    /// Measure the recommender on queries with known tools, or on stored recommendations
    Recommend(EvalRecommendArgs),
    /// Measure how well work sessions are derived from the times of calls
    Sessions(EvalSessionsArgs),
    /// Estimate the costs of list sizes from sizes that were drawn at random
    Policies(EvalPoliciesArgs),
}

/// A measure of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasureChoice {
    /// Weighed cost, by the prices of `filtering.costs`
    Cost,
    /// Number of searches
    Searches,
    /// Share of the calls whose tool was in the list
    Coverage,
}

impl MeasureChoice {
    /// Returns the name of the measure.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        OutcomeMeasure::from(self).as_str()
    }

    /// Returns the number of decimals that tables show.
    #[must_use]
    pub fn n_decimals(self) -> usize {
        match self {
            Self::Cost => 0,
            Self::Searches | Self::Coverage => 3,
        }
    }
}

impl From<MeasureChoice> for OutcomeMeasure {
    fn from(choice: MeasureChoice) -> Self {
        match choice {
            MeasureChoice::Cost => Self::Cost,
            MeasureChoice::Searches => Self::Searches,
            MeasureChoice::Coverage => Self::Coverage,
        }
    }
}

/// The sessions that count as dependent on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterChoice {
    /// Sessions with the same draw
    Draw,
    /// Sessions of the same principal
    Principal,
}

/// A fusion of the parts of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FusionChoice {
    /// Sum of scores; the text score is the share of the query that the tool covers
    Score,
    /// Weighted reciprocal rank fusion
    Rrf,
}

/// The earlier queries that the search learns from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryChoice {
    /// No earlier queries
    None,
    /// All queries except those of the same task or session, with the tools used
    LeaveOneOut,
}

/// A query expansion for answers of low quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExpansionChoice {
    /// No expansion
    None,
    /// Synonyms
    Synonyms,
    /// Earlier queries, with --history leave-one-out
    History,
    /// Synonyms and earlier queries
    Both,
}

/// Options of `eval search`.
#[derive(Clone, Debug, Args)]
pub struct EvalSearchArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Tools: one JSON object per line with id, server, name, description and `input_schema`
    #[arg(long, value_name = "FILE")]
    pub catalog: PathBuf,
    /// Queries: one JSON object per line with qid, query and gold (ids of tools), optionally
    /// `gold_any` (groups of ids), task and session
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// Queries that no tool of the catalog can serve, in the format of --queries; measures how
    /// often the answers do not say so
    #[arg(long, value_name = "FILE")]
    pub foreign: Option<PathBuf>,
    /// Encoder: none, embedded, the name of a model, or the directory of a model [default: from the
    /// configuration]. A model is combined with the embedded encoder, as in the proxy
    #[arg(long, value_name = "none|embedded|NAME|DIR")]
    pub encoder: Option<String>,
    /// Use the model without the embedded encoder
    #[arg(long)]
    pub alone: bool,
    /// Fusion of the parts of a score [default: from the configuration]
    #[arg(long, value_enum)]
    pub fusion: Option<FusionChoice>,
    /// Earlier queries that the search learns from
    #[arg(long, value_enum, default_value = "none")]
    pub history: HistoryChoice,
    /// Query expansion for answers of low quality
    #[arg(long, value_enum, default_value = "none")]
    pub expansion: ExpansionChoice,
    /// Maximum number of queries, from the first one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `eval recommend`.
#[derive(Clone, Debug, Args)]
pub struct EvalRecommendArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Tools: one JSON object per line with id, server, name, description and `input_schema`
    /// [default: measure the stored recommendations]
    #[arg(long, value_name = "FILE", requires = "queries")]
    pub catalog: Option<PathBuf>,
    /// Queries: one JSON object per line with qid, query and gold (ids of tools), optionally
    /// `gold_any` (groups of ids), task and session
    #[arg(long, value_name = "FILE", requires = "catalog")]
    pub queries: Option<PathBuf>,
    /// Queries that no tool of the catalog can serve, in the format of --queries; measures how
    /// often the answers do not say so
    #[arg(long, value_name = "FILE", requires = "catalog")]
    pub foreign: Option<PathBuf>,
    /// Encoder: none, embedded, the name of a model, or the directory of a model [default: from the
    /// configuration]. A model is combined with the embedded encoder, as in the proxy
    #[arg(long, value_name = "none|embedded|NAME|DIR", requires = "catalog")]
    pub encoder: Option<String>,
    /// Use the model without the embedded encoder
    #[arg(long, requires = "catalog")]
    pub alone: bool,
    /// Fusion of the parts of a score [default: from the configuration]
    #[arg(long, value_enum, requires = "catalog")]
    pub fusion: Option<FusionChoice>,
    /// Earlier queries that the recommender learns from
    #[arg(long, value_enum, default_value = "none")]
    pub history: HistoryChoice,
    /// Query expansion for results of low quality [default: none, as in the proxy, which expands
    /// only the queries of searches]
    #[arg(long, value_enum, requires = "catalog")]
    pub expansion: Option<ExpansionChoice>,
    /// Maximum number of queries, from the first one, or of stored recommendations, the newest ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `eval sessions`.
#[derive(Clone, Debug, Args)]
pub struct EvalSessionsArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Sessions: one JSON object per line with client and calls, each with a time t; see `replay`
    #[arg(long, value_name = "FILE")]
    pub sessions: PathBuf,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `eval policies`.
#[derive(Clone, Debug, Args)]
pub struct EvalPoliciesArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Sessions from a file that --output wrote [default: the sessions of the database]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["days", "limit", "cluster"])]
    pub choices: Option<PathBuf>,
    /// Write the sessions to a new file, one JSON object per line
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The measure that is estimated
    #[arg(long, value_enum, default_value = "cost")]
    pub measure: MeasureChoice,
    /// Only sessions that started in the last DAYS days
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Maximum number of sessions, the newest ones
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Sessions that count as dependent on each other
    #[arg(long, value_enum, default_value = "draw")]
    pub cluster: ClusterChoice,
    /// Maximum weight of a session in clipped estimates [default: the square root of the number of
    /// sessions]
    #[arg(long, value_name = "WEIGHT")]
    pub clip: Option<f64>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}
