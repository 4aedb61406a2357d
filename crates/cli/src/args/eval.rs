//! Options of `eval`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Places;

/// What to evaluate.
#[derive(Clone, Debug, Subcommand)]
pub enum EvalCommand {
    /// Measure the search on queries of which the right tools are known
    Search(EvalSearchArgs),
    /// Measure the recommender, on queries of which the right tools are known or on what was stored
    Recommend(EvalRecommendArgs),
    /// Measure how well calls are parted into work sessions, by their times alone
    Sessions(EvalSessionsArgs),
}

/// How the parts of a score are fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FusionChoice {
    /// Scores are added, words by how much of the query they cover
    Score,
    /// Weighted reciprocal ranks are added
    Rrf,
}

/// What is known of earlier queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistoryChoice {
    /// Nothing
    None,
    /// What all queries but those of the same task or session used
    LeaveOneOut,
}

/// Which other words are tried where the answer would be graded low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExpansionChoice {
    /// None
    None,
    /// Words that mean the same
    Synonyms,
    /// Earlier queries, with --history leave-one-out
    History,
    /// Both
    Both,
}

/// Options of `eval search`.
#[derive(Clone, Debug, Args)]
pub struct EvalSearchArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// The tools: one JSON object a line with id, server, name, description and `input_schema`
    #[arg(long, value_name = "FILE")]
    pub catalog: PathBuf,
    /// The queries: one JSON object a line with qid, query and gold (ids of tools), optionally
    /// `gold_any` (groups of ids), task and session
    #[arg(long, value_name = "FILE")]
    pub queries: PathBuf,
    /// Queries that no tool of the catalog is for, in the form of --queries: measures how often the
    /// answers do not say so
    #[arg(long, value_name = "FILE")]
    pub foreign: Option<PathBuf>,
    /// The encoder: none, embedded, the name of a model, or a directory with one [default: that of
    /// the configuration]. A model has the embedded one beside it, as in the proxy
    #[arg(long, value_name = "none|embedded|NAME|DIR")]
    pub encoder: Option<String>,
    /// Use the model without the embedded encoder beside it
    #[arg(long)]
    pub alone: bool,
    /// How the parts of a score are fused [default: that of the configuration]
    #[arg(long, value_enum)]
    pub fusion: Option<FusionChoice>,
    /// What is known of earlier queries
    #[arg(long, value_enum, default_value = "none")]
    pub history: HistoryChoice,
    /// Which other words are tried where the answer would be graded low
    #[arg(long, value_enum, default_value = "none")]
    pub expansion: ExpansionChoice,
    /// The most queries; the first ones are taken
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `eval recommend`.
#[derive(Clone, Debug, Args)]
pub struct EvalRecommendArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// The tools: one JSON object a line with id, server, name, description and `input_schema`.
    /// Without it, what was recommended and stored is measured
    #[arg(long, value_name = "FILE", requires = "queries")]
    pub catalog: Option<PathBuf>,
    /// The queries: one JSON object a line with qid, query and gold (ids of tools), optionally
    /// `gold_any` (groups of ids), task and session
    #[arg(long, value_name = "FILE", requires = "catalog")]
    pub queries: Option<PathBuf>,
    /// Queries that no tool of the catalog is for, in the form of --queries: measures how often the
    /// answers do not say so
    #[arg(long, value_name = "FILE", requires = "catalog")]
    pub foreign: Option<PathBuf>,
    /// The encoder: none, embedded, the name of a model, or a directory with one [default: that of
    /// the configuration]. A model has the embedded one beside it, as in the proxy
    #[arg(long, value_name = "none|embedded|NAME|DIR", requires = "catalog")]
    pub encoder: Option<String>,
    /// Use the model without the embedded encoder beside it
    #[arg(long, requires = "catalog")]
    pub alone: bool,
    /// How the parts of a score are fused [default: that of the configuration]
    #[arg(long, value_enum, requires = "catalog")]
    pub fusion: Option<FusionChoice>,
    /// What is known of earlier queries
    #[arg(long, value_enum, default_value = "none")]
    pub history: HistoryChoice,
    /// Which other words are tried where what was found would be graded low [default: none, as in the
    /// proxy, which tries other words for searches alone]
    #[arg(long, value_enum, requires = "catalog")]
    pub expansion: Option<ExpansionChoice>,
    /// The most queries, of which the first ones are taken, or recommendations, of which the newest
    /// ones are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `eval sessions`.
#[derive(Clone, Debug, Args)]
pub struct EvalSessionsArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// The sessions: one JSON object a line with client and calls, which have a time t; see
    /// `replay`
    #[arg(long, value_name = "FILE")]
    pub sessions: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}
