//! Reload of the configuration while the proxy runs. The whole configuration is loaded and checked.
//! Keys that can change take effect at once; the log names the others. Changes of files, SIGHUP and
//! the control API lead here.

use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::RwLock;
use riglm_app::control::settings::{SettingsTrail, SettingsView};
use riglm_app::proxy::Upstream;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Notify};

use super::model_watch::ModelWatch;
use super::reload_targets::{ChangedParts, ReloadTargets};
use super::search::chooses_model;
use crate::config::{Config, ConfigSource, LoadedConfig, TuningUse, Watch};

/// The sources for reloading the configuration of a proxy.
#[derive(Debug)]
pub struct ReloadSource {
    /// The configuration at the start.
    pub loaded: LoadedConfig,
    /// The watch on the files of the configuration.
    pub watch: Watch,
    /// Requests a reload, even if no file changed.
    pub asked: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct ReloadingProxy {
    pub(super) source: ConfigSource,
    pub(super) started_with: LoadedConfig,
    pub(super) followers: ReloadTargets,
    pub(super) trail: SettingsTrail,
    /// Locked during a change.
    pub(super) state: Mutex<ActiveConfig>,
    /// The settings that the control API shows.
    view: RwLock<Arc<SettingsView>>,
}

/// The configuration in use.
#[derive(Debug)]
pub(super) struct ActiveConfig {
    /// The configuration as it was loaded last.
    pub(super) loaded: LoadedConfig,
    /// The effective configuration: changeable keys of the last one, other keys of the first one.
    config: Config,
    upstreams: Vec<Upstream>,
}

/// A checked configuration that can be applied.
#[derive(Debug)]
pub(super) struct Candidate {
    next: ActiveConfig,
    parts: ChangedParts,
}

impl ReloadingProxy {
    /// Creates the state of a proxy after its start.
    pub(super) fn new(
        source: ConfigSource,
        loaded: LoadedConfig,
        upstreams: Vec<Upstream>,
        followers: ReloadTargets,
        trail: SettingsTrail,
    ) -> Self {
        let state = ActiveConfig {
            config: loaded.config.clone(),
            loaded: loaded.clone(),
            upstreams,
        };
        Self {
            source,
            view: RwLock::new(Arc::new(view_of(&loaded, &loaded))),
            started_with: loaded,
            followers,
            trail,
            state: Mutex::new(state),
        }
    }

    /// Reloads the configuration on changes and requests. It runs until it is dropped.
    pub(super) async fn run(self: Arc<Self>, mut watch: Watch, asked: Arc<Notify>) {
        let mut models = ModelWatch::new(self.started_with.config.data_dir.clone());
        loop {
            tokio::select! {
                () = watch.wait_for_change() => {}
                () = asked.notified() => watch.note(),
                model = models.wait_for_change() => {
                    self.follow_model(model.as_deref()).await;
                    continue;
                }
            }
            let mut state = self.state.lock().await;
            if let Err(error) = self.reload(&mut state).await {
                tracing::error!(
                    "configuration reload failed, so the configuration stays unchanged: {error:#}"
                );
            }
        }
    }

    /// Takes the best pulled model into use, if the configuration leaves the choice.
    async fn follow_model(&self, model: Option<&str>) {
        let state = self.state.lock().await;
        if !chooses_model(&state.config) {
            return;
        }
        match self.followers.follow_models(&state.config) {
            Ok(()) => tracing::info!(
                "the model of the search is now {}",
                model.unwrap_or("the embedded table")
            ),
            Err(error) => tracing::error!("failed to use model {model:?}: {error:#}"),
        }
    }

    /// Loads the configuration, and applies the keys that can change.
    pub(super) async fn reload(&self, state: &mut ActiveConfig) -> anyhow::Result<()> {
        // A tuning file that was ignored at the start must not block a reload.
        let tuning = if state.loaded.ignored.is_some() {
            TuningUse::IfSound
        } else {
            TuningUse::Stored
        };
        let loaded = self.load(tuning).await?;
        if let Some(reason) = &loaded.ignored {
            warn_of_ignored(reason);
        }
        for fixed in self.started_with.fixed_differences(&loaded) {
            tracing::warn!(
                "{} cannot be changed while riglm runs: {}; restart riglm to apply the change",
                fixed.key,
                fixed.why
            );
        }
        let candidate = self.candidate(loaded, state)?;
        self.put(candidate, state);
        Ok(())
    }

    /// Loads the configuration on a blocking thread: it may resolve host names, which may take
    /// long.
    pub(super) async fn load(&self, tuning: TuningUse) -> anyhow::Result<LoadedConfig> {
        let source = self.source.clone();
        let loading = tokio::task::spawn_blocking(move || source.load(tuning));
        Ok(loading
            .await
            .context("failed to load the configuration")??)
    }

    /// Checks a configuration together with the keys that cannot change.
    pub(super) fn candidate(
        &self,
        loaded: LoadedConfig,
        state: &ActiveConfig,
    ) -> anyhow::Result<Candidate> {
        let config = self.started_with.followed_by(&loaded.config)?;
        let upstreams = &self.followers.upstreams;
        let upstreams = upstreams.build(config.upstreams()?, &state.upstreams)?;
        let parts = self.followers.build_parts(&state.config, &config)?;
        let next = ActiveConfig {
            loaded,
            config,
            upstreams,
        };
        Ok(Candidate { next, parts })
    }

    /// Applies a configuration.
    pub(super) fn put(&self, Candidate { next, parts }: Candidate, state: &mut ActiveConfig) {
        let tuned = state.loaded.tuned_differences(&next.loaded);
        let are_keys_new = note_of_keys(&state.config, &next.config);
        self.followers.follow(&state.config, &next.config, parts);
        let is_same = fingerprints(&next.upstreams) == fingerprints(&state.upstreams);
        if !is_same {
            self.followers.replace_upstreams(next.upstreams.clone());
        }
        if !tuned.is_empty() {
            tracing::info!("configuration changed: {}", tuned.join(", "));
        } else if is_same && !are_keys_new {
            tracing::info!("configuration reloaded: no runtime change");
        }
        let view = Arc::new(view_of(&self.started_with, &next.loaded));
        *self.view.write() = view;
        *state = next;
    }

    /// Returns the settings that the control API shows.
    pub(super) fn view(&self) -> Arc<SettingsView> {
        Arc::clone(&self.view.read())
    }
}

/// Logs which kinds of keys changed, and returns whether any did.
fn note_of_keys(before: &Config, now: &Config) -> bool {
    let (of_clients, of_operators) = (before.keys != now.keys, before.control != now.control);
    if of_clients {
        tracing::info!("configuration changed: client keys");
    }
    if of_operators {
        tracing::info!("configuration changed: keys of the control port");
    }
    of_clients || of_operators
}

/// Warns that the tuning file is ignored.
pub(super) fn warn_of_ignored(reason: &str) {
    tracing::warn!("tuning ignored, because it is invalid: {reason}");
}

fn fingerprints(upstreams: &[Upstream]) -> Vec<&str> {
    upstreams
        .iter()
        .map(|upstream| upstream.fingerprint.as_str())
        .collect()
}

/// Returns the settings that the control API shows for a configuration.
fn view_of(started_with: &LoadedConfig, loaded: &LoadedConfig) -> SettingsView {
    let mut view = SettingsView {
        version: loaded.tuning.version,
        tuning: loaded.tuning.tuning.clone(),
        effective: started_with.effective_values(loaded),
        tunable: started_with.tunable(),
        tag: String::new(),
    };
    let digest = Sha256::new()
        .chain_update(serde_json::Value::Object(view.tuning.clone()).to_string())
        .chain_update(view.effective.to_string())
        .finalize();
    view.tag = format!("{}-{}", view.version, hex::encode(&digest[..8]));
    view
}
