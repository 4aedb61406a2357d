//! A proxy made of the same parts as the program, with a manual clock.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_mcp::downstream::http::{Faces, HttpOptions, HttpServer};
use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_adapters_prediction::encoder::StaticEmbedding;
use riglm_adapters_prediction::{O200kTokenCounter, PredictionConfig, predictor_from};
use riglm_adapters_storage::{RecordingConfig, Storage, StorageConfig};
use riglm_app::limits::Limits;
use riglm_app::proxy::{NamespacePolicy, OwnToolNames, OwnToolSet, Proxy, ProxyParts, Upstream};
use riglm_app::selection::{
    ExplorationConfig, FilteringConfig, ListFilter, ListStores, Lists, ListsParts, SearchTerms,
};
use riglm_app::tracking::{Recorder, RecorderOptions};
use riglm_app::work_sessions::{WorkSessions, WorkSessionsConfig};
use riglm_discovery::intent::{IntentWeights, Intents};
use riglm_discovery::learning::{LearningStores, LearningTask, NextTools, NextToolsOptions};
use riglm_discovery::search::{
    Escalation, SearchEncoder, SearchParts, SearchRules, SearchStores, ToolSearch,
};
use riglm_domain::id::RunId;
use riglm_domain::prediction::NamePattern;
use riglm_domain::safeguards::admission::Admission;
use riglm_domain::selection::ListPolicyName;
use riglm_ports::authenticator::LocalAuthenticator;
use riglm_ports::clock::Clock;
use riglm_ports::fake::ManualClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::server::{CatalogServer, Connector};

/// The deadline for writing all records to the database.
const SETTLED: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct InProcessProxyOptions {
    /// The list policy of all clients. `None` for the default of each client class.
    pub(crate) policy: Option<ListPolicyName>,
    /// The maximum tokens of a list. With a budget, lists keep it even if little is known about a
    /// session.
    pub(crate) token_budget: Option<u64>,
    /// Tools that are never shown.
    pub(crate) bans: Vec<NamePattern>,
    /// The exploration of list sizes.
    pub(crate) exploration: ExplorationConfig,
    /// The naming of tools of several servers.
    pub(crate) naming: NamespacePolicy,
    /// The port of the proxy. 0 for any free port.
    pub(crate) port: u16,
}

impl Default for InProcessProxyOptions {
    fn default() -> Self {
        Self {
            policy: None,
            token_budget: None,
            bans: Vec::new(),
            exploration: ExplorationConfig::default(),
            // Recorded agents saw tool names without a namespace.
            naming: NamespacePolicy::Collision,
            port: 0,
        }
    }
}

pub(crate) struct InProcessProxy {
    pub(crate) clock: Arc<ManualClock>,
    /// The address for clients.
    pub(crate) url: Url,
    pub(crate) servers: Vec<Arc<CatalogServer>>,
    pub(crate) next_tools: Arc<NextTools>,
    storage: Arc<Storage>,
    learning: LearningTask,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl InProcessProxy {
    /// Starts a proxy with its data in `data_dir`, in front of these servers.
    pub(crate) async fn start(
        data_dir: &Path,
        clock: Arc<ManualClock>,
        servers: Vec<Arc<CatalogServer>>,
        options: &InProcessProxyOptions,
    ) -> Self {
        let time: Arc<dyn Clock> = clock.clone();
        let run = RunId::new(time.now(), [7; 10]);
        let (section, recording) = (StorageConfig::default(), RecordingConfig::default());
        let opened = riglm_adapters_storage::open(&section, &recording, data_dir, run, &*time);
        let storage = Arc::new(opened.await.expect("a database"));
        let hasher = riglm_adapters_storage::keyed_hasher(data_dir).expect("a key");
        let journal = Arc::clone(&storage.journal);
        let recorder = Recorder::new(
            journal,
            hasher,
            Arc::clone(&time),
            run,
            RecorderOptions::default(),
        );
        let (next_tools, learning) = learning(&storage, &time);
        let work_sessions = WorkSessions::new(
            Some(Arc::new(storage.store.clone())),
            riglm_adapters_storage::keyed_hasher(data_dir).expect("a key"),
            WorkSessionsConfig::default().idle_gap(),
        );
        let lists = Arc::new(Lists::new(ListsParts {
            experiments: None,
            search: SearchTerms::default(),
            observer: Arc::new(riglm_ports::observer::NoObserver),
            options: list_options(options),
            profiles: HashMap::new(),
            predictions: Arc::clone(&next_tools).into(),
            stores: Some(list_stores(&storage)),
            overrides: Arc::default(),
            counter: Arc::new(O200kTokenCounter),
            clock: Arc::clone(&time),
        }));
        let bridge = BridgeOptions::new([7; 32]);
        let upstreams = servers.iter().map(|server| {
            let transport = Arc::new(Connector(Arc::clone(server)));
            Upstream::new(Arc::new(EraConnector::new(transport, bridge.clone())))
        });
        let proxy = Arc::new(Proxy::new(ProxyParts {
            upstreams: upstreams.collect(),
            naming: options.naming,
            recorder: Arc::new(recorder),
            filter: ListFilter::from_lists(Arc::clone(&lists)),
            limits: Limits::default(),
            observer: Arc::new(riglm_ports::observer::NoObserver),
            search: Some(search(&storage, &next_tools, &time)),
            recommender: None,
            safeguards: None,
            intents: Some(Arc::new(Intents::new(IntentWeights::default()))),
            predictions: Arc::clone(&next_tools).into(),
            tracer: None,
            work_sessions: Some(Arc::new(work_sessions)),
            tools: OwnToolNames {
                search: Some("search_available_tools".into()),
                call_tool: Some("call_tool".into()),
                set_context: Some("set_context".into()),
                ..OwnToolNames::default()
            },
            hints: riglm_app::proxy::HintUse::default(),
            server_memory: None,
            unlisted_tools: OwnToolSet::default(),
        }));
        let http = HttpOptions {
            address: ([127, 0, 0, 1], options.port).into(),
            admission: Admission::new(&[], &[]),
            authenticator: Arc::new(LocalAuthenticator),
            profiles: BTreeSet::new(),
            faces: Faces::default(),
        };
        let server = HttpServer::bind(Arc::clone(&proxy), http)
            .await
            .expect("a free port");
        let url = format!("http://{}/mcp", server.address())
            .parse()
            .expect("an address");
        let stop = CancellationToken::new();
        let watched = stop
            .clone()
            .run_until_cancelled_owned(async move { proxy.run_sweeper().await });
        let tasks = vec![
            tokio::spawn(server.serve(stop.clone())),
            tokio::spawn(lists.keep_watch(stop.clone())),
            tokio::spawn(async { watched.await.unwrap_or_default() }),
        ];
        Self {
            clock,
            url,
            servers,
            next_tools,
            storage,
            learning,
            stop,
            tasks,
        }
    }

    /// Waits for the records, and has the learner absorb all recorded calls.
    pub(crate) async fn learn(&mut self) {
        assert!(
            self.storage.wait_until_applied(SETTLED).await,
            "records do not reach the database"
        );
        self.learning
            .learn_all()
            .await
            .expect("the database gives its calls");
    }

    /// Stops the proxy. Its data stay in the directory.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            drop(task.await);
        }
        self.storage.close().await;
    }
}

fn learning(storage: &Arc<Storage>, clock: &Arc<dyn Clock>) -> (Arc<NextTools>, LearningTask) {
    let config = PredictionConfig::default();
    let options = NextToolsOptions {
        measure: config.confidence,
        bands: config.bands(),
        shows_all: config.shows_all(),
    };
    let next_tools = Arc::new(NextTools::new(predictor_from(&config), options));
    let store = Arc::new(storage.store.clone());
    let task = LearningTask::new(
        LearningStores::of(&store),
        Arc::clone(clock),
        Arc::clone(&next_tools),
        "simulated".into(),
        move || predictor_from(&config),
    );
    (next_tools, task)
}

fn list_stores(storage: &Storage) -> ListStores {
    let store = Arc::new(storage.store.clone());
    ListStores {
        epochs: Arc::clone(&store) as _,
        usage: Arc::clone(&store) as _,
        activities: Arc::clone(&store) as _,
        changes: store,
    }
}

/// Returns the default configuration, changed by the options.
fn list_options(options: &InProcessProxyOptions) -> FilteringConfig {
    FilteringConfig {
        policy: options.policy,
        token_budget: options.token_budget,
        bans: options.bans.clone(),
        exploration: options.exploration,
        ..FilteringConfig::default()
    }
}

fn search(
    storage: &Storage,
    next_tools: &Arc<NextTools>,
    clock: &Arc<dyn Clock>,
) -> Arc<ToolSearch> {
    let store = Arc::new(storage.store.clone());
    let stores = SearchStores {
        embeddings: Arc::clone(&store) as _,
        usage: Arc::clone(&store) as _,
        contexts: Arc::clone(&store) as _,
        invocations: store,
    };
    Arc::new(ToolSearch::new(SearchParts {
        encoders: vec![SearchEncoder {
            encoder: Arc::new(StaticEmbedding),
            is_stored: false,
        }],
        stores: Some(stores),
        predictions: Arc::clone(next_tools).into(),
        counter: Arc::new(O200kTokenCounter),
        clock: Arc::clone(clock),
        rules: SearchRules::default(),
        escalation: Escalation::default(),
        experiments: None,
    }))
}
