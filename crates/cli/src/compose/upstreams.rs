//! From the configuration of upstreams to their connectors, for the start and for every change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::Context;
use futures_util::future::join_all;
use riglm_adapters_mcp::upstream::{Guard, Isolation, ToolChanges, connector};
use riglm_adapters_storage::Storage;
use riglm_app::approvals::Approvals;
use riglm_app::bridge::{BridgeOptions, EraConnector};
use riglm_app::proxy::{Upstream, UpstreamOptions};
use riglm_app::shared_upstream::SharedConnector;
use riglm_ports::analytics::ToolApprovalRepository;
use riglm_ports::clock::Clock;
use riglm_ports::upstream::UpstreamConnector;

use super::fingerprint::Fingerprints;
use super::telemetry::Telemetry;
use crate::config::{self, ConfigError};

/// Makes upstreams from their configuration.
#[derive(Debug)]
pub(crate) struct Upstreams {
    guard: Option<Arc<Guard>>,
    data_dir: PathBuf,
    fingerprints: Fingerprints,
    bridge: BridgeOptions,
    /// For those whose changes of tools are held back.
    approvals: Arc<Approvals>,
    /// What has to be closed at the end, when no session uses it any more.
    shared: Mutex<Vec<Weak<SharedConnector>>>,
}

impl Upstreams {
    /// Returns a maker of upstreams whose child processes `guard` watches over, whose tokens lie in
    /// `data_dir`, and whose tools `approvals` decides about where changes are held back.
    ///
    /// # Errors
    ///
    /// Returns that there are no random numbers.
    pub(crate) fn new(
        guard: Option<Arc<Guard>>,
        data_dir: &Path,
        approvals: Arc<Approvals>,
    ) -> anyhow::Result<Self> {
        // What is sealed with it is about calls in the memory of this process: it needs no key that
        // outlives it.
        let mut state_key = [0; 32];
        getrandom::fill(&mut state_key).context("failed to get random numbers")?;
        Ok(Self {
            guard,
            data_dir: data_dir.to_owned(),
            fingerprints: Fingerprints::new()?,
            bridge: BridgeOptions::new(state_key),
            approvals,
            shared: Mutex::default(),
        })
    }

    /// Returns the upstreams that `configured` describes, those of `current` where they fit.
    ///
    /// # Errors
    ///
    /// Returns the upstreams that cannot be used, and why.
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
        let transport = connector(name.clone(), config, self.guard.clone(), &self.data_dir)
            .map_err(|error| ConfigError::unusable(name, &error))?;
        let connector: Arc<dyn UpstreamConnector> = match config.isolation {
            Isolation::PerSession => transport,
            Isolation::Shared => {
                let shared = Arc::new(SharedConnector::new(transport));
                self.remember(&shared);
                shared
            }
        };
        Ok(Upstream {
            connector: Arc::new(EraConnector::new(connector, self.bridge.clone())),
            options: UpstreamOptions {
                unavailable: config.unavailable,
                idle_timeout: config.idle_timeout,
                max_connections: config
                    .bounds_connections()
                    .then_some(config.max_connections),
                health_check: config.health_check,
            },
            fingerprint,
            approvals: (config.tool_changes == ToolChanges::Hold)
                .then(|| Arc::clone(&self.approvals)),
        })
    }

    fn remember(&self, connector: &Arc<SharedConnector>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|known| known.strong_count() > 0);
        shared.push(Arc::downgrade(connector));
    }

    /// Closes the connections that sessions shared. To be called when all sessions are closed.
    pub(crate) async fn close(&self) {
        let shared: Vec<Arc<SharedConnector>> = {
            let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.iter().filter_map(Weak::upgrade).collect()
        };
        join_all(shared.iter().map(|connector| connector.close())).await;
    }
}

/// Returns what holds changes of tools back, for the upstreams that want it.
pub(super) fn approvals_from(
    storage: Option<&Storage>,
    telemetry: &Telemetry,
    clock: Arc<dyn Clock>,
) -> Arc<Approvals> {
    let store =
        storage.map(|storage| Arc::new(storage.store.clone()) as Arc<dyn ToolApprovalRepository>);
    Arc::new(Approvals::new(store, telemetry.observer(), clock))
}

#[cfg(test)]
mod tests {
    use riglm_app::clock::SystemClock;
    use riglm_domain::id::UpstreamName;
    use riglm_ports::observer::Unobserved;

    use super::*;

    fn upstreams() -> Upstreams {
        let approvals = Approvals::new(None, Arc::new(Unobserved), Arc::new(SystemClock));
        Upstreams::new(None, Path::new("/nowhere"), Arc::new(approvals)).unwrap()
    }

    #[test]
    fn changes_of_tools_pass_unless_they_are_to_be_held_back() {
        let all = [
            configured("a", r#"{"command":["a"]}"#),
            configured("b", r#"{"command":["b"],"tool_changes":"hold"}"#),
        ];
        let built = upstreams().build(&all, &[]).unwrap();
        assert!(built[0].approvals.is_none());
        assert!(built[1].approvals.is_some());
    }

    fn configured(name: &str, json: &str) -> config::Upstream {
        config::Upstream {
            name: UpstreamName::parse(name).unwrap(),
            config: serde_json::from_str(json).unwrap(),
        }
    }

    #[test]
    fn what_did_not_change_stays_what_it_is() {
        let upstreams = upstreams();
        let a = || configured("a", r#"{"command":["a"],"isolation":"shared"}"#);
        let before = [a(), configured("b", r#"{"command":["b"]}"#)];
        let before = upstreams.build(&before, &[]).unwrap();
        let after = [configured("b", r#"{"command":["c"]}"#), a()];
        let after = upstreams.build(&after, &before).unwrap();
        assert!(Arc::ptr_eq(&after[1].connector, &before[0].connector));
        assert!(!Arc::ptr_eq(&after[0].connector, &before[1].connector));
        assert_eq!(upstreams.shared.lock().unwrap().len(), 1);
    }

    #[test]
    fn all_upstreams_that_cannot_be_used_are_named() {
        let upstreams = upstreams();
        let wrong = ["files", "more"].map(|name| configured(name, r#"{"url":"ftp://a"}"#));
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
