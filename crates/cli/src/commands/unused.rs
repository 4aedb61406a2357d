//! Commands that read the store, before there is one.

use anyhow::bail;
use riglm_adapters_storage::{RecordingMode, unused_place};
use serde_json::Value;

use crate::config::Config;
use crate::output::{note, print, printable};

/// What a command prints where nothing is recorded yet.
pub(super) enum Empty {
    /// That nothing is.
    Said,
    /// This on standard output; that nothing is recorded is a remark.
    Printed(String),
    /// Nothing on standard output.
    Remarked,
}

impl Empty {
    /// Returns what is printed by a command that was asked for JSON, or for text.
    pub(super) fn of(is_json: bool, json: &Value) -> Self {
        if is_json {
            Self::Printed(json.to_string())
        } else {
            Self::Said
        }
    }
}

/// Does the work of a command that reads the store. Where nothing is recorded yet it says so, with the
/// place where it looked, and the command is done.
///
/// # Errors
///
/// Returns what the work returns, and that the store cannot be looked at.
pub(super) async fn unless_unused(
    config: &Config,
    empty: Empty,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let Some(text) = why_unused(config).await? else {
        return work.await;
    };
    match empty {
        Empty::Said => print(&text)?,
        Empty::Printed(json) => {
            note(&text);
            print(&json)?;
        }
        Empty::Remarked => note(&text),
    }
    Ok(())
}

/// Returns that nothing is recorded yet, and where it was looked; `None` where there is a store.
///
/// # Errors
///
/// Returns that the store cannot be looked at.
pub(super) async fn why_unused(config: &Config) -> anyhow::Result<Option<String>> {
    let place = unused_place(&config.storage, &config.data_dir).await?;
    let why = match config.recording.mode {
        RecordingMode::Off => " (recording.mode is off)",
        _ => "",
    };
    Ok(place.map(|place| {
        printable(&format!(
            "nothing is recorded yet: there is no database at {place}{why}"
        ))
    }))
}

/// Does the work of a command that changes what is stored, and fails where nothing is yet.
///
/// # Errors
///
/// Returns that nothing is recorded yet, what the work returns, and that the store cannot be looked at.
pub(super) async fn if_used(
    config: &Config,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    match why_unused(config).await? {
        Some(text) => bail!(text),
        None => work.await,
    }
}
