//! The recording of calls: the store, the recorder, work sessions, and the deletion of old rows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use riglm_adapters_storage::{NoJournal, RecordingConfig, RecordingMode, Storage, TokenSizes};
use riglm_app::control::retention::Retention;
use riglm_app::tracking::{Recorder, RecorderOptions, RecordingPolicy};
use riglm_app::work_sessions::WorkSessions;
use riglm_domain::id::RunId;
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_ports::analytics::Journal;
use riglm_ports::clock::Clock;
use tokio::sync::watch;

use super::foundation::Foundation;
use crate::config::{Config, LoggingConfig};

/// Opens the store, unless recording is off.
pub(super) async fn storage_from(
    config: &Config,
    run: RunId,
    clock: &dyn Clock,
) -> anyhow::Result<Option<Arc<Storage>>> {
    if config.recording.mode == RecordingMode::Off {
        return Ok(None);
    }
    let (storage, recording) = (&config.storage, &config.recording);
    let opening = riglm_adapters_storage::open(storage, recording, &config.data_dir, run, clock);
    Ok(Some(Arc::new(opening.await?)))
}

pub(super) fn recorder_from(base: &Foundation<'_>, run: RunId) -> anyhow::Result<Arc<Recorder>> {
    let config = base.config;
    let hasher = hasher_from(config)?;
    let options = recorder_options(&config.recording, &config.logging);
    let journal = journal_of(base.storage.as_deref());
    let recorder = Recorder::new(journal, hasher, Arc::clone(&base.clock), run, options);
    let recording = &config.recording;
    if recording.mode == RecordingMode::Off || recording.tokens == TokenSizes::Estimated {
        return Ok(Arc::new(recorder));
    }
    let counting = recorder.with_token_counter(base.counter.clone());
    Ok(Arc::new(
        counting.context("failed to start the token counter")?,
    ))
}

fn journal_of(storage: Option<&Storage>) -> Arc<dyn Journal> {
    match storage {
        Some(storage) => Arc::clone(&storage.journal),
        None => Arc::new(NoJournal),
    }
}

/// Returns the hasher with the key of the installation. With recording off no hash is stored, so
/// the key is random and no file is written.
pub(super) fn hasher_from(config: &Config) -> anyhow::Result<KeyedHasher> {
    if config.recording.mode != RecordingMode::Off {
        return Ok(riglm_adapters_storage::keyed_hasher(&config.data_dir)?);
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("failed to get random numbers")?;
    Ok(KeyedHasher::new(&key))
}

fn recorder_options(recording: &RecordingConfig, logging: &LoggingConfig) -> RecorderOptions {
    RecorderOptions {
        policy: match recording.mode {
            RecordingMode::Off => RecordingPolicy::Off,
            RecordingMode::BestEffort => RecordingPolicy::BestEffort,
            RecordingMode::Required => RecordingPolicy::Required,
        },
        include_arguments: logging.include_arguments,
        include_results: logging.include_results,
    }
}

/// Starts the deletion of old rows, if there is a store. Returns the sender of the retention
/// period.
pub(super) fn start_retention(base: &Foundation<'_>) -> watch::Sender<Option<Duration>> {
    let (retention, keep) = watch::channel(base.config.recording.retention());
    if let Some(store) = base.store() {
        let retention = Retention {
            store,
            clock: Arc::clone(&base.clock),
            keep,
        };
        base.tasks.spawn(retention.run(base.stop.clone()));
    }
    retention
}

/// Returns the derivation of work sessions; `None` if it is off.
pub(super) fn work_sessions_from(
    base: &Foundation<'_>,
) -> anyhow::Result<Option<Arc<WorkSessions>>> {
    let config = &base.config.work_sessions;
    if !config.enabled {
        return Ok(None);
    }
    let store = base.store().map(|store| store as Arc<_>);
    let work_sessions = WorkSessions::new(store, hasher_from(base.config)?, config.idle_gap());
    Ok(Some(Arc::new(work_sessions)))
}
