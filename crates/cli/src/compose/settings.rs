//! What the control server changes of the configuration: checked, written down, written to disk and
//! put into use, in this order, so that nothing takes effect that does not last.

use std::sync::Arc;

use riglm_app::settings::{Expected, Replacing, Settings, SettingsError, SettingsView};
use riglm_domain::principal::Principal;
use serde_json::{Map, Value};

use super::reload::{Candidate, Live, State};
use crate::config::{ConfigError, Prepared, TuningDocument, TuningFile, TuningLock, TuningUse};

/// The settings of a proxy that follows its configuration.
#[derive(Debug)]
pub(super) struct LiveSettings(pub(super) Arc<Live>);

impl Settings for LiveSettings {
    fn view(&self) -> Arc<SettingsView> {
        self.0.view()
    }

    fn replace<'a>(
        &'a self,
        tuning: Map<String, Value>,
        expected: Expected,
        actor: &'a Principal,
    ) -> Replacing<'a> {
        let (live, actor) = (Arc::clone(&self.0), actor.clone());
        // On a task of its own, since who asked may go away in the middle of it.
        let replacing = tokio::spawn(async move { live.replace(tuning, &expected, &actor).await });
        Box::pin(async move {
            let replaced = replacing.await;
            replaced.map_err(|error| SettingsError::Unwritable(std::io::Error::other(error)))?
        })
    }
}

impl Live {
    async fn replace(
        &self,
        tuning: Map<String, Value>,
        expected: &Expected,
        actor: &Principal,
    ) -> Result<Arc<SettingsView>, SettingsError> {
        let mut state = self.state.lock().await;
        let file = TuningFile::of(&self.started_with.config.data_dir);
        let lock = self.locked(&file).await?;
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
        let candidate = self.proposed(&document, &state).await?;
        let prepared = prepared(&file, document.clone(), lock).await?;
        self.trail
            .note(actor, &before.tuning, &document.tuning)
            .await?;
        let put = blocking(move || prepared.put()).await;
        put.map_err(SettingsError::Unwritable)?;
        self.put(candidate, &mut state);
        Ok(self.view())
    }

    /// Takes over what another process tuned a moment ago.
    async fn catch_up(&self, file: &TuningFile, state: &mut State) {
        let is_same = match file.read() {
            Ok(document) => document == state.loaded.tuning,
            // What cannot be read is replaced.
            Err(_) => true,
        };
        if !is_same && let Err(error) = self.reload(state).await {
            tracing::error!("what another process tuned cannot be used: {error:#}");
        }
    }

    /// Checks what is to be tuned, as a part of the whole configuration.
    async fn proposed(
        &self,
        document: &TuningDocument,
        state: &State,
    ) -> Result<Candidate, SettingsError> {
        let with = async |document: TuningDocument| {
            let loaded = self.load(TuningUse::Proposed(document)).await?;
            self.candidate(loaded, state)
        };
        let error = match with(document.clone()).await {
            Ok(candidate) => return Ok(candidate),
            Err(error) => error,
        };
        // The file may have become wrong since it was put into use, which no tuning is to blame for.
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

    async fn locked(&self, file: &TuningFile) -> Result<TuningLock, SettingsError> {
        let file = file.clone();
        let locked = blocking(move || file.lock()).await;
        locked.map_err(SettingsError::Unwritable)
    }
}

/// Returns the refusal of the first key that is wrong, with all others.
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

async fn prepared(
    file: &TuningFile,
    document: TuningDocument,
    lock: TuningLock,
) -> Result<Prepared, SettingsError> {
    let file = file.clone();
    let prepared = blocking(move || file.prepare(&document, lock)).await;
    prepared.map_err(SettingsError::Unwritable)
}

/// Does what blocks a thread where that is no matter.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(std::io::Error::other)?
}
