//! Failures that affect the state of an upstream, and failures of one session.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_app::limits::Limits;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::observer::{Event, Observer};
use riglm_ports::upstream::UpstreamError;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::scene::{Scene, Setup, upstream};

const REFUSED: &str = r#""error":{"code":-32602,"message":"Invalid params"}"#;
/// Produces no message: the upstream does not answer.
const SILENCE: &str = "";

/// Records the changes of the availability of an upstream, in order.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<bool>>);

impl Observer for Changes {
    fn observe(&self, event: &Event<'_>) {
        if let Event::UpstreamChanged { is_available, .. } = event {
            self.0.lock().push(*is_available);
        }
    }
}

impl Changes {
    fn availability_changes(&self) -> Vec<bool> {
        self.0.lock().clone()
    }
}

fn pair() -> Vec<Arc<ScriptedUpstream>> {
    vec![upstream("a", &["x"]), upstream("b", &["y"])]
}

fn is_available(scene: &Scene) -> bool {
    scene.proxy.upstream_states()[0].is_available
}

async fn until(is_reached: impl Fn() -> bool) {
    let waiting = async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .unwrap();
}

/// Runs `doing` while the proxy checks its upstreams.
async fn while_checked(scene: &Scene, doing: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    tokio::select! {
        () = scene.proxy.check_upstreams(&stop) => {}
        () = doing => {}
    }
}

#[tokio::test]
async fn a_refused_handshake_leaves_the_upstream_available() {
    let mut scene = Setup::default().scene(pair());
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["a__x", "b__y"]);
    scene.change_client();
    for _ in 0..3 {
        scene.upstreams[0].reply_once_to("initialize", REFUSED);
    }
    scene.initialize().await;
    assert!(is_available(&scene));
    // The earlier tools of the upstream are shown during the outage.
    assert_eq!(scene.tools(1).await, ["a__x", "b__y"]);
    assert!(is_available(&scene));
}

#[tokio::test]
async fn upstreams_refusing_the_health_check_are_unavailable() {
    let mut scene = Setup::default().scene(pair());
    scene.initialize().await;
    scene.change_client();
    scene.upstreams[0].reply_to("initialize", REFUSED);
    scene.initialize().await;
    while_checked(&scene, until(|| !is_available(&scene))).await;
}

#[tokio::test]
async fn upstreams_refusing_every_handshake_stay_unavailable() {
    let changes = Arc::new(Changes::default());
    let setup = Setup {
        observer: changes.clone(),
        ..Setup::default()
    };
    let mut scene = setup.scene(pair());
    scene.upstreams[0].reply_to("initialize", REFUSED);
    for _ in 0..3 {
        scene.initialize().await;
        scene.change_client();
    }
    assert_eq!(changes.availability_changes(), [false]);
}

#[tokio::test]
async fn output_before_a_failure_does_not_mark_upstreams_available() {
    let changes = Arc::new(Changes::default());
    let setup = Setup {
        observer: changes.clone(),
        ..Setup::default()
    };
    let mut scene = setup.scene(pair());
    scene.upstreams[0].reply_to("initialize", SILENCE);
    let said = json!({"jsonrpc": "2.0", "method": "notifications/message",
        "params": {"level": "error", "data": "no configuration"}});
    for n in 1..4 {
        let dying = async {
            until(|| scene.upstreams[0].connections().0 == n).await;
            scene.upstreams[0]
                .send_to_client(&said.to_string(), None)
                .await;
            let reason = "it ended".into();
            scene.upstreams[0]
                .lose_connection(UpstreamError::Lost { reason })
                .await;
        };
        tokio::join!(scene.initialize(), dying);
        scene.change_client();
    }
    assert_eq!(changes.availability_changes(), [false]);
}

#[tokio::test]
async fn hanging_known_upstreams_become_unavailable() {
    let mut scene = Setup::default().scene(pair());
    scene.initialize().await;
    scene.tools(1).await;
    scene.change_client();
    scene.upstreams[0].reply_to("initialize", SILENCE);
    scene.initialize().await;
    until(|| !is_available(&scene)).await;
}

#[tokio::test]
async fn a_waiting_session_leaves_a_responsive_upstream_available() {
    let unite_timeout = Duration::from_secs(1);
    let setup = Setup {
        limits: Limits {
            unite_timeout,
            ..Limits::default()
        },
        ..Setup::default()
    };
    let mut scene = setup.scene(pair());
    scene.initialize().await;
    let first = Arc::clone(&scene.session);
    scene.change_client();
    scene.upstreams[0].reply_to("initialize", SILENCE);
    scene.initialize().await;
    scene.upstreams[0].reply_to("tools/call", r#""result":{}"#);
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "a__x"}});
    let call = riglm_domain::mcp::message::Message::from_text(call.to_string()).unwrap();
    if let Some(exchange) = first.receive(call).await.unwrap() {
        exchange.run.await;
    }
    tokio::time::sleep(unite_timeout).await;
    assert!(is_available(&scene));
}

#[tokio::test]
async fn recovered_upstreams_are_detected_despite_connected_sessions() {
    let scene = Setup::default().scene(pair());
    scene.initialize().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "a__x"}});
    scene.start(&call).await;
    let id = riglm_domain::mcp::message::RequestId::Number("1".into());
    let gone = UpstreamError::Unreachable { reason: "gone" };
    scene.upstreams[0].leave_unanswered(id, gone).await;
    assert!(!is_available(&scene));
    while_checked(&scene, until(|| is_available(&scene))).await;
    // The session still has its connection.
    until(|| scene.upstreams[0].connections() == (2, 1)).await;
}
