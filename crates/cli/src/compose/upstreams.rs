//! Connectors for the configured upstreams, at the start and at every reload.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use anyhow::Context;
use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_adapters_mcp::upstream::shared::SharedConnector;
use riglm_adapters_mcp::upstream::{Guard, Isolation, Programs, ToolChanges};
use riglm_app::control::approvals::Approvals;
use riglm_app::proxy::{Upstream, UpstreamOptions};
use riglm_domain::mcp::protocol::{Era, Revision};
use riglm_ports::analytics::ToolApprovalRepository;
use riglm_ports::upstream::UpstreamConnector;

use super::fingerprint::Fingerprints;
use super::foundation::Foundation;
use super::recording::hasher_from;
use crate::config::{self, ConfigError};

/// A factory of upstreams.
#[derive(Debug)]
pub(crate) struct UpstreamFactory {
    programs: Programs,
    data_dir: PathBuf,
    fingerprints: Fingerprints,
    bridge: BridgeOptions,
    /// Used by upstreams whose tool changes need approval.
    approvals: Arc<Approvals>,
    /// The shared connectors, which are closed at the end. Those without a session may be gone.
    shared: Mutex<Vec<Weak<SharedConnector>>>,
}

impl UpstreamFactory {
    /// Creates a factory of upstreams. `guard` ends their child processes, `data_dir` has their
    /// tokens, `approvals` decides about held changes of their tools, and `fingerprints` tells
    /// their configurations apart.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random numbers.
    pub(crate) fn new(
        guard: Option<Arc<Guard>>,
        data_dir: &Path,
        approvals: Arc<Approvals>,
        fingerprints: Fingerprints,
    ) -> anyhow::Result<Self> {
        // It seals the state of calls in the memory of this process, so the key may end with the
        // process.
        let mut state_key = [0; 32];
        getrandom::fill(&mut state_key).context("failed to get random numbers")?;
        Ok(Self {
            programs: Programs::new(guard),
            data_dir: data_dir.to_owned(),
            fingerprints,
            bridge: BridgeOptions::new(state_key),
            approvals,
            shared: Mutex::default(),
        })
    }

    /// Returns the upstreams for `configured`, reusing those of `current` with the same
    /// fingerprint.
    ///
    /// # Errors
    ///
    /// Returns the errors of all upstreams that cannot be used.
    pub(crate) fn build(
        &self,
        configured: &[config::Upstream],
        current: &[Upstream],
    ) -> Result<Vec<Upstream>, ConfigError> {
        let make = |configured: &config::Upstream| {
            let fingerprint = self.fingerprints.of(configured);
            let known = current
                .iter()
                .find(|upstream| upstream.fingerprint == fingerprint);
            match known {
                Some(known) => Ok(known.clone()),
                None => self.make(configured, fingerprint),
            }
        };
        let (mut usable, mut unusable) = (Vec::new(), Vec::new());
        for upstream in configured.iter().map(make) {
            match upstream {
                Ok(upstream) => usable.push(upstream),
                Err(error) => unusable.push(error),
            }
        }
        if unusable.is_empty() {
            Ok(usable)
        } else {
            Err(ConfigError::all(unusable))
        }
    }

    fn make(
        &self,
        configured: &config::Upstream,
        fingerprint: String,
    ) -> Result<Upstream, ConfigError> {
        let config::Upstream { name, config } = configured;
        let transport = (self.programs)
            .connector(name.clone(), config, &self.data_dir)
            .map_err(|error| ConfigError::unusable(name, &error))?;
        let connector: Arc<dyn UpstreamConnector> = match config.isolation {
            Isolation::PerSession => transport,
            Isolation::Shared => {
                let shared = Arc::new(SharedConnector::new(transport));
                self.remember(&shared);
                shared
            }
        };
        let eras = EraConnector::new(connector, self.bridge.clone());
        Ok(Upstream {
            connector: Arc::new(match &config.revision {
                Some(revision) => eras.with_era(era_of(revision)),
                None => eras,
            }),
            options: UpstreamOptions {
                unavailable: config.unavailable,
                idle_timeout: config.idle_timeout,
                max_connections: config
                    .bounds_connections()
                    .then_some(config.max_connections),
                health_check: config.health_check,
                starts_processes: config.bounds_connections(),
            },
            fingerprint,
            server_fingerprint: self.fingerprints.of_server(configured),
            approvals: (config.tool_changes == ToolChanges::Hold)
                .then(|| Arc::clone(&self.approvals)),
        })
    }

    fn remember(&self, connector: &Arc<SharedConnector>) {
        let mut shared = self.shared.lock();
        shared.retain(|known| known.strong_count() > 0);
        shared.push(Arc::downgrade(connector));
    }

    /// Closes the shared connections and ends all processes. Call it after all sessions are closed.
    pub(crate) async fn close(&self) {
        let shared: Vec<Arc<SharedConnector>> = {
            let shared = self.shared.lock();
            shared.iter().filter_map(Weak::upgrade).collect()
        };
        join_all(shared.iter().map(|connector| connector.close())).await;
        self.programs.close().await;
    }
}

fn era_of(revision: &Revision) -> Era {
    if revision.as_str() == Revision::NEWEST_MODERN {
        Era::Modern
    } else {
        Era::Legacy
    }
}

/// Returns the builder of upstreams.
pub(super) fn upstreams_from(base: &Foundation<'_>) -> anyhow::Result<UpstreamFactory> {
    let store = base
        .store()
        .map(|store| store as Arc<dyn ToolApprovalRepository>);
    let approvals = Approvals::new(store, base.observer(), Arc::clone(&base.clock));
    let fingerprints = Fingerprints::new(&hasher_from(base.config)?);
    let data_dir = &base.config.data_dir;
    UpstreamFactory::new(guard()?, data_dir, Arc::new(approvals), fingerprints)
}

/// Returns the guard of child processes: this program in a hidden command.
pub(crate) fn guard() -> anyhow::Result<Option<Arc<Guard>>> {
    let program =
        std::env::current_exe().context("failed to find the path of the riglm program")?;
    let Ok(program) = program.into_os_string().into_string() else {
        tracing::warn!(
            "path of the riglm program is not UTF-8: child processes may outlive riglm if it is \
             killed"
        );
        return Ok(None);
    };
    Ok(Some(Arc::new(Guard::new(vec![program, "__guard".into()]))))
}

#[cfg(test)]
mod tests {
    use riglm_app::clock::SystemClock;
    use riglm_domain::id::UpstreamName;
    use riglm_domain::privacy::canonical::KeyedHasher;
    use riglm_ports::observer::NoObserver;

    use super::*;

    fn upstreams() -> UpstreamFactory {
        let approvals = Approvals::new(None, Arc::new(NoObserver), Arc::new(SystemClock));
        let fingerprints = Fingerprints::new(&KeyedHasher::new(&[1; 32]));
        UpstreamFactory::new(
            None,
            Path::new("/nowhere"),
            Arc::new(approvals),
            fingerprints,
        )
        .unwrap()
    }

    #[test]
    fn changes_of_tools_pass_unless_they_are_to_be_held_back() {
        let all = [
            upstream_config("a", r#"{"command":["a"]}"#),
            upstream_config("b", r#"{"command":["b"],"tool_changes":"hold"}"#),
        ];
        let built = upstreams().build(&all, &[]).unwrap();
        assert!(built[0].approvals.is_none());
        assert!(built[1].approvals.is_some());
    }

    fn upstream_config(name: &str, json: &str) -> config::Upstream {
        config::Upstream {
            name: UpstreamName::parse(name).unwrap(),
            config: serde_json::from_str(json).unwrap(),
        }
    }

    #[test]
    fn unchanged_upstreams_keep_their_connector() {
        let upstreams = upstreams();
        let a = || upstream_config("a", r#"{"command":["a"],"isolation":"shared"}"#);
        let before = [a(), upstream_config("b", r#"{"command":["b"]}"#)];
        let before = upstreams.build(&before, &[]).unwrap();
        let after = [upstream_config("b", r#"{"command":["c"]}"#), a()];
        let after = upstreams.build(&after, &before).unwrap();
        assert!(Arc::ptr_eq(&after[1].connector, &before[0].connector));
        assert!(!Arc::ptr_eq(&after[0].connector, &before[1].connector));
        assert_eq!(upstreams.shared.lock().len(), 1);
    }

    #[test]
    fn all_unusable_upstreams_are_named() {
        let upstreams = upstreams();
        let wrong = ["files", "more"].map(|name| upstream_config(name, r#"{"url":"ftp://a"}"#));
        let error = upstreams.build(&wrong, &[]).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2, "{error}");
        assert!(
            lines[0].starts_with("failed to use upstream files: "),
            "{error}"
        );
        assert!(
            lines[1].starts_with("failed to use upstream more: "),
            "{error}"
        );
    }
}
