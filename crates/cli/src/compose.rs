//! The composition root: the only place that connects the adapters.

mod control;
mod experiments;
mod fingerprint;
mod keys;
mod learning;
mod lists;
mod recommend;
mod reload;
mod reload_targets;
mod safeguards;
mod search;
mod settings;
mod telemetry;
mod upstreams;
mod weights;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use riglm_adapters_mcp::downstream::ListenConfig;
use riglm_adapters_mcp::downstream::http::{HttpOptions, HttpServer};
use riglm_adapters_mcp::upstream::Guard;
use riglm_adapters_prediction::O200kTokenCounter;
use riglm_adapters_storage::{NoJournal, RecordingConfig, RecordingMode, Storage, TokenSizes};
use riglm_adapters_telemetry::OtlpTracer;
use riglm_app::clock::SystemClock;
use riglm_app::control::retention::Retention;
use riglm_app::control::settings::{Settings, SettingsTrail};
use riglm_app::proxy::{OwnToolNames, Proxy, ProxyParts, Upstream};
use riglm_app::selection::{Forbidden, ListFilter};
use riglm_app::tracking::{CachedTokenCounter, Recorder, RecorderOptions, RecordingPolicy};
use riglm_app::work_sessions::WorkSessions;
use riglm_discovery::experiments::Experiments;
use riglm_discovery::intent::Intents;
use riglm_domain::id::{Entropy, RunId, ToolName};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::safeguards::admission::Admission;
use riglm_ports::analytics::{AuditTrail, Journal};
use riglm_ports::clock::Clock;
use riglm_ports::token_counter::TokenCounter;
use riglm_ports::tracer::Tracer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::announcement::Announcement;
use crate::config::{Config, LoggingConfig};
pub use control::overrides_over;
use control::{ControlSources, announce, start_control};
use experiments::experiments_from;
use keys::Keys;
use learning::learning_from;
pub(crate) use lists::{answer_size, words};
use lists::{filter_from, forbidden_from};
use recommend::recommender_from;
pub use recommend::recommender_over;
pub use reload::ReloadSource;
use reload::{ReloadingProxy, warn_of_ignored};
use reload_targets::{ReloadTargets, expect_principals};
use safeguards::safeguards_from;
pub use search::{EncoderUse, encoders_from};
use search::{is_searched, search_from};
use settings::LiveSettings;
use telemetry::Telemetry;
use upstreams::{UpstreamFactory, approvals_from};
use weights::weights_from;

/// The complete proxy, before it accepts clients.
#[derive(Debug)]
pub struct Core {
    /// The proxy.
    pub proxy: Arc<Proxy>,
    /// The address of the control server, if it is on.
    pub control: Option<SocketAddr>,
    announcement: Option<Announcement>,
    upstreams: Arc<UpstreamFactory>,
    storage: Option<Arc<Storage>>,
    recorder: Arc<Recorder>,
    traces: Option<Arc<OtlpTracer>>,
    keys: Arc<Keys>,
    stop: CancellationToken,
    /// Cancelled after all sessions have ended, so that operators can observe the shutdown.
    operating: CancellationToken,
    tasks: TaskTracker,
}

/// Builds the proxy and opens its store. With `following`, the proxy reloads its configuration when
/// it changes.
///
/// # Errors
///
/// Returns the error of opening a resource, or of an unusable configuration.
#[expect(
    clippy::too_many_lines,
    reason = "the composition root reads from top to bottom"
)]
pub async fn build(config: &Config, following: Option<ReloadSource>) -> anyhow::Result<Core> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let run = RunId::new(clock.now(), entropy()?);
    let storage = storage_from(config, run, &*clock).await?;
    let telemetry = Telemetry::new(Arc::clone(&clock))?;
    let counter = token_counter();
    let recorder = recorder_from(config, storage.as_deref(), (&clock, &counter), run)?;
    telemetry.feed.know_sessions(recorder.known_sessions());
    let approvals = approvals_from(storage.as_deref(), &telemetry, Arc::clone(&clock));
    let upstreams = Arc::new(UpstreamFactory::new(guard()?, &config.data_dir, approvals)?);
    let current = upstreams.build(config.upstreams()?, &[])?;
    let experiments = experiments_from(config, storage.as_ref(), Arc::clone(&clock)).await?;
    let stored = (storage.as_ref(), experiments.as_ref());
    let learning = learning_from(&config.prediction, stored, Arc::clone(&clock));
    let (next_tools, learning) = learning.unzip();
    let learned = (next_tools.as_ref(), experiments.as_ref());
    let around = || (Arc::clone(&clock), telemetry.observer());
    let search = search_from(config, storage.as_ref(), learned, around())?;
    expect_upstreams(&telemetry, &current);
    let forbidden = forbidden_from(config, storage.as_ref(), Arc::clone(&clock)).await;
    let filter = filter_from(config, storage.as_ref(), learned, around());
    let filter = filter.with_forbidden(Arc::clone(&forbidden));
    let (stop, operating) = (CancellationToken::new(), CancellationToken::new());
    let tasks = TaskTracker::new();
    let weights = weights_from(config, storage.as_deref(), &clock, (&stop, &tasks));
    let recommender = recommender_from(
        config,
        storage.as_ref(),
        search.as_ref(),
        (&recorder, &weights),
        experiments.as_ref(),
        around(),
    )?;
    let intents = intents_from(config);
    let traces = traces_from(config)?;
    let tools = meta_tools(config);
    let parts = ProxyParts {
        upstreams: current.clone(),
        naming: config.naming,
        recorder: Arc::clone(&recorder),
        filter: filter.clone(),
        limits: config.limits.clone(),
        search: search.clone().filter(|_| is_searched(config)),
        recommender: recommender.clone(),
        safeguards: safeguards_from(
            config,
            &tools,
            (search.as_ref(), &filter),
            (counter, telemetry.observer()),
        ),
        intents: intents.clone(),
        next_tools: next_tools.clone(),
        observer: telemetry.observer(),
        work_sessions: work_sessions_from(config, storage.as_deref())?,
        tools,
    };
    let proxy = Arc::new(Proxy::with_tracer(parts, tracer_of(traces.as_ref())));
    expect_principals(&proxy, config);
    let retention = start_retention(config, storage.as_deref(), &clock, (&stop, &tasks));
    start_watching(&proxy, (&filter, &forbidden), experiments, (&stop, &tasks));
    if let Some(learning) = learning {
        tasks.spawn(learning.run(stop.clone()));
    }
    let keys = Arc::new(Keys::new(config)?);
    tasks.spawn(Arc::clone(&keys).keep_watch(stop.clone()));
    let followers = ReloadTargets {
        keys: Arc::clone(&keys),
        proxy: Arc::clone(&proxy),
        upstreams: Arc::clone(&upstreams),
        filter,
        forbidden: Arc::clone(&forbidden),
        next_tools: next_tools.clone(),
        intents,
        recommender,
        weights,
        retention,
        observer: telemetry.observer(),
        n_followed: AtomicU64::new(0),
    };
    let settings = following.map(|following| {
        let trail = SettingsTrail::new(audit_trail(storage.as_deref()), clock);
        let live = live_from(following, current, followers, trail, (&stop, &tasks));
        Arc::new(LiveSettings(live)) as Arc<dyn Settings>
    });
    let parts = ControlSources {
        proxy: &proxy,
        storage: storage.as_ref(),
        search,
        next_tools,
        forbidden,
        recorder: &recorder,
        telemetry: &telemetry,
        stop: &operating,
        settings,
        keys: &keys,
    };
    let parts = parts.into_parts(config);
    let control = start_control(&config.control, parts, &operating, &tasks).await?;
    let announcement = control.and_then(|address| announce(&config.data_dir, address));
    Ok(Core {
        proxy,
        control,
        announcement,
        upstreams,
        storage,
        recorder,
        traces,
        keys,
        stop,
        operating,
        tasks,
    })
}

/// Creates the metric series of all upstreams, so that they exist before the first call.
fn expect_upstreams(telemetry: &Telemetry, upstreams: &[Upstream]) {
    for upstream in upstreams {
        telemetry
            .metrics
            .register_upstream(upstream.connector.name());
    }
}

fn recorder_from(
    config: &Config,
    storage: Option<&Storage>,
    (clock, counter): (&Arc<dyn Clock>, &Arc<dyn TokenCounter>),
    run: RunId,
) -> anyhow::Result<Arc<Recorder>> {
    let hasher = hasher_from(config)?;
    let options = recorder_options(&config.recording, &config.logging);
    let recorder = Recorder::new(journal_of(storage), hasher, Arc::clone(clock), run, options);
    let recorder = with_token_sizes(recorder, &config.recording, counter)?;
    Ok(Arc::new(recorder))
}

/// Returns the token counter. Recorded rows and budgets share it, so that each text is counted
/// once.
fn token_counter() -> Arc<dyn TokenCounter> {
    Arc::new(CachedTokenCounter::new(Arc::new(O200kTokenCounter)))
}

/// Starts the background tasks of the proxy, of lists and of experiments. They notice changes by
/// operators and by other processes.
fn start_watching(
    proxy: &Arc<Proxy>,
    (filter, forbidden): (&ListFilter, &Arc<Forbidden>),
    experiments: Option<Arc<Experiments>>,
    (stop, tasks): (&CancellationToken, &TaskTracker),
) {
    let watched = Arc::clone(proxy);
    let watch = async move { watched.run_sweeper().await };
    tasks.spawn(stop.clone().run_until_cancelled_owned(watch));
    tasks.spawn(Arc::clone(forbidden).keep_watch(stop.clone()));
    if let Some(lists) = filter.lists() {
        tasks.spawn(Arc::clone(lists).keep_watch(stop.clone()));
    }
    if let Some(experiments) = experiments {
        tasks.spawn(experiments.watch_changes(stop.clone()));
    }
}

/// Starts the deletion of old rows, if there is a store. Returns the sender of the retention
/// period.
fn start_retention(
    config: &Config,
    storage: Option<&Storage>,
    clock: &Arc<dyn Clock>,
    (stop, tasks): (&CancellationToken, &TaskTracker),
) -> watch::Sender<Option<Duration>> {
    let (retention, keep) = watch::channel(config.recording.retention());
    if let Some(storage) = storage {
        let retention = Retention {
            store: Arc::new(storage.store.clone()),
            clock: Arc::clone(clock),
            keep,
        };
        tasks.spawn(retention.run(stop.clone()));
    }
    retention
}

impl Core {
    /// Ends everything: first the sessions, then the store, and last the traces.
    pub async fn shutdown(self) {
        self.proxy.shutdown().await;
        let limit = self.proxy.time_to_close();
        // Connections that are not closed in time end with the process.
        let _ = tokio::time::timeout(limit, self.upstreams.close()).await;
        self.stop.cancel();
        // Before the port is free: otherwise the token could go to another program on it.
        drop(self.announcement);
        self.operating.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.recorder.close().await;
        if let Some(storage) = self.storage {
            storage.close().await;
        }
        if let Some(traces) = self.traces {
            traces.close().await;
        }
    }
}

/// The proxy with an open MCP port.
#[derive(Debug)]
pub struct Running {
    core: Core,
    address: SocketAddr,
}

/// Builds the proxy and serves it over HTTP. With `following`, the proxy reloads its configuration.
///
/// # Errors
///
/// Returns the errors of [`build`], and the error of binding the address.
pub async fn start(config: Config, following: Option<ReloadSource>) -> anyhow::Result<Running> {
    // The future of the whole composition is large.
    let core = Box::pin(build(&config, following)).await?;
    let options = HttpOptions {
        address: config.listen.address,
        admission: admission_from(&config.listen),
        authenticator: core.keys.clients(),
        profiles: config.profiles.into_keys().collect(),
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
    let (proxy, stop) = (Arc::clone(&core.proxy), core.stop.clone());
    core.tasks
        .spawn(async move { proxy.check_upstreams(&stop).await });
    Ok(Running { core, address })
}

impl Running {
    /// Returns the URL for clients.
    #[must_use]
    pub fn mcp_url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the address of the control server, if it is on.
    #[must_use]
    pub fn control(&self) -> Option<SocketAddr> {
        self.core.control
    }

    /// Lets requests in flight end, then ends everything.
    pub async fn shutdown(self) {
        // The server stops first, so that it accepts no new calls while the others end.
        self.core.stop.cancel();
        self.core.shutdown().await;
    }
}

/// Returns the audit trail; `None` if nothing is stored.
fn audit_trail(storage: Option<&Storage>) -> Option<Arc<dyn AuditTrail>> {
    storage.map(|storage| Arc::new(storage.store.clone()) as Arc<dyn AuditTrail>)
}

fn live_from(
    following: ReloadSource,
    upstreams: Vec<Upstream>,
    followers: ReloadTargets,
    trail: SettingsTrail,
    (stop, tasks): (&CancellationToken, &TaskTracker),
) -> Arc<ReloadingProxy> {
    let ReloadSource {
        loaded,
        watch,
        asked,
    } = following;
    if let Some(reason) = &loaded.ignored {
        warn_of_ignored(reason);
    }
    let source = watch.source().clone();
    let live = Arc::new(ReloadingProxy::new(
        source, loaded, upstreams, followers, trail,
    ));
    let running = Arc::clone(&live).run(watch, asked);
    tasks.spawn(stop.clone().run_until_cancelled_owned(running));
    live
}

/// Opens the store, unless recording is off.
async fn storage_from(
    config: &Config,
    run: RunId,
    clock: &dyn Clock,
) -> anyhow::Result<Option<Arc<Storage>>> {
    if config.recording.mode == RecordingMode::Off {
        return Ok(None);
    }
    let (storage, recording) = (&config.storage, &config.recording);
    let opening = riglm_adapters_storage::open(storage, recording, &config.data_dir, run, clock);
    Ok(Some(Arc::new(opening.await?)))
}

fn tracer_of(traces: Option<&Arc<OtlpTracer>>) -> Option<Arc<dyn Tracer>> {
    traces.map(|traces| Arc::clone(traces) as Arc<dyn Tracer>)
}

/// Returns the exporter of traces; `None` if no receiver is configured.
fn traces_from(config: &Config) -> anyhow::Result<Option<Arc<OtlpTracer>>> {
    let started = config.telemetry.traces().map(OtlpTracer::start);
    Ok(started.transpose()?.map(Arc::new))
}

fn journal_of(storage: Option<&Storage>) -> Arc<dyn Journal> {
    match storage {
        Some(storage) => Arc::clone(&storage.journal),
        None => Arc::new(NoJournal),
    }
}

/// Returns the hasher with the key of the installation. With recording off no hash is stored, so
/// the key is random and no file is written.
fn hasher_from(config: &Config) -> anyhow::Result<KeyedHasher> {
    if config.recording.mode != RecordingMode::Off {
        return Ok(riglm_adapters_storage::keyed_hasher(&config.data_dir)?);
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("failed to get random numbers")?;
    Ok(KeyedHasher::new(&key))
}

fn recorder_options(recording: &RecordingConfig, logging: &LoggingConfig) -> RecorderOptions {
    RecorderOptions {
        policy: match recording.mode {
            RecordingMode::Off => RecordingPolicy::Off,
            RecordingMode::BestEffort => RecordingPolicy::BestEffort,
            RecordingMode::Required => RecordingPolicy::Required,
        },
        include_arguments: logging.include_arguments,
        include_results: logging.include_results,
    }
}

fn with_token_sizes(
    recorder: Recorder,
    recording: &RecordingConfig,
    counter: &Arc<dyn TokenCounter>,
) -> anyhow::Result<Recorder> {
    if recording.mode == RecordingMode::Off || recording.tokens == TokenSizes::Estimated {
        return Ok(recorder);
    }
    recorder
        .with_token_counter(Arc::clone(counter))
        .context("failed to start the token counter")
}

/// Returns the store of session intents; `None` if no list ever hides a tool, because only the
/// selection needs them.
fn intents_from(config: &Config) -> Option<Arc<Intents>> {
    let is_wanted = config.filtering.may_hide();
    is_wanted.then(|| Arc::new(Intents::new(config.intent)))
}

/// Returns the derivation of work sessions; `None` if it is off.
fn work_sessions_from(
    config: &Config,
    storage: Option<&Storage>,
) -> anyhow::Result<Option<Arc<WorkSessions>>> {
    if !config.work_sessions.enabled {
        return Ok(None);
    }
    let store = storage.map(|storage| Arc::new(storage.store.clone()) as Arc<_>);
    let idle_gap = config.work_sessions.idle_gap();
    let work_sessions = WorkSessions::new(store, hasher_from(config)?, idle_gap);
    Ok(Some(Arc::new(work_sessions)))
}

/// Returns the names of riglm's own tools that are on.
fn meta_tools(config: &Config) -> OwnToolNames {
    let (search, recommend) = (&config.search, &config.recommend);
    let long_results = &config.safeguards.long_results;
    let named = |is_there: bool, name: &str| {
        let name = ToolName::from(name);
        (search.enabled && is_there).then_some(name)
    };
    let recommends = recommend.enabled && recommend.tools;
    OwnToolNames {
        search: named(true, &search.tool_name),
        call_tool: named(search.call_tool, &search.call_tool_name),
        set_context: named(search.set_context, &search.set_context_name),
        recommend: named(recommends, &recommend.tool_name),
        rate_tool: named(recommends, &recommend.rate_tool_name),
        read_more: named(long_results.is_on(), &long_results.tool_name),
    }
}

fn admission_from(listen: &ListenConfig) -> Admission {
    let mut hosts = listen.allowed_hosts.clone();
    hosts.push(listen.address.to_string());
    Admission::new(&hosts, &listen.allowed_origins)
}

/// Returns the guard of child processes: this program in a hidden command.
fn guard() -> anyhow::Result<Option<Arc<Guard>>> {
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

fn entropy() -> anyhow::Result<Entropy> {
    let mut bytes = Entropy::default();
    getrandom::fill(&mut bytes).context("failed to get random numbers")?;
    Ok(bytes)
}
