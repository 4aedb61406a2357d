//! `riglm model`: pull, list, verify, rm.

#[cfg(feature = "model")]
mod pull;

use std::io::{IsTerminal as _, stderr};

use anyhow::{Context, bail};
use riglm_adapters_prediction::models::catalog::known_models;
use riglm_adapters_prediction::models::manifest::ModelManifest;
use riglm_adapters_prediction::models::{Job, ModelName, ModelStore, StopSignal};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

#[cfg(feature = "model")]
use self::pull::pull;
use super::db::show;
use super::table::{Column, foreign_cell, table};
use crate::args::{
    ModelCommand, ModelPullArgs, ModelRemoveArgs, ModelVerifyArgs, OutputFormat, StoreArgs,
};
use crate::config::Config;
use crate::output::{note, print, printable};

impl ModelCommand {
    pub(super) fn store(&self) -> &StoreArgs {
        match self {
            Self::Pull(ModelPullArgs { store, .. })
            | Self::List(store)
            | Self::Verify(ModelVerifyArgs { store, .. })
            | Self::Rm(ModelRemoveArgs { store, .. }) => store,
        }
    }
}

pub(super) async fn run(config: &Config, command: ModelCommand) -> anyhow::Result<()> {
    let model_store = ModelStore::new(&config.data_dir);
    let stop = StopSignal::default();
    let job = Job::new(stop.clone(), stderr().is_terminal(), |line| {
        note(&printable(line));
    });
    let work = tokio::task::spawn_blocking(move || match command {
        ModelCommand::Pull(arguments) => pull(&model_store, arguments, &job),
        ModelCommand::List(store) => list(&model_store, store.format),
        ModelCommand::Verify(arguments) => verify(&model_store, &arguments, &job),
        ModelCommand::Rm(arguments) => remove(&model_store, &arguments),
    });
    stopped_by_signals(work, &stop).await?
}

/// Waits for work, and requests its end on SIGTERM and SIGINT.
async fn stopped_by_signals<T>(
    mut work: tokio::task::JoinHandle<T>,
    stop: &StopSignal,
) -> anyhow::Result<T> {
    let watched = "failed to watch for signals";
    let mut terminate = signal(SignalKind::terminate()).context(watched)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(watched)?;
    loop {
        tokio::select! {
            result = &mut work => return result.context("the command stopped unexpectedly"),
            _ = terminate.recv() => stop.request(),
            _ = interrupt.recv() => stop.request(),
        }
    }
}

/// Refuses to pull a model, which this build could not compute.
#[cfg(not(feature = "model"))]
fn pull(_: &ModelStore, _: ModelPullArgs, _: &Job) -> anyhow::Result<()> {
    Err(riglm_adapters_prediction::encoder::EncoderConfigError::NotBuilt.into())
}

fn list(model_store: &ModelStore, format: OutputFormat) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for model in model_store.list()? {
        rows.push(match model.manifest {
            Ok(manifest) => installed_as_json(&model.name, &manifest),
            Err(error) => json!({
                "name": model.name,
                "state": "damaged",
                "problem": format!("{:#}", anyhow::Error::from(error)),
            }),
        });
    }
    for known in known_models() {
        if !rows.iter().any(|row| row["name"] == known.name) {
            let sources = [("hub", known.hub.is_some()), ("pip", known.pip.is_some())];
            let sources = sources.iter().filter(|(_, is_one)| *is_one);
            rows.push(json!({
                "name": known.name,
                "state": "known",
                "form": known.form,
                "dimension": known.dimension,
                "max_tokens": known.max_tokens,
                "licence": known.licence,
                "sources": sources.map(|(name, _)| *name).collect::<Vec<_>>(),
            }));
        }
    }
    Ok(print(&match format {
        OutputFormat::Json => Value::Array(rows).to_string(),
        OutputFormat::Text => as_table(&rows),
    })?)
}

fn installed_as_json(name: &ModelName, manifest: &ModelManifest) -> Value {
    json!({
        "name": name,
        "state": "pulled",
        "form": manifest.form,
        "dimension": manifest.dimension,
        "max_tokens": manifest.max_tokens,
        "licence": manifest.licence,
        "bytes": manifest.bytes(),
        "source": manifest.source,
    })
}

fn as_table(rows: &[Value]) -> String {
    let columns = [
        Column::Text("MODEL"),
        Column::Text("STATE"),
        Column::Number("DIMENSION"),
        Column::Number("SIZE"),
        Column::Text("LICENCE"),
        Column::Text("SOURCE"),
    ];
    let cell = |value: &Value| foreign_cell(value.as_str().unwrap_or_default());
    let rows = rows.iter().map(|row| {
        let sources = row["sources"].as_array().map(|sources| {
            let names: Vec<&str> = sources.iter().filter_map(Value::as_str).collect();
            names.join(", ")
        });
        vec![
            cell(&row["name"]),
            cell(&row["state"]),
            row["dimension"]
                .as_u64()
                .map_or(String::new(), |n| n.to_string()),
            row["bytes"].as_u64().map_or(String::new(), megabytes),
            cell(&row["licence"]),
            sources.unwrap_or_else(|| cell(&row["source"])),
        ]
    });
    table(&columns, rows.collect())
}

fn verify(model_store: &ModelStore, arguments: &ModelVerifyArgs, job: &Job) -> anyhow::Result<()> {
    let names = match &arguments.name {
        Some(name) => vec![name.clone()],
        None => model_store
            .list()?
            .into_iter()
            .map(|model| model.name)
            .collect(),
    };
    let mut findings = Vec::new();
    let mut lines = Vec::new();
    for name in &names {
        let faults = model_store.verify(name, job)?;
        for fault in &faults {
            findings.push(json!({"model": name, "file": fault.file, "problem": fault.problem}));
            lines.push(printable(&format!(
                "{name}: {}: {}",
                fault.file, fault.problem
            )));
        }
        if faults.is_empty() {
            lines.push(format!("{name}: ok"));
        }
    }
    let text = if lines.is_empty() {
        "no models are installed".into()
    } else {
        lines.join("\n")
    };
    let result = json!({"models": names, "findings": findings});
    show(arguments.store.format, &result, &text)?;
    if !findings.is_empty() {
        bail!(
            "{} model files are damaged; pull these models again",
            findings.len()
        );
    }
    Ok(())
}

fn remove(model_store: &ModelStore, arguments: &ModelRemoveArgs) -> anyhow::Result<()> {
    model_store.remove(&arguments.name)?;
    let text = format!("removed {}", arguments.name);
    show(
        arguments.store.format,
        &json!({"removed": arguments.name}),
        &text,
    )
}

/// Formats a size in MB with one decimal: `91.3 MB`.
fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}
