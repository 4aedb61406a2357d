//! Checks of the data directory, the database, the models and the clock.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use riglm_adapters_prediction::models::{ModelName, ModelStore};
use riglm_adapters_storage::{Inspection, inspect};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;
use rustix::fs::{Access, access};
use tokio::time::timeout;

use super::finding::{Finding, error_line};
use crate::compose::needs_encoders;
use crate::config::Config;

/// The free space from which a disk counts as nearly full, in bytes.
const LITTLE_SPACE: u64 = 200 << 20;
/// The size from which records wait for too long, in bytes.
const MANY_BYTES: u64 = 64 << 20;
/// The time limit for the database.
const PATIENCE: Duration = Duration::from_secs(5);
/// A time before which no clock can be right: the day of the revision 2026-07-28.
const EARLIEST: i64 = 1_785_196_800;

/// Checks everything under the data directory.
pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let mut findings = check_directory(config);
    findings.extend(check_database(config).await);
    findings.push(check_clock());
    findings.extend(check_model(config));
    findings
}

fn check_directory(config: &Config) -> Vec<Finding> {
    let directory = &config.data_dir;
    let shown = directory.display();
    let metadata = match directory.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return vec![check_missing(directory)];
        }
        Err(error) => {
            return vec![Finding::problem(
                "data",
                format!("{shown}: {error}"),
                "correct its permissions, or use --data-dir",
            )];
        }
    };
    if !metadata.is_dir() {
        return vec![Finding::problem(
            "data",
            format!("{shown} is not a folder"),
            "move it away, or use --data-dir",
        )];
    }
    let mut findings = Vec::new();
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        findings.push(Finding::problem(
            "data",
            format!("{shown} belongs to another user"),
            "run riglm as its owner, or use --data-dir",
        ));
    } else if !is_writable(directory) {
        findings.push(Finding::problem(
            "data",
            format!("riglm cannot write to {shown}"),
            format!("chmod 700 {shown}, or use --data-dir"),
        ));
    } else if metadata.mode() & 0o077 != 0 {
        findings.push(Finding::warning(
            "data",
            format!("other users can look into {shown}"),
            format!("chmod 700 {shown}"),
        ));
    }
    if let Ok(disk) = rustix::fs::statvfs(directory) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < LITTLE_SPACE {
            findings.push(Finding::warning(
                "data",
                format!("the disk of {shown} has {} MB left", free >> 20),
                "free some space: without it, records are lost or calls are refused",
            ));
        }
    }
    findings.extend(check_keys(directory));
    if findings.is_empty() {
        findings.push(Finding::ok("data", shown.to_string()));
    }
    findings
}

/// Checks that a data directory that does not exist yet can be made.
fn check_missing(directory: &Path) -> Finding {
    let shown = directory.display();
    match directory.ancestors().find(|folder| folder.is_dir()) {
        Some(parent) if !is_writable(parent) => Finding::problem(
            "data",
            format!(
                "{shown} does not exist, and riglm cannot make it in {}",
                parent.display()
            ),
            "make it, or use --data-dir",
        ),
        _ => Finding::ok(
            "data",
            format!("{shown} does not exist yet: riglm serve makes it"),
        ),
    }
}

/// Returns whether this process can make files in a folder. Nothing is written.
fn is_writable(folder: &Path) -> bool {
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Checks that nobody else can read the files with keys. The file of secrets is checked where it is
/// read.
fn check_keys(directory: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in ["control.token", "hmac.key"] {
        let path = directory.join(name);
        if path.metadata().is_ok_and(|file| file.mode() & 0o077 != 0) {
            let path = path.display();
            findings.push(Finding::problem(
                "data",
                format!("other users can read {path}"),
                format!("chmod 600 {path}"),
            ));
        }
    }
    findings
}

/// Checks the database and the records that wait for it, without changing them.
async fn check_database(config: &Config) -> Vec<Finding> {
    match timeout(PATIENCE, inspect(&config.storage, &config.data_dir)).await {
        Err(_) => vec![Finding::problem(
            "database",
            "it did not answer within 5 s",
            "check that the database runs; riglm db status shows its location",
        )],
        Ok(Err(error)) => vec![Finding::problem(
            "database",
            error_line(&error),
            "riglm db check; restore a backup if it is damaged",
        )],
        Ok(Ok(inspection)) => {
            let mut findings = vec![of_schema(&inspection)];
            findings.extend(of_spool(&inspection));
            findings
        }
    }
}

fn of_schema(inspection: &Inspection) -> Finding {
    let place = inspection.place.as_str();
    if inspection.is_newer() {
        return Finding::problem(
            "database",
            format!(
                "{place} has schema {}, and this program knows {}",
                inspection.schema_found, inspection.schema_known
            ),
            "use the newer version of riglm",
        );
    }
    if inspection.schema_found == 0 {
        return Finding::ok("database", "nothing is recorded yet");
    }
    Finding::ok("database", place)
}

/// Returns the size of the records that wait for the database, if there are any.
fn of_spool(inspection: &Inspection) -> Option<Finding> {
    let n_bytes = inspection.spool_bytes;
    if n_bytes == 0 {
        return None;
    }
    let text = format!("{n_bytes} bytes of records wait for the database");
    Some(if n_bytes < MANY_BYTES {
        Finding::ok("spool", text)
    } else {
        let cure = "riglm serve adds them; riglm health names the reason if a proxy runs";
        Finding::warning("spool", text, cure)
    })
}

pub(super) fn check_clock() -> Finding {
    let now = SystemClock.now();
    if now.as_second() < EARLIEST {
        let text = format!("the clock says {now}, before times that must have passed");
        return Finding::problem("clock", text, "set the clock of this machine (NTP)");
    }
    Finding::ok("clock", now.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// Checks that the configured model is there.
fn check_model(config: &Config) -> Option<Finding> {
    let model = config.search.encoder.model.as_str();
    let is_named =
        !matches!(model, "auto" | "none" | "embedded" | "remote") && !model.contains('/');
    if !needs_encoders(config) || !is_named {
        return None;
    }
    if !cfg!(feature = "model") {
        let text = format!("this build has no local models, so {model} cannot be used");
        let cure = "build riglm with --features model, or set search.encoder.model to auto";
        return Some(Finding::problem("models", text, cure));
    }
    let cure = format!("riglm model pull {model}");
    let Ok(name) = model.parse::<ModelName>() else {
        let text = format!("{model:?} is no name of a model");
        return Some(Finding::problem("models", text, "riglm model list"));
    };
    Some(match ModelStore::new(&config.data_dir).find(&name) {
        Ok(Some(_)) => Finding::ok("models", format!("{model} is there")),
        Ok(None) => Finding::problem("models", format!("{model} is not there"), cure),
        Err(error) => Finding::problem("models", format!("{model}: {error}"), cure),
    })
}
