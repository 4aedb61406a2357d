//! `riglm db`: migrate, status, check, rebuild, purge.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use riglm_adapters_storage::{Inspection, inspect, migrate, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::control::retention::Retention;
use riglm_ports::analytics::{IntegrityProblem, Maintenance, PurgeReport};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::empty_store::EmptyOutput;
use crate::args::{DbCommand, OutputFormat, PurgeArgs, StoreArgs};
use crate::config::Config;
use crate::output::{note, print, printable};

impl DbCommand {
    pub(super) fn store(&self) -> &StoreArgs {
        match self {
            Self::Migrate(store)
            | Self::Status(store)
            | Self::Check(store)
            | Self::Rebuild(store) => store,
            Self::Purge(arguments) => &arguments.store,
        }
    }
}

/// Returns the output for an unused database; `None` for commands that need no recorded data.
pub(super) fn empty(command: &DbCommand) -> Option<EmptyOutput> {
    let json = match command {
        DbCommand::Check(_) => json!({"findings": []}),
        DbCommand::Rebuild(_) => json!({"calls": 0, "counts": 0}),
        DbCommand::Purge(_) => purged_as_json(&PurgeReport::default()),
        DbCommand::Migrate(_) | DbCommand::Status(_) => return None,
    };
    Some(EmptyOutput::of(command.store().format, &json))
}

pub(super) async fn run(config: &Config, command: &DbCommand) -> anyhow::Result<()> {
    let format = command.store().format;
    match command {
        DbCommand::Migrate(_) => {
            let (from, to) = migrate(&config.storage, &config.data_dir).await?;
            let text = if from == to {
                format!("the schema already has version {to}")
            } else {
                format!("migrated the schema from version {from} to {to}")
            };
            show(format, &json!({"from": from, "to": to}), &text)
        }
        DbCommand::Status(_) => status(config, format).await,
        DbCommand::Check(_) => check(config, format).await,
        DbCommand::Rebuild(_) => {
            let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
            let rebuilt = store.rebuild().await?;
            store.close().await;
            let (n_calls, n_counts) = (rebuilt.n_calls, rebuilt.n_counts);
            let text = format!("computed {n_counts} counts from {n_calls} calls");
            show(
                format,
                &json!({"calls": n_calls, "counts": n_counts}),
                &text,
            )
        }
        DbCommand::Purge(arguments) => purge(config, arguments).await,
    }
}

async fn status(config: &Config, format: OutputFormat) -> anyhow::Result<()> {
    let inspection = inspect(&config.storage, &config.data_dir).await?;
    if inspection.schema_found == 0 && inspection.spool_bytes == 0 {
        note("nothing is recorded yet");
    }
    show(format, &as_json(&inspection), &as_lines(&inspection))?;
    if inspection.is_newer() {
        let (found, known) = (inspection.schema_found, inspection.schema_known);
        bail!("schema version {found} is newer than version {known} of this riglm: update riglm");
    }
    Ok(())
}

fn as_json(inspection: &Inspection) -> Value {
    json!({
        "backend": inspection.backend.as_str(),
        "place": inspection.place,
        "schema_found": inspection.schema_found,
        "schema_known": inspection.schema_known,
        "sessions": inspection.n_sessions,
        "calls": inspection.n_calls,
        "spool_bytes": inspection.spool_bytes,
    })
}

fn as_lines(inspection: &Inspection) -> String {
    let count = |n: Option<u64>| n.map_or("unknown".into(), |n| n.to_string());
    [
        format!("backend      {}", inspection.backend.as_str()),
        format!("place        {}", printable(&inspection.place)),
        format!(
            "schema       version {} (this riglm: {})",
            inspection.schema_found, inspection.schema_known
        ),
        format!("sessions     {}", count(inspection.n_sessions)),
        format!("calls        {}", count(inspection.n_calls)),
        format!("spool bytes  {}", inspection.spool_bytes),
    ]
    .join("\n")
}

async fn check(config: &Config, format: OutputFormat) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let findings = store.check().await?;
    store.close().await;
    let rows: Vec<Value> = findings
        .iter()
        .map(
            |IntegrityProblem { subject, problem }| json!({"subject": subject, "problem": problem}),
        )
        .collect();
    let lines: Vec<String> = findings
        .iter()
        .map(|IntegrityProblem { subject, problem }| printable(&format!("{subject}: {problem}")))
        .collect();
    let text = if lines.is_empty() {
        "ok".into()
    } else {
        lines.join("\n")
    };
    show(format, &json!({"findings": rows}), &text)?;
    if !findings.is_empty() {
        bail!("the database has {} problems", findings.len());
    }
    Ok(())
}

async fn purge(config: &Config, arguments: &PurgeArgs) -> anyhow::Result<()> {
    let days = arguments
        .older_than
        .unwrap_or(config.recording.retention_days);
    if days == 0 {
        note("recording.retention_days is 0, so nothing is deleted: see --older-than");
        return show_purged(arguments.store.format, &PurgeReport::default());
    }
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let retention = Retention {
        store: Arc::new(store.clone()),
        clock: Arc::new(SystemClock),
        keep: watch::channel(Some(Duration::from_hours(24 * u64::from(days)))).1,
    };
    let purged = retention.purge().await?;
    store.close().await;
    let purged =
        purged.ok_or_else(|| anyhow!("another process is deleting old rows; retry later"))?;
    show_purged(arguments.store.format, &purged)
}

fn show_purged(format: OutputFormat, purged: &PurgeReport) -> anyhow::Result<()> {
    let PurgeReport {
        n_sessions,
        n_calls,
        n_others,
        ..
    } = purged;
    show(
        format,
        &purged_as_json(purged),
        &format!("deleted {n_sessions} sessions, {n_calls} calls and {n_others} other rows"),
    )
}

fn purged_as_json(purged: &PurgeReport) -> Value {
    json!({
        "sessions": purged.n_sessions,
        "calls": purged.n_calls,
        "others": purged.n_others,
    })
}

/// Prints a result as JSON or as text.
pub(super) fn show(format: OutputFormat, json: &Value, text: &str) -> anyhow::Result<()> {
    match format {
        OutputFormat::Json => Ok(print(&json.to_string())?),
        OutputFormat::Text => Ok(print(text)?),
    }
}

#[cfg(test)]
mod tests {
    use riglm_adapters_storage::Backend;

    use super::*;

    #[test]
    fn a_status_has_the_agreed_keys_and_unknown_counts() {
        let inspection = Inspection {
            backend: Backend::Postgres,
            place: "db.example:5432/usage".into(),
            schema_found: 9,
            schema_known: 2,
            n_sessions: None,
            n_calls: Some(3),
            spool_bytes: 7,
        };
        assert_eq!(
            as_json(&inspection).to_string(),
            concat!(
                r#"{"backend":"postgres","place":"db.example:5432/usage","schema_found":9,"#,
                r#""schema_known":2,"sessions":null,"calls":3,"spool_bytes":7}"#
            )
        );
        let lines = as_lines(&inspection);
        assert!(
            lines.contains("sessions     unknown\ncalls        3\n"),
            "{lines}"
        );
    }
}
