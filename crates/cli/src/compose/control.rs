//! The control server: what it tells, who may do what, and its socket.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use riglm_adapters_http::{
    ControlAddress, ControlConfig, ControlKey, ControlKeys, ControlParts, HealthSource, Scope,
    Store as ControlStore, StoreCondition, StoreHealth, UpstreamCondition, UpstreamHealth,
    Upstreams as ControlUpstreams,
};
use riglm_adapters_storage::Storage;
use riglm_app::clock::SystemClock;
use riglm_app::learning::NextTools;
use riglm_app::overrides::Overrides;
use riglm_app::proxy::{Proxy, UpstreamState};
use riglm_app::search::ToolSearch;
use riglm_app::settings::Settings;
use riglm_domain::key_digest::KeyDigest;
use riglm_domain::principal::Principal;
use riglm_ports::analytics::JournalCondition;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::learning::learning_state;
use super::search::encoder_states;
use crate::config::Config;

/// What the control server tells of.
pub(super) struct ControlSources<'a> {
    pub(super) proxy: &'a Arc<Proxy>,
    pub(super) storage: Option<&'a Arc<Storage>>,
    pub(super) search: Option<Arc<ToolSearch>>,
    pub(super) next_tools: Option<Arc<NextTools>>,
    pub(super) settings: Option<Arc<dyn Settings>>,
}

impl ControlSources<'_> {
    /// Returns what the control server stands on.
    pub(super) fn into_parts(self, config: &Config) -> anyhow::Result<ControlParts> {
        let overrides = self.storage.map(|storage| {
            let store = Arc::new(storage.store.clone());
            Arc::new(Overrides::new(store.clone(), store, Arc::new(SystemClock)))
        });
        Ok(ControlParts {
            health: HealthSource {
                version: env!("CARGO_PKG_VERSION"),
                upstreams: upstream_states(self.proxy),
                store: store_state(self.storage),
                encoders: encoder_states(self.search),
                learning: learning_state(self.next_tools),
            },
            keys: control_keys(&config.control, &config.data_dir)?,
            overrides,
            settings: self.settings,
        })
    }
}

/// Returns what the control server asks for the upstreams.
fn upstream_states(proxy: &Arc<Proxy>) -> ControlUpstreams {
    let proxy = Arc::clone(proxy);
    Arc::new(move || {
        let states = proxy.upstream_states();
        states.into_iter().map(health_of).collect()
    })
}

fn health_of(state: UpstreamState) -> UpstreamHealth {
    let condition = if !state.is_available {
        UpstreamCondition::Unavailable {
            reason: state.reason,
        }
    } else if state.n_connections == 0 {
        UpstreamCondition::Unused
    } else {
        UpstreamCondition::Available
    };
    UpstreamHealth {
        name: state.name.as_str().into(),
        condition,
    }
}

/// Returns what the control server asks for the store.
fn store_state(storage: Option<&Arc<Storage>>) -> ControlStore {
    let storage = storage.cloned();
    Arc::new(move || match &storage {
        None => StoreHealth {
            condition: StoreCondition::Off,
            waiting_bytes: 0,
            dropped_records: 0,
        },
        Some(storage) => StoreHealth {
            condition: match (storage.condition(), storage.damage()) {
                (JournalCondition::Behind { reason }, _) => StoreCondition::Degraded { reason },
                (JournalCondition::Sound, Some(damage)) => StoreCondition::Degraded {
                    reason: damage.into(),
                },
                (JournalCondition::Sound, None) => StoreCondition::Ok,
            },
            waiting_bytes: storage.waiting_bytes(),
            dropped_records: storage.dropped_records(),
        },
    })
}

/// Returns the keys of the control server: its token, which is made where none is configured, and
/// those of the configuration.
fn control_keys(control: &ControlConfig, data_dir: &Path) -> anyhow::Result<ControlKeys> {
    if control.address == ControlAddress::Off {
        return Ok(ControlKeys::default());
    }
    let token = match &control.token {
        Some(token) => Some(token.digest().context("control.token")?),
        None => token_of(data_dir),
    };
    let token = token.map(|digest| ControlKey {
        holder: Principal::named("control"),
        digest,
        scopes: Scope::ALL.to_vec(),
    });
    let mut keys: Vec<ControlKey> = token.into_iter().collect();
    for (name, key) in &control.keys {
        let digest = key.key.digest();
        keys.push(ControlKey {
            holder: Principal::named(name),
            digest: digest.with_context(|| format!("control.keys.{name}.key"))?,
            scopes: key.scopes.clone(),
        });
    }
    Ok(ControlKeys::new(keys))
}

/// Returns the token in the data directory. Where there is none to be had the proxy goes on without
/// what needs it.
fn token_of(data_dir: &Path) -> Option<KeyDigest> {
    let token = riglm_adapters_storage::control_token(data_dir).map_err(anyhow::Error::from);
    let digest = token.and_then(|token| Ok(KeyDigest::of(&token)?));
    digest
        .inspect_err(|error| {
            tracing::warn!("the control server answers GET /health alone: no token: {error:#}");
        })
        .ok()
}

/// Starts the control server, if there is to be one.
pub(super) async fn start_control(
    control: &ControlConfig,
    parts: ControlParts,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let ControlAddress::At(address) = control.address else {
        return Ok(());
    };
    let listener = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => listener,
        // Several proxies on one machine, one for each client, are the normal case: the first one
        // has the default address. An address that somebody chose must be had.
        Err(error) if control.address == ControlConfig::default().address => {
            tracing::warn!("no control server: failed to listen on {address}: {error}");
            return Ok(());
        }
        Err(error) => {
            return Err(error).with_context(|| format!("failed to listen on {address}"));
        }
    };
    tasks.spawn(riglm_adapters_http::serve(
        listener,
        control.clone(),
        parts,
        stop.clone(),
    ));
    Ok(())
}
