//! The composition root: the only place where adapters meet.

mod fingerprint;
mod reload;
mod upstreams;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use riglm_adapters_http::{
    ControlAddress, ControlConfig, HealthSource, Store as ControlStore, StoreCondition,
    StoreHealth, UpstreamCondition, UpstreamHealth, Upstreams as ControlUpstreams,
};
use riglm_adapters_mcp::downstream::ListenConfig;
use riglm_adapters_mcp::downstream::http::{HttpOptions, HttpServer};
use riglm_adapters_mcp::upstream::Guard;
use riglm_adapters_prediction::{O200kTokenCounter, predictor_from};
use riglm_adapters_storage::{RecordingConfig, RecordingMode, Storage, TokenSizes};
use riglm_app::clock::SystemClock;
use riglm_app::filtering::ListFilter;
use riglm_app::proxy::{Proxy, ProxyParts, Upstream, UpstreamState};
use riglm_app::tracking::{Recorder, RecorderOptions};
use riglm_app::upkeep::Retention;
use riglm_domain::admission::Admission;
use riglm_domain::id::{Entropy, RunId};
use riglm_ports::analytics::JournalCondition;
use riglm_ports::authenticator::{Authenticator, Unauthenticated};
use riglm_ports::clock::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, KeyRing, LoggingConfig, Watch};
use reload::Reload;
use upstreams::Upstreams;

/// The proxy with everything it stands on, not yet reachable by any client.
#[derive(Debug)]
pub struct Core {
    /// The proxy.
    pub proxy: Arc<Proxy>,
    upstreams: Arc<Upstreams>,
    current: Vec<Upstream>,
    storage: Arc<Storage>,
    recorder: Arc<Recorder>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Builds the proxy and opens its store.
///
/// # Errors
///
/// Returns what could not be opened or is configured in a way that cannot work.
pub async fn build(config: &Config) -> anyhow::Result<Core> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let run = RunId::new(clock.now(), entropy()?);
    let storage = riglm_adapters_storage::open(
        &config.storage,
        &config.recording,
        &config.data_dir,
        run,
        &*clock,
    )
    .await?;
    let storage = Arc::new(storage);
    let hasher = riglm_adapters_storage::keyed_hasher(&config.data_dir)?;
    let options = recorder_options(&config.recording, &config.logging);
    let journal = Arc::clone(&storage.journal);
    let recorder = Recorder::new(journal, hasher, Arc::clone(&clock), run, options);
    let recorder = Arc::new(with_token_sizes(recorder, config.recording.tokens)?);
    let upstreams = Upstreams::new(guard()?, &config.data_dir)?;
    let current = upstreams.build(config.upstreams()?, &[])?;
    let proxy = Arc::new(Proxy::new(ProxyParts {
        upstreams: current.clone(),
        naming: config.naming,
        recorder: Arc::clone(&recorder),
        filter: ListFilter::new(predictor_from(&config.filtering)),
        limits: config.limits.clone(),
    }));
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let watch = Arc::clone(&proxy);
    tasks.spawn(
        stop.clone()
            .run_until_cancelled_owned(async move { watch.keep_watch().await }),
    );
    let retention = Retention {
        store: Arc::new(storage.store.clone()),
        clock,
        keep: config.recording.retention(),
    };
    tasks.spawn(retention.run(stop.clone()));
    let source = HealthSource {
        version: env!("CARGO_PKG_VERSION"),
        upstreams: upstream_states(&proxy),
        store: store_state(&storage),
    };
    start_control(&config.control, source, &stop, &tasks).await?;
    Ok(Core {
        proxy,
        upstreams: Arc::new(upstreams),
        current,
        recorder,
        storage,
        stop,
        tasks,
    })
}

impl Core {
    /// Keeps the upstreams as they are configured, until the end. `started_with` is what the core
    /// was built from, `watch` where it came from; a notification of `asked` has it loaded again.
    pub fn follow(&self, started_with: Config, watch: Watch, asked: Arc<Notify>) {
        let reload = Reload {
            proxy: Arc::clone(&self.proxy),
            upstreams: Arc::clone(&self.upstreams),
            current: self.current.clone(),
            started_with,
            watch,
            asked,
        };
        let following = self.stop.clone().run_until_cancelled_owned(reload.run());
        self.tasks.spawn(following);
    }

    /// Ends everything: sessions first, the store last.
    pub async fn shutdown(self) {
        self.proxy.shutdown().await;
        self.upstreams.close().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.recorder.close().await;
        self.storage.close().await;
    }
}

/// The proxy with its MCP port open.
#[derive(Debug)]
pub struct Running {
    core: Core,
    address: SocketAddr,
}

/// Builds the proxy and serves it over HTTP.
///
/// # Errors
///
/// Returns what [`build`] returns, and that the address cannot be bound.
pub async fn start(config: Config) -> anyhow::Result<Running> {
    let core = build(&config).await?;
    let options = HttpOptions {
        address: config.listen.address,
        admission: admission_from(&config.listen),
        authenticator: authenticator_from(config.keys),
    };
    let bound = HttpServer::bind(Arc::clone(&core.proxy), options).await;
    let server = match bound {
        Ok(server) => server,
        Err(error) => {
            core.shutdown().await;
            let address = config.listen.address;
            return Err(error).with_context(|| format!("failed to listen on {address}"));
        }
    };
    let address = server.address();
    core.tasks.spawn(server.serve(core.stop.clone()));
    Ok(Running { core, address })
}

impl Running {
    /// Returns the URL that clients are pointed at.
    #[must_use]
    pub fn mcp_url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Keeps the upstreams as they are configured; see [`Core::follow`].
    pub fn follow(&self, started_with: Config, watch: Watch, asked: Arc<Notify>) {
        self.core.follow(started_with, watch, asked);
    }

    /// Lets requests in flight end, then ends everything.
    pub async fn shutdown(self) {
        // The server notices first, so that no new call is taken while the others end.
        self.core.stop.cancel();
        self.core.shutdown().await;
    }
}

fn recorder_options(recording: &RecordingConfig, logging: &LoggingConfig) -> RecorderOptions {
    RecorderOptions {
        is_required: recording.mode == RecordingMode::Required,
        include_arguments: logging.include_arguments,
        include_results: logging.include_results,
    }
}

fn with_token_sizes(recorder: Recorder, sizes: TokenSizes) -> anyhow::Result<Recorder> {
    match sizes {
        TokenSizes::Counted => recorder
            .with_token_counter(Arc::new(O200kTokenCounter))
            .context("failed to start counting tokens"),
        TokenSizes::Estimated => Ok(recorder),
    }
}

fn admission_from(listen: &ListenConfig) -> Admission {
    let mut hosts = listen.allowed_hosts.clone();
    hosts.push(listen.address.to_string());
    Admission::new(&hosts, &listen.allowed_origins)
}

fn authenticator_from(keys: KeyRing) -> Arc<dyn Authenticator> {
    if keys.is_empty() {
        Arc::new(Unauthenticated)
    } else {
        Arc::new(keys)
    }
}

/// Returns the guard of child processes: this program again, in a role of its own.
fn guard() -> anyhow::Result<Option<Arc<Guard>>> {
    let program = std::env::current_exe().context("failed to find the program itself")?;
    let Ok(program) = program.into_os_string().into_string() else {
        tracing::warn!("the path of the program is not UTF-8: children are not guarded");
        return Ok(None);
    };
    Ok(Some(Arc::new(Guard::new(vec![program, "__guard".into()]))))
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
fn store_state(storage: &Arc<Storage>) -> ControlStore {
    let storage = Arc::clone(storage);
    Arc::new(move || StoreHealth {
        condition: match (storage.condition(), storage.damage()) {
            (JournalCondition::Behind { reason }, _) => StoreCondition::Degraded { reason },
            (JournalCondition::Sound, Some(damage)) => StoreCondition::Degraded {
                reason: damage.into(),
            },
            (JournalCondition::Sound, None) => StoreCondition::Ok,
        },
        waiting_bytes: storage.waiting_bytes(),
        dropped_records: storage.dropped_records(),
    })
}

async fn start_control(
    control: &ControlConfig,
    source: HealthSource,
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
        source,
        stop.clone(),
    ));
    Ok(())
}

fn entropy() -> anyhow::Result<Entropy> {
    let mut bytes = Entropy::default();
    getrandom::fill(&mut bytes).context("failed to get random numbers")?;
    Ok(bytes)
}
