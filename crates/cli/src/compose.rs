//! The composition root: the only place that connects the adapters.

mod control;
mod control_threads;
mod experiments;
mod extensions;
mod fingerprint;
mod foundation;
mod keys;
mod learning;
mod lists;
mod model_watch;
mod recommend;
mod recording;
mod reload;
mod reload_targets;
mod safeguards;
mod search;
mod settings;
mod setup_report;
mod telemetry;
mod upstreams;
mod weights;

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use riglm_adapters_mcp::downstream::ListenConfig;
use riglm_adapters_mcp::downstream::http::{Faces, HttpOptions, HttpServer};
use riglm_adapters_storage::Storage;
use riglm_adapters_telemetry::OtlpTracer;
use riglm_app::clock::SystemClock;
use riglm_app::control::audit_log::AuditLog;
use riglm_app::control::settings::{SettingsTrail, SharedSettings};
use riglm_app::proxy::{OwnTool, OwnToolNames, OwnToolSet, Proxy, ProxyParts, Upstream};
use riglm_app::selection::{ListFilter, OperatorOverrides};
use riglm_app::tracking::Recorder;
use riglm_discovery::experiments::Experiments;
use riglm_discovery::intent::Intents;
use riglm_domain::id::{Entropy, RunId, ToolName};
use riglm_domain::safeguards::admission::Admission;
use riglm_ports::analytics::AuditTrail;
use riglm_ports::clock::Clock as _;
use riglm_ports::tracer::Tracer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::announcement::Announcement;
use crate::config::Config;
pub(crate) use control::CARRY_WITHIN;
pub use control::overrides_over;
use control::{ControlSources, announce, start_control};
use control_threads::ControlThreads;
use experiments::experiments_from;
pub use extensions::{Extensions, MakeLearner, PredictorFactory};
use foundation::Foundation;
use keys::{Keys, keys_from};
use learning::PredictorRunner;
pub(crate) use lists::{answer_size, words};
use lists::{filter_from, forbidden_from, overrides_from};
use recommend::recommender_from;
pub use recommend::recommender_over;
use recording::{recorder_from, start_retention, work_sessions_from};
pub use reload::ReloadSource;
use reload::{ReloadingProxy, warn_of_ignored};
use reload_targets::{ReloadTargets, expect_principals};
use safeguards::SafeguardsFactory;
use search::search_from;
pub use search::{EncoderUse, encoders_from, needs_encoders};
use settings::LiveSettings;
use setup_report::setup_from;
use telemetry::Telemetry;
pub(crate) use upstreams::guard;
use upstreams::{UpstreamFactory, upstreams_from};
use weights::weights_from;

/// A port of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyPort {
    /// The port for clients.
    Mcp,
    /// The port for operators.
    Control,
}

/// A port that could not be opened. The cause is the error of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to listen on {address}")]
pub(crate) struct NotListening {
    pub(crate) port: ProxyPort,
    pub(crate) address: SocketAddr,
}

/// The complete proxy, before it accepts clients.
#[derive(Debug)]
pub struct Core {
    /// The proxy.
    pub proxy: Arc<Proxy>,
    /// The address of the control server, if it is on.
    pub control: Option<SocketAddr>,
    /// The address for clients, as soon as their port is open.
    mcp_port: Arc<OnceLock<SocketAddr>>,
    announcement: Option<Announcement>,
    /// Dropped last: other parts may use connections that the control port has opened.
    control_threads: Option<ControlThreads>,
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
/// it changes. `extensions` replace configured parts.
///
/// # Errors
///
/// Returns the error of opening a resource, or of an unusable configuration.
pub async fn build(
    config: &Config,
    following: Option<ReloadSource>,
    extensions: Extensions,
) -> anyhow::Result<Core> {
    let run = RunId::new(SystemClock.now(), entropy()?);
    let base = Foundation::open(config, run, extensions).await?;

    // The upstreams come first: without a usable one, nothing else is needed.
    let upstreams = Arc::new(upstreams_from(&base)?);
    let current = upstreams.build(config.upstreams()?, &[])?;
    expect_upstreams(&base.telemetry, &current);

    // What is recorded, and what is learned from it.
    let recorder = recorder_from(&base, run)?;
    base.telemetry.feed.know_sessions(recorder.known_sessions());
    let experiments = experiments_from(&base).await?;
    let experiments = experiments.as_ref();
    let predictor = PredictorRunner::new(&base, experiments);
    let predictions = predictor.predictions();
    let built = predictor.build(config)?;
    let search = search_from(&base, predictions, experiments)?;
    let weights = weights_from(&base);
    let recommender = recommender_from(&base, &search, &recorder, &weights, experiments)?;
    // They are in use only while lists may hide tools.
    let intents = Arc::new(Intents::new(config.intent));

    // The proxy.
    let overrides = overrides_from(&base).await;
    let forbidden = forbidden_from(config, &overrides);
    let filter = filter_from(&base, predictions, experiments, &overrides, &forbidden);
    let tools = own_tool_names(config);
    let safeguards = SafeguardsFactory::new(&base, &tools, &search, &filter);
    let traces = traces_from(config)?;
    let parts = ProxyParts {
        upstreams: current.clone(),
        naming: config.naming,
        recorder: Arc::clone(&recorder),
        filter: filter.clone(),
        limits: config.limits.clone(),
        search: Some(Arc::clone(&search)),
        recommender: recommender.clone(),
        safeguards: safeguards.build(config),
        intents: Some(Arc::clone(&intents)),
        predictions: predictions.clone(),
        observer: base.observer(),
        tracer: tracer_of(traces.as_ref()),
        work_sessions: work_sessions_from(&base)?,
        unlisted_tools: unlisted_own_tools(config),
        tools,
        hints: config.hints,
        server_memory: base.store().map(|store| store as _),
    };
    let proxy = proxy_from(parts, config).await;

    // Background tasks.
    let retention = start_retention(&base);
    start_watching(&base, &proxy, &filter, &overrides, experiments);
    predictor.replace(built);
    let keys = keys_from(&base)?;

    // Operation: changes of the configuration, and the control server.
    let targets = ReloadTargets {
        keys: Arc::clone(&keys),
        proxy: Arc::clone(&proxy),
        upstreams: Arc::clone(&upstreams),
        filter: filter.clone(),
        forbidden,
        predictor: Arc::clone(&predictor),
        search: Arc::clone(&search),
        safeguards,
        intents,
        recommender,
        weights,
        retention,
        telemetry: base.telemetry.clone(),
        n_followed: AtomicU64::new(0),
    };
    let mcp_port = Arc::new(OnceLock::new());
    let setup = setup_from(&base, following.as_ref(), Arc::clone(&mcp_port));
    let settings = following.map(|following| settings_from(&base, following, current, targets));
    let operating = CancellationToken::new();
    let sources = ControlSources {
        proxy: &proxy,
        search,
        predictions: predictor.predictions().clone(),
        filter,
        overrides,
        recorder: &recorder,
        stop: &operating,
        settings,
        setup,
        keys: &keys,
    };
    let parts = sources.into_parts(&base);
    let started = start_control(&config.control, parts, &operating, &base.tasks).await?;
    let (control, control_threads) = started.unzip();
    let announcement = control.and_then(|address| announce(&config.data_dir, address));
    Ok(Core {
        proxy,
        control,
        mcp_port,
        announcement,
        control_threads,
        upstreams,
        storage: base.storage,
        recorder,
        traces,
        keys,
        stop: base.stop,
        operating,
        tasks: base.tasks,
    })
}

/// Returns the proxy, which knows what the last run knew of its upstreams.
async fn proxy_from(parts: ProxyParts, config: &Config) -> Arc<Proxy> {
    let proxy = Arc::new(Proxy::new(parts));
    proxy.recall_upstreams().await;
    expect_principals(&proxy, config);
    proxy.set_pause(config.paused);
    proxy
}

/// Creates the metric series of all upstreams, so that they exist before the first call.
fn expect_upstreams(telemetry: &Telemetry, upstreams: &[Upstream]) {
    for upstream in upstreams {
        telemetry
            .metrics
            .register_upstream(upstream.connector.name());
    }
}

/// Starts the background tasks of the proxy, of lists and of experiments. They check the upstreams,
/// and notice changes by operators and by other processes.
fn start_watching(
    base: &Foundation<'_>,
    proxy: &Arc<Proxy>,
    filter: &ListFilter,
    overrides: &Arc<OperatorOverrides>,
    experiments: Option<&Arc<Experiments>>,
) {
    let (stop, tasks) = (&base.stop, &base.tasks);
    let watched = Arc::clone(proxy);
    let watch = async move { watched.run_sweeper().await };
    tasks.spawn(stop.clone().run_until_cancelled_owned(watch));
    let (checked, end) = (Arc::clone(proxy), stop.clone());
    tasks.spawn(async move { checked.check_upstreams(&end).await });
    tasks.spawn(Arc::clone(overrides).keep_watch(stop.clone()));
    if let Some(lists) = filter.all_lists() {
        tasks.spawn(Arc::clone(lists).keep_watch(stop.clone()));
    }
    if let Some(experiments) = experiments {
        tasks.spawn(Arc::clone(experiments).watch_changes(stop.clone()));
    }
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
        drop(self.control_threads);
    }
}

/// The proxy with an open MCP port.
#[derive(Debug)]
pub struct Running {
    core: Core,
    address: SocketAddr,
}

/// Builds the proxy and serves it over HTTP. With `following`, the proxy reloads its configuration.
/// `extensions` replace configured parts.
///
/// # Errors
///
/// Returns the errors of [`build`], and the error of binding the address.
pub async fn start(
    config: Config,
    following: Option<ReloadSource>,
    extensions: Extensions,
) -> anyhow::Result<Running> {
    // The future of the whole composition is large.
    let core = Box::pin(build(&config, following, extensions)).await?;
    let options = HttpOptions {
        address: config.listen.address,
        admission: admission_from(&config.listen),
        authenticator: core.keys.clients(),
        profiles: config.profiles.into_keys().collect(),
        faces: Faces {
            sdk: config.listen.sdk,
        },
    };
    let bound = HttpServer::bind(Arc::clone(&core.proxy), options).await;
    let server = match bound {
        Ok(server) => server,
        Err(error) => {
            core.shutdown().await;
            return Err(error).context(NotListening {
                port: ProxyPort::Mcp,
                address: config.listen.address,
            });
        }
    };
    let address = server.address();
    let _ = core.mcp_port.set(address); // It was not set before.
    core.tasks.spawn(server.serve(core.stop.clone()));
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

/// Starts to follow the configuration. Returns the service for changes of it.
fn settings_from(
    base: &Foundation<'_>,
    following: ReloadSource,
    upstreams: Vec<Upstream>,
    targets: ReloadTargets,
) -> SharedSettings {
    let ReloadSource {
        loaded,
        watch,
        asked,
    } = following;
    if let Some(reason) = &loaded.ignored {
        warn_of_ignored(reason);
    }
    let trail = base.store().map(|store| store as Arc<dyn AuditTrail>);
    let trail = SettingsTrail::new(AuditLog::new(trail, Arc::clone(&base.clock)));
    let source = watch.source().clone();
    let live = ReloadingProxy::new(source, loaded, upstreams, targets, trail);
    let live = Arc::new(live);
    let running = Arc::clone(&live).run(watch, asked);
    base.tasks
        .spawn(base.stop.clone().run_until_cancelled_owned(running));
    Arc::new(LiveSettings(live))
}

fn tracer_of(traces: Option<&Arc<OtlpTracer>>) -> Option<Arc<dyn Tracer>> {
    traces.map(|traces| Arc::clone(traces) as Arc<dyn Tracer>)
}

/// Returns the exporter of traces; `None` if no receiver is configured.
fn traces_from(config: &Config) -> anyhow::Result<Option<Arc<OtlpTracer>>> {
    let started = config.telemetry.traces().map(OtlpTracer::start);
    Ok(started.transpose()?.map(Arc::new))
}

/// Returns the names of riglm's own tools, whether lists have them or not.
fn own_tool_names(config: &Config) -> OwnToolNames {
    let (search, recommend) = (&config.search, &config.recommend);
    let recommends = recommend.enabled && recommend.tools;
    let named = |name: &str| Some(ToolName::from(name));
    OwnToolNames {
        search: named(&search.tool_name),
        call_tool: named(&search.call_tool_name),
        set_context: named(&search.set_context_name),
        recommend: named(&recommend.tool_name).filter(|_| recommends),
        rate_tool: named(&recommend.rate_tool_name).filter(|_| recommends),
        read_more: named(&config.safeguards.long_results.tool_name),
        show_session: named(&search.show_session_name),
    }
}

/// Returns riglm's own tools that are off.
fn unlisted_own_tools(config: &Config) -> OwnToolSet {
    let search = &config.search;
    let off = [
        (OwnTool::Search, !search.enabled),
        (OwnTool::CallTool, !search.call_tool),
        (OwnTool::SetContext, !search.set_context),
        (OwnTool::ReadMore, !config.safeguards.long_results.is_on()),
        (OwnTool::ShowSession, !search.show_session),
    ];
    let off = off.into_iter().filter(|(_, is_off)| *is_off);
    off.map(|(tool, _)| tool).collect()
}

fn admission_from(listen: &ListenConfig) -> Admission {
    let mut hosts = listen.allowed_hosts.clone();
    hosts.push(listen.address.to_string());
    Admission::new(&hosts, &listen.allowed_origins)
}

fn entropy() -> anyhow::Result<Entropy> {
    let mut bytes = Entropy::default();
    getrandom::fill(&mut bytes).context("failed to get random numbers")?;
    Ok(bytes)
}
