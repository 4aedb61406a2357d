//! `riglm eval`: quality of the search, of recommendations, of derived work sessions and of list
//! sizes, on the user's own data.

mod dataset;
mod policies;
mod recommend;
mod work_sessions;

use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_domain::num;
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{ExpansionRules, RankFusion};
use riglm_evaluation::RankingMetrics;
use riglm_evaluation::labelled_queries::{
    EvaluationOptions, EvaluationReport, GradeCounts, QueryShare, Recommending, evaluate,
};
use serde_json::{Map, Value, json};

use super::empty_store::EmptyOutput;
use super::table::{Column, table};
use crate::args::{
    EvalCommand, EvalSearchArgs, ExpansionChoice, FusionChoice, HistoryChoice, OutputFormat,
};
use crate::compose::{EncoderUse, encoders_from};
use crate::config::Config;
use crate::output::{note, print};

/// The number of ranked tools: the largest rank that a metric needs.
const N_PLACES: usize = 20;

impl EvalCommand {
    pub(super) fn places(&self) -> &crate::args::LocationArgs {
        match self {
            Self::Search(arguments) => &arguments.places,
            Self::Recommend(arguments) => &arguments.places,
            Self::Sessions(arguments) => &arguments.places,
            Self::Policies(arguments) => &arguments.places,
        }
    }
}

/// Returns the output for an unused database; `None` for commands that do not read it.
pub(super) fn empty(command: &EvalCommand) -> Option<EmptyOutput> {
    match command {
        EvalCommand::Recommend(arguments) if arguments.catalog.is_none() => {
            let json = Value::Object(recommend::empty_results());
            Some(EmptyOutput::of(arguments.format, &json))
        }
        EvalCommand::Policies(arguments) if arguments.choices.is_none() => {
            let json = policies::empty(arguments);
            Some(EmptyOutput::of(arguments.format, &json))
        }
        EvalCommand::Recommend(_)
        | EvalCommand::Search(_)
        | EvalCommand::Sessions(_)
        | EvalCommand::Policies(_) => None,
    }
}

pub(super) async fn run(config: &Config, command: &EvalCommand) -> anyhow::Result<()> {
    match command {
        EvalCommand::Search(arguments) => search(config, arguments).await,
        EvalCommand::Recommend(arguments) => recommend::run(config, arguments).await,
        EvalCommand::Sessions(arguments) => work_sessions::run(config, arguments),
        EvalCommand::Policies(arguments) => policies::run(config, arguments).await,
    }
}

struct LabelledEvaluation<'a> {
    catalog: &'a Path,
    queries: &'a Path,
    foreign: Option<&'a PathBuf>,
    limit: Option<u32>,
    encoder: Option<&'a String>,
    alone: bool,
    fusion: Option<FusionChoice>,
    history: HistoryChoice,
    recommending: Option<Recommending>,
    expansion: ExpansionChoice,
}

impl LabelledEvaluation<'_> {
    /// Returns the number of tools, and the report.
    async fn run_evaluation(self, config: &Config) -> anyhow::Result<(usize, EvaluationReport)> {
        let mut catalog = dataset::read(self.catalog, self.queries, self.limit)?;
        if let Some(foreign) = self.foreign {
            catalog.foreign = dataset::texts(foreign, self.limit)?;
        }
        let rules = config.search.rules()?;
        let mut ranking = rules.ranking;
        match self.fusion {
            None => {}
            Some(FusionChoice::Score) => ranking.rank_fusion = None,
            Some(FusionChoice::Rrf) => {
                ranking.rank_fusion = ranking.rank_fusion.or_else(|| Some(RankFusion::default()));
            }
        }
        let options = EvaluationOptions {
            ranking,
            synonyms: rules.synonyms,
            quality: rules.quality,
            min_fit: rules.min_fit,
            with_history: self.history == HistoryChoice::LeaveOneOut,
            limit: match self.recommending {
                None => N_PLACES,
                // The recommender takes its candidates from the whole ranking.
                Some(_) => catalog.tools.len(),
            },
            expansion: expansion(self.expansion),
            recommending: self.recommending,
        };
        let beside = if self.alone {
            EncoderUse::Alone
        } else {
            EncoderUse::WithEmbedded
        };
        let mut section = config.search.encoder.clone();
        if let Some(model) = self.encoder {
            section.model.clone_from(model);
        }
        let encoders = encoders_from(&section, &config.data_dir, beside)?;
        let report = evaluate(&catalog, &encoders, &options, &report_progress).await?;
        Ok((catalog.tools.len(), report))
    }
}

async fn search(config: &Config, arguments: &EvalSearchArgs) -> anyhow::Result<()> {
    let labelled = LabelledEvaluation {
        catalog: &arguments.catalog,
        queries: &arguments.queries,
        foreign: arguments.foreign.as_ref(),
        limit: arguments.limit,
        encoder: arguments.encoder.as_ref(),
        alone: arguments.alone,
        fusion: arguments.fusion,
        history: arguments.history,
        recommending: None,
        expansion: arguments.expansion,
    };
    let (n_tools, report) = labelled.run_evaluation(config).await?;
    let mut summary = summary(&arguments.catalog, n_tools, &report);
    add_expansion(&mut summary, Some(arguments.expansion), &report);
    print_summary(arguments.format, summary, grade_rows(&report))
}

/// Adds the numbers of expanded queries, if expansion is on.
fn add_expansion(
    summary: &mut Map<String, Value>,
    choice: Option<ExpansionChoice>,
    report: &EvaluationReport,
) {
    if choice.is_some_and(|choice| choice != ExpansionChoice::None) {
        let (n_tried, n_used) = report.expanded;
        summary.insert("expansion_tried".into(), json!(n_tried));
        summary.insert("expansion_used".into(), json!(n_used));
    }
}

fn expansion(choice: ExpansionChoice) -> Option<ExpansionRules> {
    let all = ExpansionRules::default();
    match choice {
        ExpansionChoice::None => None,
        ExpansionChoice::Synonyms => Some(ExpansionRules {
            history: false,
            ..all
        }),
        ExpansionChoice::History => Some(ExpansionRules {
            synonyms: false,
            ..all
        }),
        ExpansionChoice::Both => Some(all),
    }
}

/// Prints the results; `more` has rows for the table only.
fn print_summary(
    format: OutputFormat,
    summary: Map<String, Value>,
    more: Vec<Vec<String>>,
) -> anyhow::Result<()> {
    if format.is_json() {
        print(&Value::Object(summary).to_string())?;
        return Ok(());
    }
    let rows = summary
        .iter()
        .map(|(key, value)| vec![key.clone(), value_text(value)])
        .chain(more);
    let columns = [Column::Text("MEASURE"), Column::Number("VALUE")];
    print(&table(&columns, rows.collect()))?;
    Ok(())
}

/// Reports progress on standard error, every 500 steps.
fn report_progress(what: &str, done: usize, all: usize) {
    const EVERY: usize = 500;
    if done.is_multiple_of(EVERY) || (done == all && all > EVERY) {
        note(&format!("{what}: {done} of {all}"));
    }
}

fn summary(catalog: &Path, n_tools: usize, report: &EvaluationReport) -> Map<String, Value> {
    let metrics = &report.metrics;
    let dataset = catalog
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default();
    let mut summary = Map::new();
    summary.insert("dataset".into(), json!(dataset.to_string_lossy()));
    summary.insert("tools".into(), json!(n_tools));
    summary.insert("queries".into(), json!(metrics.n_queries()));
    summary.insert("hit@1".into(), share(metrics.hit_rate(1)));
    for k in RankingMetrics::RECALL_AT {
        summary.insert(format!("r@{k}"), share(metrics.recall(k)));
    }
    summary.insert("mrr".into(), share(metrics.mrr()));
    summary.insert("ndcg@10".into(), share(metrics.ndcg_10()));
    summary.insert("all@15".into(), share(metrics.complete_at_15()));
    summary.insert("false_no_match".into(), ratio(report.false_no_match));
    if report.missed_no_match.whole > 0 {
        summary.insert("missed_no_match".into(), ratio(report.missed_no_match));
        summary.insert("missed_uncertain".into(), ratio(report.missed_uncertain));
    }
    for (name, times) in [
        ("rank", &report.rank_times),
        ("encode", &report.encode_times),
    ] {
        summary.insert(format!("{name}_ms_p50"), milliseconds(times, 50));
        summary.insert(format!("{name}_ms_p95"), milliseconds(times, 95));
    }
    summary
}

/// Returns for each grade the number of answers, and the number of those with a right tool among
/// the first five. They show whether the thresholds of the grades fit.
fn grade_rows(report: &EvaluationReport) -> Vec<Vec<String>> {
    let row = |(grade, of): (&SearchQuality, &GradeCounts)| {
        let text = format!("{} of {} found", of.n_found, of.n_answers);
        vec![format!("grade {}", grade.as_str()), text]
    };
    report.grades.iter().map(row).collect()
}

/// Rounds a share from 0 to 1 to four decimals.
fn share(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

fn ratio(of: QueryShare) -> Value {
    share(num::ratio(of.part, of.whole))
}

/// Returns a percentile of ascending times (nearest rank), in milliseconds; 0 without any.
fn milliseconds(times: &[Duration], percent: usize) -> Value {
    let rank = (times.len() * percent).div_ceil(100).max(1);
    let time = times.get(rank - 1).copied().unwrap_or_default();
    json!((time.as_secs_f64() * 1e6).round() / 1e3)
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => super::table::foreign_cell(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_times() {
        let times: Vec<Duration> = (1..=20).map(Duration::from_millis).collect();
        assert_eq!(milliseconds(&times, 50), json!(10.0));
        assert_eq!(milliseconds(&times, 95), json!(19.0));
        assert_eq!(milliseconds(&times[..1], 95), json!(1.0));
        assert_eq!(milliseconds(&[], 95), json!(0.0));
    }
}
