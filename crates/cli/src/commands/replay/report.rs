//! The output of a replay, for people and for scripts.

use std::time::Duration;

use riglm_evaluation::replay::{PredictorReport, ReplayReport};
use riglm_evaluation::simulation::ListMetrics;
use riglm_evaluation::{CatalogShare, PredictionMetrics};
use serde_json::{Map, Value, json};

use crate::commands::table::{Column, table};

#[derive(Debug)]
pub(super) struct ReplayResult {
    /// The name of the replayed data.
    pub(super) dataset: String,
    /// The number of tools in the catalog.
    pub(super) n_tools: usize,
    pub(super) report: ReplayReport,
    /// The elapsed time, including reading.
    pub(super) elapsed: Duration,
}

impl ReplayResult {
    /// Returns the replay as JSON. Scripts rely on this format.
    pub(super) fn as_json(&self) -> Value {
        let report = &self.report;
        let predictors = report.predictors.iter();
        let predictors: Map<String, Value> = predictors
            .map(|of| (of.name.into(), of_predictor(of).into()))
            .collect();
        let policies = report.policies.iter();
        let policies: Map<String, Value> = policies
            .map(|(policy, metrics)| (policy.to_string(), policy_json(metrics)))
            .collect();
        json!({
            "dataset": self.dataset,
            "calls": report.n_calls,
            "first_uses": report.n_first_uses,
            "catalog": self.n_tools,
            "predictors": predictors,
            "policies": policies,
            "best_fixed": report.best_fixed.map(|best| json!({
                "max_tools": best.max_tools,
                "weighed_cost": to_four_decimals(best.weighed_cost),
            })),
            "regret": report.regret().map(to_four_decimals),
            "seconds": to_four_decimals(self.elapsed.as_secs_f64()),
        })
    }

    /// Returns the replay as tables for people.
    pub(super) fn as_tables(&self) -> String {
        let report = &self.report;
        let summary = format!(
            "{}: {} calls, {} first uses, {} sessions, {} tools, {:.1} s",
            super::super::table::foreign_cell(&self.dataset),
            report.n_calls,
            report.n_first_uses,
            report.n_sessions,
            self.n_tools,
            self.elapsed.as_secs_f64(),
        );
        let lists = match report.predictors.first() {
            Some(first) => format!("lists made from the predictions of {}", first.name),
            None => String::new(),
        };
        let [hits, shares] = tables_of_predictors(&report.predictors);
        let policies = table_of_policies(report);
        let regret = line_of_regret(report);
        [summary, hits, shares, lists, policies, regret].join("\n\n")
    }
}

/// Returns the metrics of a predictor by name.
fn of_predictor(of: &PredictorReport) -> Map<String, Value> {
    let metrics = &of.metrics;
    let mut measures = Map::new();
    let mut measure = |name: String, value: f64| measures.insert(name, to_four_decimals(value));
    for k in PredictionMetrics::HIT_AT {
        measure(format!("hit@{k}"), metrics.hit_rate(k));
    }
    for k in PredictionMetrics::HIT_AT {
        measure(format!("first_use@{k}"), metrics.first_use_hit_rate(k));
    }
    for &share in CatalogShare::ALL {
        measure(format!("cov@{}%", share.percent()), metrics.coverage(share));
    }
    for &share in CatalogShare::ALL {
        let name = format!("first_use_cov@{}%", share.percent());
        measure(name, metrics.first_use_coverage(share));
    }
    measure("mrr".into(), metrics.mrr());
    measure("bits".into(), metrics.bits());
    for (name, share) in [
        ("cold_starts", of.cold_starts.share_of_calls()),
        (
            "first_call_cold_starts",
            of.cold_starts.share_of_first_calls(),
        ),
    ] {
        measures.insert(name.into(), share.map_or(Value::Null, to_four_decimals));
    }
    measures
}

pub(in crate::commands) fn policy_json(metrics: &ListMetrics) -> Value {
    json!({
        "coverage": to_four_decimals(metrics.coverage),
        "first_use_coverage": to_four_decimals(metrics.first_use_coverage),
        "mean_size": to_four_decimals(metrics.mean_size),
        "reduction": to_four_decimals(metrics.reduction),
        "searches_per_session": to_four_decimals(metrics.searches_per_session),
        "searches_by_fifth": metrics.searches_by_fifth.map(to_four_decimals),
        "changes_per_session": to_four_decimals(metrics.changes_per_session),
        "cost_vs_all": to_four_decimals(metrics.cost_vs_all),
        "weighed_cost": to_four_decimals(metrics.weighed_cost),
        "dearer_sessions": to_four_decimals(metrics.dearer_sessions),
        "dearest_session": to_four_decimals(metrics.dearest_session),
    })
}

/// Rounds a number to four decimals.
fn to_four_decimals(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

fn tables_of_predictors(reports: &[PredictorReport]) -> [String; 2] {
    let hits = [
        Column::Text("PREDICTOR"),
        Column::Number("HIT@1"),
        Column::Number("@5"),
        Column::Number("@10"),
        Column::Number("@20"),
        Column::Number("FIRST USE@1"),
        Column::Number("@5"),
        Column::Number("@10"),
        Column::Number("@20"),
        Column::Number("MRR"),
        Column::Number("BITS"),
    ];
    let shares = [
        Column::Text("PREDICTOR"),
        Column::Number("COV@50%"),
        Column::Number("@25%"),
        Column::Number("@10%"),
        Column::Number("FIRST USE COV@50%"),
        Column::Number("@25%"),
        Column::Number("@10%"),
        Column::Number("COLD STARTS"),
        Column::Number("OF FIRST CALLS"),
    ];
    let row = |of: &PredictorReport, values: &[f64]| {
        let name = of.name.to_owned();
        let values = values.iter().map(|value| format!("{value:.3}"));
        [name].into_iter().chain(values).collect::<Vec<String>>()
    };
    let mut hit_rows = Vec::new();
    let mut share_rows = Vec::new();
    for of in reports {
        let metrics = &of.metrics;
        let at = PredictionMetrics::HIT_AT;
        let last = [metrics.mrr(), metrics.bits()];
        let values = [
            at.map(|k| metrics.hit_rate(k)),
            at.map(|k| metrics.first_use_hit_rate(k)),
        ]
        .concat();
        hit_rows.push(row(of, &[values.as_slice(), &last].concat()));
        let all = CatalogShare::ALL
            .iter()
            .map(|share| metrics.coverage(*share));
        let first = CatalogShare::ALL
            .iter()
            .map(|share| metrics.first_use_coverage(*share));
        let mut shares = row(of, &all.chain(first).collect::<Vec<_>>());
        for cold in [
            of.cold_starts.share_of_calls(),
            of.cold_starts.share_of_first_calls(),
        ] {
            shares.push(cold.map_or_else(|| "-".into(), |share| format!("{share:.3}")));
        }
        share_rows.push(shares);
    }
    [table(&hits, hit_rows), table(&shares, share_rows)]
}

/// Returns a sentence with the cost of the best list of fixed length, or an empty text.
fn line_of_regret(report: &ReplayReport) -> String {
    let Some((best, regret)) = report.best_fixed.zip(report.regret()) else {
        return String::new();
    };
    format!(
        "The best list of fixed length has {} tools and a weighed cost of {:.3}. Policy live has a \
         weighed cost of {:.3} ({:+.1} %).",
        best.max_tools,
        best.weighed_cost,
        report.live.weighed_cost,
        100.0 * regret,
    )
}

fn table_of_policies(report: &ReplayReport) -> String {
    let columns = [
        Column::Text("POLICY"),
        Column::Number("COVERAGE"),
        Column::Number("FIRST USES"),
        Column::Number("SIZE"),
        Column::Number("REDUCTION"),
        Column::Number("SEARCHES"),
        Column::Number("CHANGES"),
        Column::Number("COST"),
        Column::Number("WEIGHED"),
        Column::Number("DEARER %"),
    ];
    let rows = report.policies.iter().map(|(policy, metrics)| {
        vec![
            policy.to_string(),
            format!("{:.3}", metrics.coverage),
            format!("{:.3}", metrics.first_use_coverage),
            format!("{:.1}", metrics.mean_size),
            format!("{:.3}", metrics.reduction),
            format!("{:.2}", metrics.searches_per_session),
            format!("{:.2}", metrics.changes_per_session),
            format!("{:.3}", metrics.cost_vs_all),
            format!("{:.3}", metrics.weighed_cost),
            format!("{:.1}", 100.0 * metrics.dearer_sessions),
        ]
    });
    table(&columns, rows.collect())
}
