//! The MCP port over a real socket, with a scripted upstream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use riglm_adapters_mcp::downstream::http::{Faces, HttpOptions, HttpServer};
use riglm_app::proxy::{Proxy, Upstream};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::safeguards::admission::Admission;
use riglm_ports::authenticator::LocalAuthenticator;
use riglm_ports::fake::ScriptedUpstream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SESSION_ID: &str = "mcp-session-id";
const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#;
const WELCOME: &str = r#"{"jsonrpc":"2.0","id":"hello","result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
const REFUSAL: &str = r#"{"jsonrpc":"2.0","id":"hello","error":{"code":-32602,"message":"no"}}"#;
const LOG: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"up"}}"#;

/// A running port. The server ends when this is dropped.
struct Scene {
    upstream: Arc<ScriptedUpstream>,
    url: String,
    stop: CancellationToken,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Scene {
    async fn new() -> Self {
        // An error means that another test of this process has installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        let proxy = Proxy::new(testing::proxy_parts(vec![Upstream::new(upstream.clone())]));
        let options = HttpOptions {
            address: ([127, 0, 0, 1], 0).into(),
            admission: Admission::new(&[], &[]),
            authenticator: Arc::new(LocalAuthenticator),
            profiles: BTreeSet::new(),
            faces: Faces::default(),
        };
        let server = HttpServer::bind(Arc::new(proxy), options).await.unwrap();
        let url = format!("http://{}/mcp", server.address());
        let stop = CancellationToken::new();
        tokio::spawn(server.serve(stop.clone()));
        Self {
            upstream,
            url,
            stop,
        }
    }

    /// Posts a message in a separate task.
    fn post(&self, text: &'static str, session: Option<String>) -> JoinHandle<reqwest::Response> {
        let mut request = reqwest::Client::new()
            .post(&self.url)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(text);
        if let Some(session) = session {
            request = request.header(SESSION_ID, session);
        }
        tokio::spawn(async move { request.send().await.unwrap() })
    }

    /// Waits until the upstream fulfils a condition.
    async fn until(&self, is_reached: impl Fn(&ScriptedUpstream) -> bool) {
        let reached = async {
            while !is_reached(&self.upstream) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within(reached).await;
    }

    /// Posts `initialize` and waits until the upstream has received it.
    async fn begin_handshake(&self) -> JoinHandle<reqwest::Response> {
        let response = self.post(HELLO, None);
        self.until(|upstream| upstream.sent_messages().len() == 1)
            .await;
        response
    }

    /// Posts a notification in a session and returns the HTTP status.
    async fn status_of(&self, session: String) -> StatusCode {
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = self.post(note, Some(session));
        within(response).await.unwrap().status()
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .unwrap()
}

fn session_of(response: &reqwest::Response) -> Option<String> {
    let id = response.headers().get(SESSION_ID)?;
    Some(id.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_server_may_speak_before_it_answers_the_handshake() {
    let scene = Scene::new().await;
    let response = scene.begin_handshake().await;
    scene.upstream.send_to_client(LOG, None).await;
    let response = within(response).await.unwrap();
    let session = session_of(&response).unwrap();
    scene.upstream.send_to_client(WELCOME, None).await;
    let body = within(response.text()).await.unwrap();
    assert!(body.find(LOG).unwrap() < body.find(WELCOME).unwrap());
    assert_eq!(scene.status_of(session).await, StatusCode::ACCEPTED);
    assert_eq!(scene.upstream.connections(), (1, 0));
}

#[tokio::test]
async fn handshakes_refused_on_a_stream_end_the_session() {
    let scene = Scene::new().await;
    let response = scene.begin_handshake().await;
    scene.upstream.send_to_client(LOG, None).await;
    let response = within(response).await.unwrap();
    let session = session_of(&response).unwrap();
    scene.upstream.send_to_client(REFUSAL, None).await;
    assert!(within(response.text()).await.unwrap().contains(REFUSAL));
    scene
        .until(|upstream| upstream.connections() == (1, 1))
        .await;
    assert_eq!(scene.status_of(session).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn handshakes_refused_immediately_create_no_session() {
    let scene = Scene::new().await;
    let response = scene.begin_handshake().await;
    scene.upstream.send_to_client(REFUSAL, None).await;
    let response = within(response).await.unwrap();
    assert_eq!(session_of(&response), None);
    assert_eq!(within(response.text()).await.unwrap(), REFUSAL);
    scene
        .until(|upstream| upstream.connections() == (1, 1))
        .await;
}

#[tokio::test]
async fn clients_disconnecting_during_the_handshake_leave_no_session() {
    let scene = Scene::new().await;
    scene.begin_handshake().await.abort();
    scene
        .until(|upstream| upstream.connections() == (1, 1))
        .await;
}
