//! A complete client session over the bridge: the messages to the client, and their routes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_app::proxy::{ClientSession, Proxy, Upstream};
use riglm_app::testing;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::downstream::Route;
use riglm_ports::fake::{RecordingClient, ScriptedUpstream};

use crate::scene::{DISCOVERED, HELLO, INITIALIZED, REFUSED, number, result, scripted_upstream};

/// A client session in front of a modern server.
struct SessionScene {
    upstream: Arc<ScriptedUpstream>,
    client: Arc<RecordingClient>,
    session: Arc<ClientSession>,
}

impl SessionScene {
    fn new() -> Self {
        let upstream = scripted_upstream();
        upstream.reply_to("initialize", REFUSED);
        upstream.reply_to("server/discover", DISCOVERED);
        let connector = EraConnector::new(upstream.clone(), BridgeOptions::new([0; 32]));
        let proxy = Proxy::new(testing::proxy_parts(vec![Upstream::new(Arc::new(
            connector,
        ))]));
        let client = Arc::new(RecordingClient::default());
        let session = proxy
            .accept(
                Transport::StreamableHttp,
                &Principal::local(),
                client.clone(),
            )
            .unwrap();
        Self {
            upstream,
            client,
            session,
        }
    }

    async fn send(&self, text: &str) {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        assert!(self.session.receive(message).await.unwrap().is_none());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    fn last(&self) -> (String, Route) {
        self.client.delivered_messages().pop().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_with_modern_servers_work_through_the_proxy() {
    let session = SessionScene::new();
    session.send(HELLO).await;
    assert_eq!(session.last().1, Route::Related(number(0)));
    assert!(session.session.is_initialized());
    session.send(INITIALIZED).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    session.send(call).await;
    let asks = r#"{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}}}"#;
    session
        .upstream
        .send_to_client(&result("1", asks), None)
        .await;
    let question =
        r#"{"jsonrpc":"2.0","id":"riglm:input:2","method":"elicitation/create","params":{}}"#;
    assert_eq!(session.last(), (question.into(), Route::Related(number(1))));
    session.send(&result("\"riglm:input:2\"", "{}")).await;
    session
        .upstream
        .send_to_client(&result("\"riglm:retry:3\"", "{}"), None)
        .await;
    assert_eq!(
        session.last(),
        (result("1", "{}"), Route::Related(number(1)))
    );
    assert_eq!(session.client.delivered_messages().len(), 3);
    session.session.close().await;
    assert_eq!(session.upstream.connections(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn sessions_are_restored_after_a_lost_connection() {
    let session = SessionScene::new();
    session.send(HELLO).await;
    session.send(INITIALIZED).await;
    let error = riglm_ports::upstream::UpstreamError::Lost { reason: "x".into() };
    session.upstream.lose_connection(error).await;
    session
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
        .await;
    let sent = session.upstream.sent_messages();
    let is_on_second = |what: &str| sent.iter().any(|(n, text)| *n == 1 && text.contains(what));
    assert!(is_on_second("server/discover"), "{sent:#?}");
    assert!(is_on_second("subscriptions/listen"), "{sent:#?}");
    assert!(
        is_on_second(r#""method":"tools/list","params":{"_meta""#),
        "{sent:#?}"
    );
    session
        .upstream
        .send_to_client(&result("1", r#"{"tools":[]}"#), None)
        .await;
    let answered = (result("1", r#"{"tools":[]}"#), Route::Related(number(1)));
    assert_eq!(session.last(), answered);
}
