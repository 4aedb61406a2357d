//! The programs of all upstreams: what they share, and the pools of their processes.

use std::path::Path;
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use validator::Validate;

use super::config::{Isolation, UpstreamConfig, UpstreamConfigError};
use riglm_adapters_programs::Connector;
use riglm_adapters_programs::guard::Guard;
use riglm_adapters_programs::pool::{PoolOptions, PooledConnector};
use riglm_adapters_programs::{StartGate, StartTime, StdioConnector};

/// Makes the connectors of upstreams whose programs start through one gate.
#[derive(Debug)]
pub struct Programs {
    guard: Option<Arc<Guard>>,
    gate: StartGate,
    /// The pools, which are closed at the end. Those of removed upstreams may be gone.
    pools: Mutex<Vec<Weak<PooledConnector>>>,
}

impl Programs {
    /// Returns a maker of connectors. `guard` ends the child processes if the proxy dies.
    #[must_use]
    pub fn new(guard: Option<Arc<Guard>>) -> Self {
        Self {
            guard,
            gate: StartGate::default(),
            pools: Mutex::default(),
        }
    }

    /// Returns the connector for `config`. Sessions with a process of their own take it from a pool.
    /// Obtained tokens are stored under `data_dir`.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamConfigError`] when the configuration is invalid or cannot be used.
    pub fn connector(
        &self,
        name: UpstreamName,
        config: &UpstreamConfig,
        data_dir: &Path,
    ) -> Result<Connector, UpstreamConfigError> {
        config.validate()?;
        let Some(program) = self.stdio_connector(&name, config) else {
            return super::connector(name, config, None, data_dir);
        };
        if config.isolation == Isolation::Shared {
            return Ok(Arc::new(program));
        }
        let options = PoolOptions {
            idle_timeout: config.idle_timeout,
            max_processes: config.max_connections,
            spare: config.spare,
            start_time: Arc::clone(&program.start_time),
        };
        let pool = Arc::new(PooledConnector::new(Arc::new(program), options));
        let mut pools = self.pools.lock();
        pools.retain(|known| known.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        Ok(pool)
    }

    /// Returns the connector of the program, if `config` has one.
    pub(super) fn stdio_connector(
        &self,
        name: &UpstreamName,
        config: &UpstreamConfig,
    ) -> Option<StdioConnector> {
        let (program, arguments) = config.command.as_deref()?.split_first()?;
        Some(StdioConnector {
            name: name.clone(),
            program: program.clone(),
            arguments: arguments.to_vec(),
            environment: config.env.clone(),
            directory: config.cwd.clone(),
            limits: config.limits(),
            guard: self.guard.clone(),
            failure_log: Arc::default(),
            start_time: Arc::new(StartTime::new(config.start_timeout)),
            gate: self.gate.clone(),
        })
    }

    /// Ends the processes that no connection uses, and waits for the end of all whose connections
    /// are closed. Call it when all sessions are closed.
    pub async fn close(&self) {
        let pools: Vec<_> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
        join_all(pools.iter().map(|pool| pool.close())).await;
    }
}
