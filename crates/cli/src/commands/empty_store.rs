//! Commands that read the store, on a data directory without a database.

use anyhow::bail;
use riglm_adapters_storage::{RecordingMode, location_if_unused};
use serde_json::Value;

use crate::args::OutputFormat;
use crate::config::Config;
use crate::output::{note, print, printable};

/// The output of a command on an unused database.
pub(super) enum EmptyOutput {
    /// The note on standard output.
    Said,
    /// This text on standard output, and the note on standard error.
    Printed(String),
    /// The note on standard error only.
    Remarked,
}

impl EmptyOutput {
    /// Returns the output for a command with or without `--json`.
    pub(super) fn of(format: OutputFormat, json: &Value) -> Self {
        match format {
            OutputFormat::Json => Self::Printed(json.to_string()),
            OutputFormat::Text => Self::Said,
        }
    }
}

/// Runs a command that reads the store. Without a database it prints a note with the expected
/// location instead, and succeeds.
///
/// # Errors
///
/// Returns the errors of the command and of looking for the database.
pub(super) async fn run_unless_empty(
    config: &Config,
    empty: EmptyOutput,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let Some(text) = empty_store_note(config).await? else {
        return work.await;
    };
    match empty {
        EmptyOutput::Said => print(&text)?,
        EmptyOutput::Printed(json) => {
            note(&text);
            print(&json)?;
        }
        EmptyOutput::Remarked => note(&text),
    }
    Ok(())
}

/// Returns a note that nothing is recorded yet, with the expected location; `None` if a database
/// exists.
///
/// # Errors
///
/// Returns the error of looking for the database.
pub(super) async fn empty_store_note(config: &Config) -> anyhow::Result<Option<String>> {
    let place = location_if_unused(&config.storage, &config.data_dir).await?;
    let why = match config.recording.mode {
        RecordingMode::Off => " (recording.mode is off)",
        _ => "",
    };
    Ok(place.map(|place| {
        printable(&format!(
            "nothing is recorded yet: no database at {place}{why}"
        ))
    }))
}

/// Runs a command that changes stored data. Without a database it fails.
///
/// # Errors
///
/// Returns a note that nothing is recorded yet, and the errors of the command and of looking for
/// the database.
pub(super) async fn run_if_stored(
    config: &Config,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    match empty_store_note(config).await? {
        Some(text) => bail!(text),
        None => work.await,
    }
}
