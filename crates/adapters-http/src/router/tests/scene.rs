//! A control server over a store in memory, with a client for it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, header};
use http_body_util::Full;
use jiff::Timestamp;
use riglm_app::control::current_filtering::CurrentFiltering;
use riglm_app::control::events::EventFeed;
use riglm_app::control::feedback::FeedbackService;
use riglm_app::control::learning_report::LearningReports;
use riglm_app::control::name_lookup::NameLookup;
use riglm_app::control::overrides::{OverriddenLists, Overrides, OverridesParts};
use riglm_app::control::overview::OverviewService;
use riglm_app::control::queries::Queries;
use riglm_app::proxy::{NamespacePolicy, Proxy, ProxyParts, Upstream};
use riglm_app::selection::FilteringConfig;
use riglm_app::testing;
use riglm_app::tracking::{CachedTokenCounter, Recorder, RecorderOptions};
use riglm_discovery::experiments::ExperimentService;
use riglm_domain::experiment::{
    ArmPlan, AssignmentUnit, ExperimentMetric, ExperimentPlan, FusionRule,
};
use riglm_domain::id::{ProfileName, RunId};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};
use riglm_ports::observer::NoObserver;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::MetricsSource;
use crate::state::ControlParts;

pub(super) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Returns the parts of a server without upstreams. With a store, it has all parts that need one.
pub(super) fn parts(health: HealthSource, store: Option<&Arc<MemoryStore>>) -> ControlParts {
    parts_with(health, store, Vec::new())
}

/// Returns the parts of a server with upstreams.
pub(super) fn parts_with(
    health: HealthSource,
    store: Option<&Arc<MemoryStore>>,
    upstreams: Vec<Upstream>,
) -> ControlParts {
    let clock = Arc::new(ManualClock::at(NOW));
    let run = RunId::new(NOW, [0; 10]);
    let journal = store.map_or_else(Arc::default, Arc::clone);
    let hasher = KeyedHasher::new(&[7; 32]);
    let options = RecorderOptions::default();
    let recorder = Arc::new(Recorder::new(journal, hasher, clock.clone(), run, options));
    let feed = Arc::new(EventFeed::new(clock.clone()));
    let queries = store.map(|store| {
        let queries = Queries::new(store.clone(), clock.clone());
        let counter = CachedTokenCounter::new(Arc::new(WordCounter));
        Arc::new(queries.with_token_counter(Arc::new(counter)))
    });
    let proxy = Arc::new(Proxy::new(ProxyParts {
        recorder: Arc::clone(&recorder),
        ..testing::proxy_parts(upstreams)
    }));
    let filtering = CurrentFiltering::new(FilteringConfig::default(), None);
    let overview = OverviewService::new(
        Arc::clone(&proxy),
        queries.clone(),
        filtering.clone(),
        clock.clone(),
    );
    ControlParts {
        health,
        metrics: MetricsSource::new("text/plain; version=0.0.4", || {
            Ok("riglm_sessions 0\n".into())
        }),
        experiments: store.map(|store| {
            let plans = vec![experiment()];
            let service = ExperimentService::new(plans, store.clone(), clock.clone());
            Arc::new(service)
        }),
        keys: keys(),
        proxy,
        overview: Arc::new(overview),
        learning: (queries.clone())
            .map(|queries| Arc::new(LearningReports::new(queries, filtering))),
        setup: None,
        overrides: store.map(|store| {
            let queries = Arc::new(Queries::new(store.clone(), clock.clone()));
            let profiles = BTreeSet::from([ProfileName::parse("few").unwrap()]);
            Arc::new(Overrides::new(OverridesParts {
                store: store.clone(),
                trail: store.clone(),
                names: NameLookup::new(queries, profiles, NamespacePolicy::Prefix),
                observer: feed.clone(),
                clock,
                followed: None,
                lists: OverriddenLists::OfOthers(true),
            }))
        }),
        feedback: queries.clone().map(|queries| {
            Arc::new(FeedbackService::new(
                queries,
                recorder,
                Arc::new(NoObserver),
            ))
        }),
        queries,
        client_data: None,
        settings: None,
        events: feed,
        stop: CancellationToken::new(),
    }
}

fn experiment() -> ExperimentPlan {
    let arm = |name: &str, fusion| ArmPlan {
        name: name.into(),
        share: 0.5,
        weights: None,
        fusion,
        policy: None,
        predictors: None,
    };
    ExperimentPlan {
        name: "fusions".into(),
        is_running: true,
        unit: AssignmentUnit::WorkSession,
        metric: ExperimentMetric::ClickThrough,
        alpha: 0.05,
        window: std::time::Duration::from_mins(1),
        control: "control".into(),
        arms: vec![arm("control", None), arm("score", Some(FusionRule::Score))],
    }
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) store: Arc<MemoryStore>,
    pub(super) stop: CancellationToken,
}

/// Returns the health of a process without upstreams.
pub(super) fn health() -> HealthSource {
    HealthSource {
        version: "1",
        upstreams: Arc::new(Vec::new),
        store: Arc::new(sound_store),
        encoders: Arc::new(Vec::new),
        learning: Arc::new(|| LearningHealth {
            condition: LearningCondition::Off,
            learned_calls: 0,
            failures: 0,
        }),
        is_stopping: Arc::new(|| false),
    }
}

/// Starts a server over an empty store.
pub(super) async fn server() -> Server {
    let store = Arc::new(MemoryStore::default());
    let parts = parts(health(), Some(&store));
    serve(parts, store).await
}

/// Starts a server with these parts.
pub(super) async fn serve(parts: ControlParts, store: Arc<MemoryStore>) -> Server {
    let stop = parts.stop.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = router(&ControlConfig::default(), parts);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Server {
        address,
        store,
        stop,
    }
}

impl Server {
    /// Sends a request with a JSON body; `headers` replace the content type. Returns the whole
    /// response.
    pub(super) async fn exchange(
        &self,
        (method, path): (&str, &str),
        headers: &[(HeaderName, &str)],
        body: &str,
    ) -> http::Response<Bytes> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let json = (header::CONTENT_TYPE, "application/json");
        for (name, value) in [&[json], headers].concat() {
            let value = HeaderValue::from_str(value).unwrap();
            request.headers_mut().insert(name, value);
        }
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        http::Response::from_parts(head, body)
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, Option<String>, Value) {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers = bearer.iter().map(|it| (header::AUTHORIZATION, &**it));
        let headers: Vec<_> = headers.collect();
        let response = self.exchange((method, path), &headers, body).await;
        let place = response.headers().get(header::LOCATION);
        let place = place.map(|place| place.to_str().unwrap().to_owned());
        let body = if response.body().is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(response.body()).unwrap()
        };
        (response.status().as_u16(), place, body)
    }

    /// Sends GET with the key of the operator.
    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.send("GET", path, Some(KEYS[0].1), "").await;
        (status, body)
    }

    /// Sends POST with a body and the key of the operator.
    pub(super) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self
            .send("POST", path, Some(KEYS[0].1), &body.to_string())
            .await;
        (status, body)
    }
}
