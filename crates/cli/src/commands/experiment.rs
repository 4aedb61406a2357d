//! `riglm experiment`: results of experiments, and stopping them.

use std::sync::Arc;

use anyhow::{Context, bail};
use riglm_adapters_storage::{Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_discovery::experiments::{ArmReport, ExperimentReport, ExperimentService};
use riglm_domain::experiment::{Comparison, ExperimentStop};
use riglm_domain::privacy::principal::Principal;
use serde_json::{Value, json};

use super::table::{Column, foreign_cell, table, time_cell};
use crate::args::{ExperimentCommand, ExperimentStatusArgs, ExperimentStopArgs, StoreArgs};
use crate::config::Config;
use crate::output::{note, print, printable};

impl ExperimentCommand {
    pub(super) fn store(&self) -> &StoreArgs {
        match self {
            Self::Status(arguments) => &arguments.store,
            Self::Stop(arguments) => &arguments.store,
        }
    }
}

pub(super) async fn run(config: &Config, command: &ExperimentCommand) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let store: Arc<Store> = Arc::new(store);
    let service = ExperimentService::new(
        config.experiments.clone(),
        store.clone(),
        Arc::new(SystemClock),
    );
    let done = match command {
        ExperimentCommand::Status(arguments) => status(config, &service, arguments).await,
        ExperimentCommand::Stop(arguments) => stop(&service, arguments).await,
    };
    store.close().await;
    done
}

async fn status(
    config: &Config,
    service: &ExperimentService,
    arguments: &ExperimentStatusArgs,
) -> anyhow::Result<()> {
    let names: Vec<&str> = match &arguments.name {
        Some(name) => vec![name],
        None => (config.experiments.iter())
            .map(|plan| plan.name.as_str())
            .collect(),
    };
    let mut reports = Vec::new();
    for name in names {
        let Some(report) = service.report(name).await? else {
            return Err(unknown(name));
        };
        if !report.is_complete {
            note(&format!(
                "experiment {name}: results are incomplete; only the oldest records are counted"
            ));
        }
        reports.push(report);
    }
    let text = if arguments.store.format.is_json() {
        let all: Value = reports.iter().map(as_json).collect();
        let json = serde_json::to_string(&all);
        json.context("failed to write experiments as JSON")?
    } else if reports.is_empty() {
        "no experiments are configured".into()
    } else {
        let shown: Vec<String> = reports.iter().map(as_text).collect();
        shown.join("\n\n")
    };
    Ok(print(&text)?)
}

async fn stop(service: &ExperimentService, arguments: &ExperimentStopArgs) -> anyhow::Result<()> {
    let name = &arguments.name;
    let reason = arguments.reason.clone();
    if reason
        .as_ref()
        .is_some_and(|reason| reason.chars().count() > MAX_REASON_CHARS)
    {
        bail!("--reason must have at most {MAX_REASON_CHARS} characters");
    }
    let Some(stop) = service.stop(name, reason, &Principal::local()).await? else {
        return Err(unknown(name));
    };
    let text = if arguments.store.format.is_json() {
        serde_json::to_string(&stop_as_json(&stop)).context("failed to write the stop as JSON")?
    } else {
        format!("experiment {name} {}", stop_as_text(&stop))
    };
    Ok(print(&text)?)
}

/// The longest reason, in characters.
const MAX_REASON_CHARS: usize = 1_000;

fn unknown(name: &str) -> anyhow::Error {
    let name = printable(name);
    anyhow::anyhow!("unknown experiment {name}: not in section recommend.experiments")
}

fn stop_as_text(stop: &ExperimentStop) -> String {
    let reason = stop.reason.as_ref();
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", printable(reason)));
    let by = printable(stop.stopped_by.as_str());
    format!(
        "stopped at {} UTC by {by}{reason}",
        time_cell(stop.stopped_at)
    )
}

fn stop_as_json(stop: &ExperimentStop) -> Value {
    json!({
        "experiment": stop.experiment,
        "stopped_at": stop.stopped_at,
        "stopped_by": stop.stopped_by,
        "reason": stop.reason,
    })
}

/// Returns a report as JSON. Scripts rely on this format.
fn as_json(report: &ExperimentReport) -> Value {
    let plan = &report.plan;
    json!({
        "experiment": plan.name,
        "state": report.state.as_str(),
        "stop": report.stop.as_ref().map(stop_as_json),
        "unit": plan.unit.as_str(),
        "metric": plan.metric.as_str(),
        "alpha": plan.alpha,
        "window_seconds": plan.window.as_secs(),
        "control": plan.control,
        "is_complete": report.is_complete,
        "arms": report.arms.iter().map(arm_as_json).collect::<Value>(),
    })
}

fn arm_as_json(arm: &ArmReport) -> Value {
    let compared = |it: Comparison| {
        json!({
            "pairs": it.n_pairs,
            "difference": it.difference,
            "lower": it.interval.map(|(lower, _)| lower),
            "upper": it.interval.map(|(_, upper)| upper),
            "e_value": it.e_value,
            "p_value": it.p_value,
            "verdict": it.verdict.as_str(),
        })
    };
    json!({
        "arm": arm.name,
        "share": arm.share,
        "assigned": arm.n_assigned,
        "trials": arm.settled.n_trials,
        "succeeded": arm.settled.n_succeeded,
        "units": arm.settled.values.len(),
        "open_units": arm.settled.n_open,
        "mean": arm.settled.mean(),
        "comparison": arm.comparison.map(compared),
    })
}

/// Returns a report as text for people.
fn as_text(report: &ExperimentReport) -> String {
    let plan = &report.plan;
    let state = report
        .stop
        .as_ref()
        .map_or_else(|| report.state.as_str().to_owned(), stop_as_text);
    let head = format!(
        "{}: {state}\n{} of a {} within {}, alpha {}",
        plan.name,
        plan.metric.as_str(),
        plan.unit.as_str(),
        humantime_serde::re::humantime::format_duration(plan.window),
        plan.alpha,
    );
    let columns = [
        Column::Text("ARM"),
        Column::Number("SHARE %"),
        Column::Number("ASSIGNED"),
        Column::Number("TRIALS"),
        Column::Number("UNITS"),
        Column::Number("OPEN"),
        Column::Number("MEAN %"),
        Column::Number("DIFFERENCE"),
        Column::Text("INTERVAL"),
        Column::Number("P"),
        Column::Text("VERDICT"),
    ];
    let rows = report.arms.iter().map(row).collect();
    format!("{head}\n{}", table(&columns, rows))
}

fn row(arm: &ArmReport) -> Vec<String> {
    let none = || "-".to_owned();
    let points = |share: f64| format!("{:+.1}", 100.0 * share);
    let compared = arm.comparison.as_ref();
    let difference = compared.and_then(|it| it.difference);
    let interval = compared.and_then(|it| it.interval);
    vec![
        foreign_cell(&arm.name),
        format!("{:.1}", 100.0 * arm.share),
        arm.n_assigned.to_string(),
        arm.settled.n_trials.to_string(),
        arm.settled.values.len().to_string(),
        arm.settled.n_open.to_string(),
        arm.settled
            .mean()
            .map_or_else(none, |mean| format!("{:.1}", 100.0 * mean)),
        difference.map_or_else(none, points),
        interval.map_or_else(none, |(lower, upper)| {
            format!("{} to {}", points(lower), points(upper))
        }),
        compared.map_or_else(none, |it| format!("{:.4}", it.p_value)),
        compared.map_or("control", |it| it.verdict.as_str()).into(),
    ]
}

#[cfg(test)]
mod tests;
