//! A control server over a store in memory, and what it is asked with.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::header;
use http_body_util::Full;
use jiff::Timestamp;
use riglm_app::events::EventFeed;
use riglm_app::experiments::ExperimentDesk;
use riglm_app::feedback::FeedbackDesk;
use riglm_app::filtering::ListFilter;
use riglm_app::insight::Insight;
use riglm_app::limits::Limits;
use riglm_app::names::Names;
use riglm_app::overrides::{Overrides, OverridesParts};
use riglm_app::proxy::{MetaTools, Naming, Proxy, ProxyParts};
use riglm_app::tracking::{Recorder, RecorderOptions};
use riglm_domain::canonical::KeyedHasher;
use riglm_domain::experiment::{ArmPlan, ExperimentPlan, FusionRule, Metric, Unit};
use riglm_domain::id::{ProfileName, RunId};
use riglm_ports::fake::{ManualClock, MemoryStore};
use riglm_ports::observer::Unobserved;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::MetricsSource;
use crate::router::ControlParts;

pub(super) const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Returns the parts of a server without upstreams; with a store, everything that stands on one.
pub(super) fn parts(health: HealthSource, store: Option<&Arc<MemoryStore>>) -> ControlParts {
    let clock = Arc::new(ManualClock::at(NOW));
    let run = RunId::new(NOW, [0; 10]);
    let journal = store.map_or_else(Arc::default, Arc::clone);
    let hasher = KeyedHasher::new(&[7; 32]);
    let options = RecorderOptions::default();
    let recorder = Arc::new(Recorder::new(journal, hasher, clock.clone(), run, options));
    let feed = Arc::new(EventFeed::new(clock.clone()));
    let insight = store.map(|store| Arc::new(Insight::new(store.clone(), clock.clone())));
    let proxy = Proxy::new(ProxyParts {
        upstreams: Vec::new(),
        naming: Naming::Prefix,
        recorder: Arc::clone(&recorder),
        filter: ListFilter::default(),
        limits: Limits::default(),
        search: None,
        recommender: None,
        safeguards: None,
        intents: None,
        observer: Arc::new(Unobserved),
        next_tools: None,
        work_sessions: None,
        tools: MetaTools::default(),
    });
    ControlParts {
        health,
        metrics: MetricsSource::new("text/plain; version=0.0.4", || {
            Ok("riglm_sessions 0\n".into())
        }),
        experiments: store.map(|store| {
            let plans = vec![experiment()];
            let desk = ExperimentDesk::new(plans, store.clone(), store.clone(), clock.clone());
            Arc::new(desk)
        }),
        keys: keys(),
        proxy: Arc::new(proxy),
        overrides: store.map(|store| {
            let insight = Arc::new(Insight::new(store.clone(), clock.clone()));
            let profiles = BTreeSet::from([ProfileName::parse("few").unwrap()]);
            Arc::new(Overrides::new(OverridesParts {
                store: store.clone(),
                trail: store.clone(),
                names: Names::new(insight, profiles, Naming::Prefix),
                observer: feed.clone(),
                clock,
                forbidden: None,
                has_lists: true,
            }))
        }),
        feedback: insight
            .clone()
            .map(|insight| Arc::new(FeedbackDesk::new(insight, recorder, Arc::new(Unobserved)))),
        insight,
        settings: None,
        events: feed,
        stop: CancellationToken::new(),
    }
}

/// An experiment with fusions.
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
        unit: Unit::WorkSession,
        metric: Metric::ClickThrough,
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

/// Returns what a process without upstreams says of itself.
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
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, Option<String>, Value) {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        let status = response.status().as_u16();
        let place = response.headers().get(header::LOCATION);
        let place = place.map(|place| place.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).unwrap()
        };
        (status, place, body)
    }

    /// Returns what the operator gets from a path.
    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.send("GET", path, Some(KEYS[0].1), "").await;
        (status, body)
    }

    /// Returns what the operator gets for a body.
    pub(super) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self
            .send("POST", path, Some(KEYS[0].1), &body.to_string())
            .await;
        (status, body)
    }
}
