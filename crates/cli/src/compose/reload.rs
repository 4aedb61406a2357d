//! Following the configuration while the proxy runs: it is loaded and checked as a whole, and what can
//! change takes effect at once; the rest is named. Files, SIGHUP and the control server lead here.

use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use riglm_app::proxy::Upstream;
use riglm_app::settings::{SettingsTrail, SettingsView};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Notify};

use super::followers::Followers;
use crate::config::{Config, ConfigSource, Loaded, TuningUse, Watch};

/// What the configuration of a proxy comes from.
#[derive(Debug)]
pub struct Following {
    /// The configuration that the proxy is started with.
    pub loaded: Loaded,
    /// Where it came from.
    pub watch: Watch,
    /// Asks for it to be loaded again, whether a file changed or not.
    pub asked: Arc<Notify>,
}

/// A proxy that follows its configuration.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) source: ConfigSource,
    pub(super) started_with: Loaded,
    pub(super) followers: Followers,
    pub(super) trail: SettingsTrail,
    /// Held while it changes.
    pub(super) state: Mutex<State>,
    /// What the control server shows of it.
    view: RwLock<Arc<SettingsView>>,
}

/// What is in use.
#[derive(Debug)]
pub(super) struct State {
    /// As it was loaded last.
    pub(super) loaded: Loaded,
    /// As much of it as can change, and what stays.
    config: Config,
    upstreams: Vec<Upstream>,
}

/// A configuration that was checked and can be put into use.
#[derive(Debug)]
pub(super) struct Candidate(State);

impl Live {
    /// Returns a proxy that is in use as it was started.
    pub(super) fn new(
        source: ConfigSource,
        loaded: Loaded,
        upstreams: Vec<Upstream>,
        followers: Followers,
        trail: SettingsTrail,
    ) -> Self {
        let state = State {
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

    /// Follows the configuration until it is dropped.
    pub(super) async fn run(self: Arc<Self>, mut watch: Watch, asked: Arc<Notify>) {
        loop {
            tokio::select! {
                () = watch.changed() => {}
                () = asked.notified() => watch.note(),
            }
            let mut state = self.state.lock().await;
            if let Err(error) = self.reload(&mut state).await {
                tracing::error!(
                    "the configuration is not changed, since it cannot be used: {error:#}"
                );
            }
        }
    }

    /// Loads the configuration and puts it into use, as far as it can change.
    pub(super) async fn reload(&self, state: &mut State) -> anyhow::Result<()> {
        // Where what is tuned was of no use at the start, it holds nothing up now.
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
                "{} cannot be changed while riglm runs: {}; the change takes effect at the next \
                 start",
                fixed.key,
                fixed.why
            );
        }
        let candidate = self.candidate(loaded, state)?;
        self.put(candidate, state);
        Ok(())
    }

    /// Loads the configuration on a thread that may be blocked: names of addresses are asked for, which
    /// may take long.
    pub(super) async fn load(&self, tuning: TuningUse) -> anyhow::Result<Loaded> {
        let source = self.source.clone();
        let loading = tokio::task::spawn_blocking(move || source.load(tuning));
        Ok(loading
            .await
            .context("failed to load the configuration")??)
    }

    /// Checks a configuration against what stays.
    pub(super) fn candidate(&self, loaded: Loaded, state: &State) -> anyhow::Result<Candidate> {
        let config = self.started_with.followed_by(&loaded.config)?;
        let upstreams = &self.followers.upstreams;
        let upstreams = upstreams.build(config.upstreams()?, &state.upstreams)?;
        Ok(Candidate(State {
            loaded,
            config,
            upstreams,
        }))
    }

    /// Puts a configuration into use.
    pub(super) fn put(&self, Candidate(next): Candidate, state: &mut State) {
        let tuned = state.loaded.tuned_differences(&next.loaded);
        let are_keys_new = note_of_keys(&state.config, &next.config);
        self.followers.follow(&state.config, &next.config);
        let is_same = fingerprints(&next.upstreams) == fingerprints(&state.upstreams);
        if !is_same {
            self.followers.replace_upstreams(next.upstreams.clone());
        }
        if !tuned.is_empty() {
            tracing::info!("the configuration changed: {}", tuned.join(", "));
        } else if is_same && !are_keys_new {
            tracing::info!("the configuration was loaded again; nothing in it takes effect now");
        }
        let view = Arc::new(view_of(&self.started_with, &next.loaded));
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = view;
        *state = next;
    }

    /// Returns what the control server shows.
    pub(super) fn view(&self) -> Arc<SettingsView> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Says whose keys are others now; returns whether there are such.
fn note_of_keys(before: &Config, now: &Config) -> bool {
    let (of_clients, of_operators) = (before.keys != now.keys, before.control != now.control);
    if of_clients {
        tracing::info!("the keys of clients changed");
    }
    if of_operators {
        tracing::info!("the keys of operators changed");
    }
    of_clients || of_operators
}

/// Says that what was tuned is of no use.
pub(super) fn warn_of_ignored(reason: &str) {
    tracing::warn!("what was tuned is ignored, since it cannot be used: {reason}");
}

fn fingerprints(upstreams: &[Upstream]) -> Vec<&str> {
    upstreams
        .iter()
        .map(|upstream| upstream.fingerprint.as_str())
        .collect()
}

/// Returns what the control server shows of a configuration.
fn view_of(started_with: &Loaded, loaded: &Loaded) -> SettingsView {
    let mut view = SettingsView {
        version: loaded.tuning.version,
        tuning: loaded.tuning.tuning.clone(),
        effective: started_with.in_use(loaded),
        tunable: started_with.tunable(),
        tag: String::new(),
    };
    let digest = Sha256::new()
        .chain_update(serde_json::Value::Object(view.tuning.clone()).to_string())
        .chain_update(view.effective.to_string())
        .finalize();
    view.tag = format!("{}-", view.version);
    for byte in digest.iter().take(8) {
        // Writing to a string cannot fail.
        let _ = write!(view.tag, "{byte:02x}");
    }
    view
}
