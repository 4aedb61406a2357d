//! Following the configuration while the proxy runs: upstreams change at once, the rest is named.

use std::sync::Arc;

use riglm_app::proxy::{Proxy, Upstream};
use tokio::sync::Notify;

use super::upstreams::Upstreams;
use crate::config::{Config, Watch};

/// Keeps the upstreams of a proxy as they are configured.
#[derive(Debug)]
pub(super) struct Reload {
    pub(super) proxy: Arc<Proxy>,
    pub(super) upstreams: Arc<Upstreams>,
    /// What the proxy serves.
    pub(super) current: Vec<Upstream>,
    /// The configuration that the proxy was started with.
    pub(super) started_with: Config,
    pub(super) watch: Watch,
    /// Asks for the configuration to be loaded whether its file changed or not.
    pub(super) asked: Arc<Notify>,
}

impl Reload {
    /// Follows the configuration until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                () = self.watch.changed() => {}
                () = self.asked.notified() => {}
            }
            if let Err(error) = self.reload() {
                tracing::error!(
                    "the configuration is not changed, since it cannot be used: {error:#}"
                );
            }
        }
    }

    /// Loads the configuration and puts its upstreams into use.
    fn reload(&mut self) -> anyhow::Result<()> {
        let config = self.watch.load()?;
        let upstreams = self.upstreams.build(config.upstreams()?, &self.current)?;
        let different = self.started_with.differences(&config);
        if !different.is_empty() {
            tracing::warn!(
                "changes of {} need a restart of riglm to take effect",
                different.join(", ")
            );
        }
        if fingerprints(&upstreams) == fingerprints(&self.current) {
            tracing::info!("the configuration was loaded again; its upstreams are the same");
            return Ok(());
        }
        let names: Vec<&str> = upstreams
            .iter()
            .map(|upstream| upstream.connector.name().as_str())
            .collect();
        tracing::info!("the upstreams changed; they are now: {}", names.join(", "));
        self.current.clone_from(&upstreams);
        self.proxy.replace_upstreams(upstreams);
        Ok(())
    }
}

fn fingerprints(upstreams: &[Upstream]) -> Vec<&str> {
    upstreams
        .iter()
        .map(|upstream| upstream.fingerprint.as_str())
        .collect()
}
