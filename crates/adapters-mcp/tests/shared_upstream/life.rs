//! Life cycle of the connection: opened, kept, lost and closed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riglm_adapters_mcp::upstream::shared::SharedConnector;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};

use crate::scene::{Scene, lost_error, settle};

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;

#[tokio::test(start_paused = true)]
async fn lost_connections_are_reported_to_all_sessions_and_replaced() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(REQUEST).await;
    scene.upstream.lose_connection(lost_error()).await;
    settle().await;
    let error = "the connection was lost: it ended";
    assert_eq!(
        a.received_messages(),
        [format!("unanswered 1: {error}"), format!("lost: {error}")]
    );
    assert_eq!(b.received_messages(), [format!("lost: {error}")]);
    assert!(matches!(
        b.try_send(REQUEST).await,
        Err(UpstreamError::Lost { .. })
    ));

    let again = scene.session().await;
    again.send(REQUEST).await;
    assert_eq!(scene.upstream.connections().0, 2);
    assert_eq!(scene.upstream.sent_messages()[1].0, 1);
    assert_eq!(
        (a.received_messages(), again.received_messages()),
        (Vec::new(), Vec::new())
    );
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_kept_for_a_minute() {
    let scene = Scene::new();
    scene.session().await.link.close().await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    let a = scene.session().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.upstream.connections(), (1, 0));
    a.link.close().await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(scene.upstream.connections(), (1, 1));
    scene.session().await.send(REQUEST).await;
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn dropped_links_count_as_closed() {
    let scene = Scene::new();
    let a = scene.session().await;
    a.send(REQUEST).await;
    drop(a);
    settle().await;
    assert!(scene.sent_messages()[1].contains("notifications/cancelled"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_closed_connector_leaves_no_connection_behind() {
    let scene = Scene::new();
    scene.session().await.link.close().await;
    scene
        .session_of(&Principal::from_name("other"))
        .await
        .link
        .close()
        .await;
    scene.connector.close().await;
    assert_eq!(scene.upstream.connections(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn concurrent_sessions_share_one_attempt_and_its_failure() {
    let scene = Scene::new();
    scene.upstream.refuse_connection(lost_error());
    let connector = SharedConnector::new(Arc::new(SlowUpstream(Arc::clone(&scene.upstream))));
    let attempt = || async {
        let connected = connector
            .connect(&Principal::local(), Arc::new(IgnoringSession))
            .await;
        connected.map(drop)
    };
    let (a, b) = tokio::join!(attempt(), attempt());
    assert_eq!((a, b), (Err(lost_error()), Err(lost_error())));
    assert_eq!(attempt().await, Ok(()));
    assert_eq!(scene.upstream.connections().0, 1);
}

#[tokio::test(start_paused = true)]
async fn expired_upstream_sessions_are_replaced() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(REQUEST).await;
    scene
        .upstream
        .leave_unanswered(
            RequestId::Text("riglm:s:1".into()),
            UpstreamError::SessionExpired,
        )
        .await;
    settle().await;
    assert_eq!(
        a.received_messages(),
        ["unanswered 1: the session is unknown or has expired"]
    );
    assert_eq!(
        b.try_send(REQUEST).await,
        Err(UpstreamError::SessionExpired)
    );
    scene.session().await.send(REQUEST).await;
    assert_eq!(scene.upstream.connections(), (2, 0));
    a.link.close().await;
    b.link.close().await;
    settle().await;
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_is_not_remembered() {
    let scene = Scene::new();
    let a = scene.session().await;
    scene.upstream.refuse_message(UpstreamError::NoAnswer);
    assert_eq!(a.try_send(REQUEST).await, Err(UpstreamError::NoAnswer));
    a.link.close().await;
    assert_eq!(scene.sent_messages(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn stalled_sessions_do_not_block_others() {
    let scene = Scene::new();
    let b = scene.session().await;
    let connected = scene
        .connector
        .connect(&Principal::local(), Arc::new(StuckSession))
        .await;
    let stuck = connected.unwrap();
    // More than the queue of one session holds; each text is different.
    for n in 0..300 {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/n{n}"}}"#);
        scene.upstream.send_to_client(&text, None).await;
    }
    settle().await;
    let told = b.received_messages();
    assert_eq!(told.len(), 300);
    assert!(told[299].contains("n299"));
    drop(stuck);
}

/// An upstream that connects slowly.
#[derive(Debug)]
struct SlowUpstream(Arc<ScriptedUpstream>);

#[async_trait]
impl UpstreamConnector for SlowUpstream {
    fn name(&self) -> &UpstreamName {
        self.0.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        settle().await;
        self.0.connect(principal, events).await
    }
}

/// A session that ignores all messages.
#[derive(Debug)]
struct IgnoringSession;

#[async_trait]
impl UpstreamEvents for IgnoringSession {
    async fn on_message(&self, _: Message, _: Option<RequestId>) {}

    async fn on_unanswered(&self, _: RequestId, _: UpstreamError) {}

    async fn on_lost(&self, _: UpstreamError) {}
}

/// A session whose client never reads.
#[derive(Debug)]
struct StuckSession;

#[async_trait]
impl UpstreamEvents for StuckSession {
    async fn on_message(&self, _: Message, _: Option<RequestId>) {
        std::future::pending::<()>().await;
    }

    async fn on_unanswered(&self, _: RequestId, _: UpstreamError) {}

    async fn on_lost(&self, _: UpstreamError) {}
}
