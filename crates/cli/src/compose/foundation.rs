//! The foundation: configuration, store, clock and tasks, which most parts of the proxy need.

use std::sync::Arc;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_adapters_storage::{Storage, Store};
use riglm_app::clock::SystemClock;
use riglm_app::tracking::CachedTokenCounter;
use riglm_domain::id::RunId;
use riglm_ports::clock::Clock;
use riglm_ports::observer::Observer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::extensions::Extensions;
use super::recording::storage_from;
use super::telemetry::Telemetry;
use crate::config::Config;

/// The configuration and the shared parts that most others need.
pub(super) struct Foundation<'a> {
    pub(super) config: &'a Config,
    /// The parts that replace configured ones.
    pub(super) extensions: Extensions,
    /// The store of recorded data; `None` with recording off.
    pub(super) storage: Option<Arc<Storage>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Recorded rows and budgets share it, so that each text is counted once.
    pub(super) counter: Arc<CachedTokenCounter>,
    pub(super) telemetry: Telemetry,
    /// Ends the background tasks.
    pub(super) stop: CancellationToken,
    /// The background tasks.
    pub(super) tasks: TaskTracker,
}

impl<'a> Foundation<'a> {
    /// Opens the store for the run of this process.
    pub(super) async fn open(
        config: &'a Config,
        run: RunId,
        extensions: Extensions,
    ) -> anyhow::Result<Self> {
        let clock = extensions.clock.clone();
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        Ok(Self {
            config,
            extensions,
            storage: storage_from(config, run, &*clock).await?,
            counter: Arc::new(CachedTokenCounter::new(Arc::new(O200kTokenCounter))),
            telemetry: Telemetry::new(Arc::clone(&clock))?,
            clock,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// Returns an observer that forwards each event to all observers.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        self.telemetry.observer()
    }

    /// Returns the repositories of recorded data.
    pub(super) fn store(&self) -> Option<Arc<Store>> {
        let storage = self.storage.as_ref()?;
        Some(Arc::new(storage.store.clone()))
    }
}
