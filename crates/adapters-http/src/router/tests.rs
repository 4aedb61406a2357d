//! The control server over real HTTP on a loopback port.

use std::sync::Arc;

use super::router;
use crate::{
    ControlConfig, ControlKey, ControlKeys, EncoderHealth, EncoderState, HealthSource,
    LearningCondition, LearningHealth, Scope, StoreCondition, StoreHealth, UpstreamCondition,
    UpstreamHealth,
};
use bytes::Bytes;
use http::HeaderName;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use riglm_domain::privacy::key_digest::KeyDigest;
use riglm_domain::privacy::principal::Principal;
use tokio::net::TcpListener;

mod calibration;
mod config;
mod connections;
mod document;
mod experiments;
mod observing;
mod overrides;
mod page;
mod problems;
mod scene;

/// A key with all scopes, and one with scope `read` only.
const KEYS: [(&str, &str, &[Scope]); 2] = [
    ("control", "the token of the operator", Scope::ALL),
    ("page", "the key of a dashboard", &[Scope::Read]),
];

fn keys() -> ControlKeys {
    let keys = KEYS.map(|(holder, key, scopes)| ControlKey {
        holder: Principal::from_name(holder),
        digest: KeyDigest::of(key).unwrap(),
        scopes: scopes.to_vec(),
    });
    ControlKeys::new(keys.into())
}

/// Status, media type and body of a response.
type Answer = (u16, String, serde_json::Value);

async fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask_about(&[], &sound_store(), method, path, headers).await
}

fn sound_store() -> StoreHealth {
    StoreHealth {
        condition: StoreCondition::Ok,
        waiting_bytes: 0,
        dropped_records: 0,
        is_read: true,
    }
}

async fn ask_about(
    upstreams: &[(&str, UpstreamCondition)],
    store: &StoreHealth,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    ask_of(upstreams, (store, &[]), (method, path), headers).await
}

async fn ask_of(
    upstreams: &[(&str, UpstreamCondition)],
    (store, encoders): (&StoreHealth, &[EncoderHealth]),
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
) -> Answer {
    let encoders = encoders.to_vec();
    let upstreams: Vec<UpstreamHealth> = upstreams
        .iter()
        .map(|(name, condition)| UpstreamHealth {
            name: (*name).to_owned(),
            condition: condition.clone(),
        })
        .collect();
    let store = store.clone();
    let source = HealthSource {
        version: "1.2.3",
        upstreams: Arc::new(move || upstreams.clone()),
        store: Arc::new(move || store.clone()),
        encoders: Arc::new(move || encoders.clone()),
        learning: Arc::new(|| LearningHealth {
            condition: LearningCondition::Starting,
            learned_calls: 12,
            failures: 1,
        }),
        is_stopping: Arc::new(|| false),
    };
    let server = scene::serve(scene::parts(source, None), Arc::default()).await;
    let headers = headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), *value))
        .collect();
    let answer = server.exchange((method, path), &headers, "").await;
    let status = answer.status().as_u16();
    let media_type = answer.headers()["content-type"].to_str().unwrap().into();
    let body = serde_json::from_slice(answer.body()).unwrap();
    (status, media_type, body)
}

#[tokio::test]
async fn health_names_status_and_version() {
    let (status, media_type, body) = ask("GET", "/health", &[]).await;
    assert_eq!((status, media_type.as_str()), (200, "application/json"));
    assert_eq!(
        body,
        serde_json::json!({
            "status": "ok",
            "version": "1.2.3",
            "paused": false,
            "upstreams": {},
            "store": {"status": "ok", "waiting_bytes": 0, "dropped_records": 0},
            "encoders": [],
            "prediction": {"status": "starting", "learned_calls": 12, "failures": 1},
        })
    );
}

#[tokio::test]
async fn health_is_degraded_while_an_upstream_cannot_be_reached() {
    let unavailable = |reason: Option<&str>| UpstreamCondition::Unavailable {
        reason: reason.map(str::to_owned),
    };
    let sound = [
        ("b", UpstreamCondition::Available),
        ("a", UpstreamCondition::Unused),
    ];
    let (_, _, body) = ask_about(&sound, &sound_store(), "GET", "/health", &[]).await;
    assert_eq!(
        body.to_string(),
        r#"{"status":"ok","version":"1.2.3","paused":false,"upstreams":{"b":{"state":"available"},"a":{"state":"unused"}},"store":{"status":"ok","waiting_bytes":0,"dropped_records":0},"encoders":[],"prediction":{"status":"starting","learned_calls":12,"failures":1}}"#
    );
    let broken = [
        ("a", UpstreamCondition::Available),
        ("b", unavailable(Some("it is gone"))),
        ("c", unavailable(None)),
    ];
    let (status, _, body) = ask_about(&broken, &sound_store(), "GET", "/health", &[]).await;
    assert_eq!((status, &body["status"]), (200, &"degraded".into()));
    assert_eq!(
        body["upstreams"],
        serde_json::json!({
            "a": {"state": "available"},
            "b": {"state": "unavailable", "reason": "it is gone"},
            "c": {"state": "unavailable"},
        })
    );
}

#[tokio::test]
async fn health_is_degraded_while_records_do_not_get_to_the_database() {
    let store = StoreHealth {
        condition: StoreCondition::Degraded {
            reason: "the disk is full".into(),
        },
        waiting_bytes: 4_096,
        dropped_records: 3,
        is_read: true,
    };
    let available = [("a", UpstreamCondition::Available)];
    let (status, _, body) = ask_about(&available, &store, "GET", "/health", &[]).await;
    assert_eq!((status, &body["status"]), (200, &"degraded".into()));
    assert_eq!(
        body["store"],
        serde_json::json!({
            "status": "degraded",
            "reason": "the disk is full",
            "waiting_bytes": 4_096,
            "dropped_records": 3,
        })
    );
}

#[tokio::test]
async fn readiness_requires_overrides_to_be_read() {
    let store = StoreHealth {
        is_read: false,
        ..sound_store()
    };
    let available = [("a", UpstreamCondition::Available)];
    let (status, _, body) = ask_about(&available, &store, "GET", "/health/ready", &[]).await;
    assert_eq!(status, 503, "{body}");
    let reason = body["store"]["reason"].as_str().unwrap();
    assert!(reason.contains("overrides that forbid"), "{body}");
    // Records may reach the database all the same.
    let (_, _, body) = ask_about(&available, &store, "GET", "/health", &[]).await;
    assert_eq!(body["store"]["status"], "ok");
}

#[tokio::test]
async fn health_is_ok_without_recording() {
    let store = StoreHealth {
        condition: StoreCondition::Off,
        ..sound_store()
    };
    let (_, _, body) = ask_about(&[], &store, "GET", "/health", &[]).await;
    assert_eq!(
        (&body["status"], &body["store"]["status"]),
        (&"ok".into(), &"off".into())
    );
}

#[tokio::test]
async fn health_names_the_encoders_and_is_degraded_while_one_fails() {
    let encoder = |model: &str, state| EncoderHealth {
        model: model.into(),
        state,
    };
    let mut encoders = [
        encoder("a", EncoderState::Ready),
        encoder("b", EncoderState::Unused),
    ];
    let path = ("GET", "/health");
    let (_, _, body) = ask_of(&[], (&sound_store(), &encoders), path, &[]).await;
    assert_eq!(body["status"], "ok");
    encoders[1].state = EncoderState::Failing;
    let (_, _, body) = ask_of(&[], (&sound_store(), &encoders), path, &[]).await;
    assert_eq!(body["status"], "degraded");
    assert_eq!(
        body["encoders"],
        serde_json::json!([{"model": "a", "state": "ready"}, {"model": "b", "state": "failing"}])
    );
}

#[tokio::test]
async fn an_origin_of_the_same_host_is_allowed() {
    let (status, ..) = ask("GET", "/health", &[("origin", "http://localhost:8643")]).await;
    assert_eq!(status, 200);
}
