//! Reading and changing settings over HTTP, in a process with two settings.

use http::header;
use parking_lot::Mutex;
use riglm_app::control::settings::{
    ExpectedView, ReplaceFuture, Settings, SettingsError, SettingsView,
};
use riglm_ports::analytics::StoreError;
use serde_json::{Map, Value, json};

use super::problems::{FailingRequest, OPERATOR, problems};
use super::*;
use crate::state::ControlParts;

#[derive(Debug)]
struct Memory {
    view: Mutex<Arc<SettingsView>>,
    actors: Mutex<Vec<Principal>>,
}

impl Memory {
    fn new() -> Self {
        Self {
            view: Mutex::new(Arc::new(view(0, Map::new()))),
            actors: Mutex::default(),
        }
    }

    fn check_tuning(tuning: &Map<String, Value>) -> Result<(), SettingsError> {
        let refused = |key: &str, reason: &str| SettingsError::Refused {
            key: key.into(),
            reason: reason.into(),
        };
        match tuning.get("limits").map(|limits| &limits["sessions"]) {
            _ if tuning.contains_key("listen") => Err(refused(
                "listen.address",
                "cannot be changed while riglm runs",
            )),
            _ if tuning.contains_key("down") => {
                Err(SettingsError::Store(StoreError::Full { bytes: 1 }))
            }
            _ if tuning.contains_key("broken") => Err(SettingsError::Unusable("riglm.toml".into())),
            Some(Value::String(_)) => Err(refused("limits.sessions", "expected a whole number")),
            _ => Ok(()),
        }
    }
}

fn view(version: u64, tuning: Map<String, Value>) -> SettingsView {
    SettingsView {
        version,
        tuning,
        effective: json!({"limits": {"sessions": 10}}),
        tunable: vec!["limits.sessions".into()],
        tag: format!("{version}-x"),
    }
}

impl Settings for Memory {
    fn view(&self) -> Arc<SettingsView> {
        Arc::clone(&self.view.lock())
    }

    fn replace<'a>(
        &'a self,
        tuning: Map<String, Value>,
        expected: ExpectedView,
        actor: &'a Principal,
    ) -> ReplaceFuture<'a> {
        Box::pin(async move {
            let mut current = self.view.lock();
            if !expected.has(&current.tag) {
                return Err(SettingsError::Stale);
            }
            Self::check_tuning(&tuning)?;
            *current = Arc::new(view(current.version + 1, tuning));
            self.actors.lock().push(actor.clone());
            Ok(Arc::clone(&current))
        })
    }
}

struct Server {
    http: scene::Server,
    settings: Arc<Memory>,
}

/// Status, entity tag and body of a response.
type Answer = (u16, Option<String>, Value);

/// Starts a server with settings and without a store.
async fn server() -> Server {
    let settings = Arc::new(Memory::new());
    let parts = ControlParts {
        settings: Some(settings.clone()),
        ..scene::parts(scene::health(), None)
    };
    let http = scene::serve(parts, Arc::default()).await;
    Server { http, settings }
}

impl Server {
    async fn send(
        &self,
        method: &str,
        token: Option<&str>,
        expected: Option<&str>,
        body: &str,
    ) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let bearer = bearer.iter().map(|it| (header::AUTHORIZATION, &**it));
        let expected = expected.iter().map(|it| (header::IF_MATCH, *it));
        let headers: Vec<_> = bearer.chain(expected).collect();
        let response = self
            .http
            .exchange((method, "/config"), &headers, body)
            .await;
        let status = response.status().as_u16();
        let tag = response.headers().get(header::ETAG);
        let tag = tag.map(|tag| tag.to_str().unwrap().to_owned());
        if status >= 400 {
            assert_eq!(
                response.headers()[header::CONTENT_TYPE],
                "application/problem+json"
            );
        }
        (
            status,
            tag,
            serde_json::from_slice(response.body()).unwrap(),
        )
    }

    async fn put(&self, expected: Option<&str>, body: &Value) -> Answer {
        let token = Some(KEYS[0].1);
        self.send("PUT", token, expected, &body.to_string()).await
    }
}

#[tokio::test]
async fn settings_are_read_changed_and_taken_back() {
    let server = server().await;
    let (status, tag, body) = server.send("GET", Some(KEYS[1].1), None, "").await;
    assert_eq!((status, tag.as_deref()), (200, Some("\"0-x\"")));
    assert_eq!(
        body,
        json!({
            "version": 0,
            "tuning": {},
            "effective": {"limits": {"sessions": 10}},
            "tunable": ["limits.sessions"],
        })
    );
    let tuning = json!({"limits": {"sessions": 3}});
    let (status, tag, body) = server.put(tag.as_deref(), &tuning).await;
    assert_eq!((status, tag.as_deref()), (200, Some("\"1-x\"")));
    assert_eq!((&body["version"], &body["tuning"]), (&json!(1), &tuning));
    let read = server.send("GET", Some(KEYS[0].1), None, "").await;
    assert_eq!(read, (200, tag, body));
    let (status, _, body) = server.put(Some("*"), &json!({})).await;
    assert_eq!((status, &body["tuning"]), (200, &json!({})));
    let actors = server.settings.actors.lock().clone();
    assert_eq!(actors, vec![Principal::from_name("control"); 2]);
}

#[tokio::test]
async fn requests_without_token_or_scope_are_refused() {
    let server = server().await;
    for method in ["GET", "PUT"] {
        for token in [None, Some("wrong")] {
            let (status, ..) = server.send(method, token, Some("*"), "{}").await;
            assert_eq!(status, 401, "{method}");
        }
    }
    let (status, _, problem) = server.send("PUT", Some(KEYS[1].1), Some("*"), "{}").await;
    assert_eq!(status, 403);
    assert_eq!(
        problem["detail"],
        "the token does not have the scope config"
    );
    let (status, ..) = server.send("POST", Some(KEYS[0].1), Some("*"), "{}").await;
    assert_eq!(status, 405);
    assert_eq!(server.settings.view().version, 0);
}

#[tokio::test]
async fn changes_require_a_matching_if_match_header() {
    let server = server().await;
    let (status, _, problem) = server.put(None, &json!({})).await;
    assert_eq!(
        (status, &problem["title"]),
        (428, &json!("Precondition Required"))
    );
    for stale in ["\"1-x\"", "W/\"0-x\"", "0-x", ""] {
        let (status, ..) = server.put(Some(stale), &json!({})).await;
        assert_eq!(status, 412, "{stale}");
    }
    assert_eq!(server.settings.view().version, 0);
    let (status, ..) = server.put(Some("\"7\", \"0-x\""), &json!({})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn invalid_changes_are_refused_with_the_reason() {
    let server = server().await;
    let any = (header::IF_MATCH, "*");
    let stale = (header::IF_MATCH, "\"1-x\"");
    let (path, any) = (("PUT", "/config"), &[OPERATOR, any][..]);
    let huge = json!({"x": "y".repeat(100_000)}).to_string();
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let requests: &[FailingRequest<'_>] = &[
        (path, &[OPERATOR], "{}"),
        (path, &[OPERATOR, stale], "{}"),
        (path, any, r#"{"listen": {"address": "[::]:1"}}"#),
        (path, any, r#"{"limits": {"sessions": "many"}}"#),
        (path, any, "[]"),
        (path, any, "7"),
        (path, any, &huge),
        (path, any, r#"{"broken": 1}"#),
        (path, any, r#"{"down": 1}"#),
        (path, any, "{"),
        (path, any, &deep),
    ];
    insta::assert_json_snapshot!(problems(&server.http, requests).await);
    assert_eq!(server.settings.view().version, 0);
}

#[tokio::test]
async fn only_one_concurrent_change_to_a_version_succeeds() {
    let server = Arc::new(server().await);
    let mut statuses = Vec::new();
    let mut pending = tokio::task::JoinSet::new();
    for n in 0..8 {
        let server = Arc::clone(&server);
        pending.spawn(async move {
            let body = json!({"limits": {"sessions": n}});
            server.put(Some("\"0-x\""), &body).await.0
        });
    }
    while let Some(status) = pending.join_next().await {
        statuses.push(status.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
    assert_eq!(server.settings.view().version, 1);
}

#[tokio::test]
async fn processes_without_settings_answer_not_found() {
    let token = ("authorization", "Bearer the token of the operator");
    let (status, media_type, body) = ask("GET", "/config", &[token]).await;
    assert_eq!(
        (status, media_type.as_str()),
        (404, "application/problem+json")
    );
    assert_eq!(
        body["detail"],
        "the configuration of this process cannot be changed while it runs"
    );
}
