//! Changes of the configuration through the control API. A change is checked, recorded in the audit
//! trail, written to disk and applied, in this order, so that nothing takes effect that is not
//! durable.

use std::sync::Arc;

use riglm_app::control::settings::{
    ExpectedView, ReplaceFuture, Settings, SettingsError, SettingsView,
};
use riglm_domain::privacy::principal::Principal;
use serde_json::{Map, Value};

use super::reload::{ActiveConfig, Candidate, ReloadingProxy};
use crate::config::{
    ConfigError, PreparedTuning, TuningDocument, TuningFile, TuningLock, TuningUse,
};

#[derive(Debug)]
pub(super) struct LiveSettings(pub(super) Arc<ReloadingProxy>);

impl Settings for LiveSettings {
    fn view(&self) -> Arc<SettingsView> {
        self.0.view()
    }

    fn replace<'a>(
        &'a self,
        tuning: Map<String, Value>,
        expected: ExpectedView,
        actor: &'a Principal,
    ) -> ReplaceFuture<'a> {
        let (live, actor) = (Arc::clone(&self.0), actor.clone());
        // On its own task: the client may disconnect in the middle, and the change must not stop
        // halfway.
        let replacing = tokio::spawn(async move { live.replace(tuning, &expected, &actor).await });
        Box::pin(async move {
            let replaced = replacing.await;
            replaced.map_err(|error| SettingsError::Unwritable(std::io::Error::other(error)))?
        })
    }
}

impl ReloadingProxy {
    async fn replace(
        &self,
        tuning: Map<String, Value>,
        expected: &ExpectedView,
        actor: &Principal,
    ) -> Result<Arc<SettingsView>, SettingsError> {
        let mut state = self.state.lock().await;
        let file = TuningFile::of(&self.started_with.config.data_dir);
        // Several processes may share the data directory.
        let lock = self.lock_file(&file).await?;
        self.catch_up(&file, &mut state).await;
        if !expected.has(&self.view().tag) {
            return Err(SettingsError::Stale);
        }
        let checked = self.started_with.check_tuning(&tuning);
        checked.map_err(|(key, reason)| SettingsError::Refused { key, reason })?;
        let before = &state.loaded.tuning;
        let document = TuningDocument {
            version: before.version.saturating_add(1),
            tuning,
        };
        let candidate = self.check_proposal(&document, &state).await?;
        let prepared = prepare_file(&file, document.clone(), lock).await?;
        self.trail
            .note(actor, &before.tuning, &document.tuning)
            .await?;
        let put = blocking(move || prepared.put()).await;
        put.map_err(SettingsError::Unwritable)?;
        self.put(candidate, &mut state);
        Ok(self.view())
    }

    /// Applies a change that another process has just written.
    async fn catch_up(&self, file: &TuningFile, state: &mut ActiveConfig) {
        let is_same = match file.read() {
            Ok(document) => document == state.loaded.tuning,
            // An unreadable file is replaced.
            Err(_) => true,
        };
        if !is_same && let Err(error) = self.reload(state).await {
            tracing::error!("failed to apply the tuning of another process: {error:#}");
        }
    }

    /// Checks a tuning document as a part of the whole configuration.
    async fn check_proposal(
        &self,
        document: &TuningDocument,
        state: &ActiveConfig,
    ) -> Result<Candidate, SettingsError> {
        let with = async |document: TuningDocument| {
            let loaded = self.load(TuningUse::Proposed(document)).await?;
            self.candidate(loaded, state)
        };
        let error = match with(document.clone()).await {
            Ok(candidate) => return Ok(candidate),
            Err(error) => error,
        };
        // The configuration file may have become invalid since the last load; that is not an error
        // of the tuning.
        if with(state.loaded.tuning.clone()).await.is_err() {
            return Err(SettingsError::Unusable(format!("{error:#}")));
        }
        Err(match error.downcast::<ConfigError>() {
            Ok(ConfigError::Value { key, reason, .. }) => SettingsError::Refused { key, reason },
            Ok(ConfigError::Several(errors)) => several(&errors),
            Ok(error) => SettingsError::Unusable(error.to_string()),
            Err(error) => SettingsError::Unusable(format!("{error:#}")),
        })
    }

    async fn lock_file(&self, file: &TuningFile) -> Result<TuningLock, SettingsError> {
        let file = file.clone();
        let locked = blocking(move || file.lock()).await;
        locked.map_err(SettingsError::Unwritable)
    }
}

/// Returns the refusal of the first wrong key, with all other errors in its reason.
fn several(errors: &[ConfigError]) -> SettingsError {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match errors.first() {
        Some(ConfigError::Value { key, reason, .. }) => SettingsError::Refused {
            key: key.clone(),
            reason: format!("{reason}; {}", texts[1..].join("; ")),
        },
        _ => SettingsError::Unusable(texts.join("; ")),
    }
}

async fn prepare_file(
    file: &TuningFile,
    document: TuningDocument,
    lock: TuningLock,
) -> Result<PreparedTuning, SettingsError> {
    let file = file.clone();
    let prepared = blocking(move || file.prepare(&document, lock)).await;
    prepared.map_err(SettingsError::Unwritable)
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(std::io::Error::other)?
}
