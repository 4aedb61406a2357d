//! The control server: its sources, its keys, and its socket.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use jiff::Timestamp;
use riglm_adapters_http::{
    ControlConfig, ControlParts, HealthSource, MetricsSource, SetupSource, Store as ControlStore,
    StoreCondition, StoreHealth, UpstreamCondition, UpstreamHealth, Upstreams as ControlUpstreams,
};
use riglm_adapters_storage::{Storage, Store, erase};
use riglm_adapters_telemetry::Metrics;
use riglm_app::clock::SystemClock;
use riglm_app::control::audit_log::AuditLog;
use riglm_app::control::client_data::{
    ClientDataAccess, ClientDataService, ClientRow, ClientSelector, ErasureReport,
};
use riglm_app::control::current_filtering::CurrentFiltering;
use riglm_app::control::feedback::FeedbackService;
use riglm_app::control::learning_report::LearningReports;
use riglm_app::control::name_lookup::NameLookup;
use riglm_app::control::overrides::{OverriddenLists, Overrides, OverridesParts};
use riglm_app::control::overview::OverviewService;
use riglm_app::control::queries::Queries;
use riglm_app::control::settings::SharedSettings;
use riglm_app::proxy::{Proxy, UpstreamState};
use riglm_app::selection::{ListFilter, OperatorOverrides};
use riglm_app::tracking::Recorder;
use riglm_discovery::learning::LivePredictions;
use riglm_discovery::search::ToolSearch;
use riglm_ports::analytics::{ClientData as _, JournalCondition, StoreError};
use riglm_ports::observer::NoObserver;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::control_threads::ControlThreads;
use super::experiments::experiment_service_from;
use super::foundation::Foundation;
use super::keys::Keys;
use super::learning::learning_state;
use super::search::encoder_states;
use super::telemetry::ReadingSources;
use super::{NotListening, ProxyPort};
use crate::announcement::Announcement;
use crate::config::Config;

/// The sources of the control API.
pub(super) struct ControlSources<'a> {
    pub(super) proxy: &'a Arc<Proxy>,
    pub(super) search: Arc<ToolSearch>,
    pub(super) predictions: LivePredictions,
    pub(super) filter: ListFilter,
    pub(super) overrides: Arc<OperatorOverrides>,
    pub(super) recorder: &'a Arc<Recorder>,
    pub(super) stop: &'a CancellationToken,
    pub(super) settings: Option<SharedSettings>,
    pub(super) setup: Option<SetupSource>,
    pub(super) keys: &'a Keys,
}

impl ControlSources<'_> {
    /// Returns the services of the control API. Parts that need stored data are `None` without a
    /// store.
    pub(super) fn into_parts(self, base: &Foundation<'_>) -> ControlParts {
        let (config, telemetry) = (base.config, &base.telemetry);
        let store = base.store();
        let experiments = experiment_service_from(base);
        let queries = store.clone().map(|store| {
            let queries = Queries::new(store, Arc::clone(&base.clock));
            let queries = queries.with_token_counter(Arc::clone(&base.counter));
            Arc::new(queries.with_proxy(Arc::clone(self.proxy)))
        });
        let overrides = store.zip(queries.as_ref()).map(|(store, queries)| {
            let names = names_from(config, queries).with_proxy(Arc::clone(self.proxy));
            Arc::new(Overrides::new(OverridesParts {
                store: store.clone(),
                trail: store,
                names,
                observer: base.observer(),
                clock: Arc::clone(&base.clock),
                followed: Some(Arc::clone(&self.overrides)),
                lists: OverriddenLists::Own(self.filter),
            }))
        });
        let feedback = queries.clone().map(|queries| {
            let observer = base.observer();
            let service = FeedbackService::new(queries, Arc::clone(self.recorder), observer);
            Arc::new(service.with_recommender(self.proxy.recommender().cloned()))
        });
        let filtering = CurrentFiltering::new(config.filtering.clone(), self.settings.clone());
        let overview = OverviewService::new(
            Arc::clone(self.proxy),
            queries.clone(),
            filtering.clone(),
            Arc::clone(&base.clock),
        );
        let learning = queries.clone().map(|queries| {
            let reports = LearningReports::new(queries, filtering);
            Arc::new(reports)
        });
        let sources = ReadingSources {
            proxy: Arc::clone(self.proxy),
            storage: base.storage.clone(),
            search: Arc::clone(&self.search),
            predictions: self.predictions.clone(),
            started_at: seconds(base.clock.now()),
        };
        telemetry
            .metrics
            .set_readings_source(move || sources.read());
        let metrics = Arc::clone(&telemetry.metrics);
        let proxy = Arc::clone(self.proxy);
        ControlParts {
            health: HealthSource {
                version: env!("CARGO_PKG_VERSION"),
                upstreams: upstream_states(self.proxy),
                store: store_state(base.storage.as_ref(), &self.overrides),
                encoders: encoder_states(self.search),
                learning: learning_state(self.predictions),
                is_stopping: Arc::new(move || proxy.is_stopping()),
            },
            metrics: MetricsSource::new(Metrics::MEDIA_TYPE, move || Ok(metrics.text()?)),
            events: Arc::clone(&telemetry.feed),
            proxy: Arc::clone(self.proxy),
            overview: Arc::new(overview),
            learning,
            queries,
            feedback,
            stop: self.stop.clone(),
            keys: self.keys.control(),
            overrides,
            experiments,
            client_data: client_data_from(base),
            settings: self.settings,
            setup: self.setup,
        }
    }
}

/// The timeout for a running proxy to drain its records of a client to the database.
pub(crate) const CARRY_WITHIN: Duration = Duration::from_secs(10);

/// Returns the export and deletion of the data of clients; `None` if nothing is stored.
fn client_data_from(base: &Foundation<'_>) -> Option<Arc<ClientDataService>> {
    let store = base.store()?;
    let log = AuditLog::new(Some(Arc::<Store>::clone(&store)), Arc::clone(&base.clock));
    let access = DataDirectory {
        store,
        path: base.config.data_dir.clone(),
    };
    Some(Arc::new(ClientDataService::new(access, log)))
}

/// The database and the spool of a data directory.
#[derive(Debug)]
struct DataDirectory {
    store: Arc<Store>,
    path: PathBuf,
}

#[async_trait]
impl ClientDataAccess for DataDirectory {
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError> {
        self.store.export(clients, take).await
    }

    async fn erase(&self, clients: &ClientSelector) -> Result<ErasureReport, StoreError> {
        erase(
            &*self.store,
            &self.path,
            clients,
            CARRY_WITHIN,
            &SystemClock,
        )
        .await
    }
}

/// Returns the resolver of names in requests of operators.
fn names_from(config: &Config, queries: &Arc<Queries>) -> NameLookup {
    let profiles = config.profiles.keys().cloned().collect();
    NameLookup::new(Arc::clone(queries), profiles, config.naming)
}

/// Creates the override service over a store, for a process that serves no clients.
pub fn overrides_over(config: &Config, store: &Arc<Store>) -> Overrides {
    let clock = Arc::new(SystemClock);
    let queries = Arc::new(Queries::new(store.clone(), clock.clone()));
    Overrides::new(OverridesParts {
        store: store.clone(),
        trail: store.clone(),
        names: names_from(config, &queries),
        observer: Arc::new(NoObserver),
        clock,
        followed: None,
        lists: OverriddenLists::OfOthers(config.filtering.uses_predictions()),
    })
}

/// Converts a time to seconds since 1970-01-01 UTC.
#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds since 1970 are far below 2^53"
)]
fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1_000.0
}

/// Returns the source of the health of upstreams.
fn upstream_states(proxy: &Arc<Proxy>) -> ControlUpstreams {
    let proxy = Arc::clone(proxy);
    Arc::new(move || {
        let states = proxy.upstream_states();
        states.into_iter().map(health_of).collect()
    })
}

fn health_of(state: UpstreamState) -> UpstreamHealth {
    let condition = if !state.is_available {
        UpstreamCondition::Unavailable { reason: state.kind }
    } else if state.was_used {
        UpstreamCondition::Available
    } else if state.is_starting {
        UpstreamCondition::Starting
    } else {
        UpstreamCondition::Unused
    };
    UpstreamHealth {
        name: state.name.as_str().into(),
        condition,
    }
}

/// Returns the source of the health of the store.
fn store_state(storage: Option<&Arc<Storage>>, overrides: &Arc<OperatorOverrides>) -> ControlStore {
    let (storage, overrides) = (storage.cloned(), Arc::clone(overrides));
    Arc::new(move || match &storage {
        None => StoreHealth {
            condition: StoreCondition::Off,
            waiting_bytes: 0,
            dropped_records: 0,
            is_read: true,
        },
        Some(storage) => StoreHealth {
            condition: match (storage.condition(), storage.damage()) {
                (JournalCondition::Behind { reason }, _) => StoreCondition::Degraded { reason },
                (JournalCondition::Sound, Some(damage)) => StoreCondition::Degraded {
                    reason: damage.into(),
                },
                (JournalCondition::Sound, None) => StoreCondition::Ok,
            },
            is_read: overrides.is_known(),
            waiting_bytes: storage.waiting_bytes(),
            dropped_records: storage.dropped_records(),
        },
    })
}

/// Starts the control server if it is on, and returns its address and its threads.
pub(super) async fn start_control(
    control: &ControlConfig,
    parts: ControlParts,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<Option<(SocketAddr, ControlThreads)>> {
    let addresses = control.addresses();
    if addresses.is_empty() {
        return Ok(None);
    }
    let started = ControlThreads::start();
    let (threads, handle) = started.context("failed to start the threads of the control port")?;
    // The listener belongs to the runtime in which it is opened.
    let opening = handle.spawn(async move { listen(&addresses).await });
    let Some(listener) = opening.await.context("the control port")?? else {
        return Ok(None);
    };
    let address = listener.local_addr();
    let address = address.context("failed to read the address of the control port")?;
    let serving = riglm_adapters_http::serve(listener, control.clone(), parts, stop.clone());
    let serving = handle.spawn(serving);
    tasks.spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!("control port: the server has ended: {error}");
        }
    });
    Ok(Some((address, threads)))
}

// Announced for commands such as `riglm upstreams`. A failure is only a warning: the proxy works
// without it.
pub(super) fn announce(data_dir: &Path, address: SocketAddr) -> Option<Announcement> {
    match Announcement::new(data_dir, address) {
        Ok(announcement) => Some(announcement),
        Err(error) => {
            tracing::warn!(
                "control port: failed to write its address to {}: {error}; `riglm upstreams` finds \
                 this proxy only with --control {address}",
                data_dir.display()
            );
            None
        }
    }
}

/// Listens on the first available address. If none of several default ports is available, the proxy
/// starts without a control server. A single address was configured, so its failure is an error.
async fn listen(addresses: &[SocketAddr]) -> anyhow::Result<Option<TcpListener>> {
    let mut refused = None;
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(Some(listener)),
            // Any other reason says more than a port in use.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && refused.is_some() => {}
            Err(error) => refused = Some((address, error)),
        }
    }
    let (Some((address, error)), [first, others @ ..]) = (refused, addresses) else {
        return Ok(None);
    };
    let Some(last) = others.last() else {
        return Err(error).context(NotListening {
            port: ProxyPort::Control,
            address: *address,
        });
    };
    tracing::warn!(
        "no control port: all ports from {first} to {} are unavailable: {address}: {error}",
        last.port()
    );
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address of a documentation range, which no machine has.
    fn absent(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[tokio::test]
    async fn unavailable_default_addresses_do_not_prevent_startup() {
        let several = [absent(1), absent(2)];
        assert!(listen(&several).await.unwrap().is_none());
        assert!(listen(&[]).await.unwrap().is_none());
        let error = listen(&several[..1]).await.unwrap_err();
        assert_eq!(error.to_string(), "failed to listen on 192.0.2.1:1");
    }

    #[tokio::test]
    async fn first_available_address_is_bound() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = taken.local_addr().unwrap();
        let free = ([127, 0, 0, 1], 0).into();
        let found = listen(&[taken, absent(1), free]).await.unwrap();
        assert!(found.unwrap().local_addr().unwrap().ip().is_loopback());
    }
}
