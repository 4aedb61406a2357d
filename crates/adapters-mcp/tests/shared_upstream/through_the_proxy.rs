//! Sessions of the proxy over one shared connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riglm_adapters_mcp::upstream::shared::SharedConnector;
use riglm_app::proxy::{ClientSession, Proxy};
use riglm_app::proxy::{Unavailable, Upstream, UpstreamOptions};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::{RecordingClient, ScriptedUpstream};

use crate::scene::{lost_error, settle};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"tester","version":"7"}}}"#;
const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn proxy(upstream: &Arc<ScriptedUpstream>) -> Proxy {
    Proxy::new(testing::proxy_parts(vec![Upstream {
        connector: Arc::new(SharedConnector::new(upstream.clone())),
        options: UpstreamOptions {
            unavailable: Unavailable::Hide,
            idle_timeout: Duration::from_mins(5),
            max_connections: None,
            ..UpstreamOptions::default()
        },
        fingerprint: String::new(),
        server_fingerprint: String::new(),
        approvals: None,
    }]))
}

async fn send(session: &Arc<ClientSession>, text: &str) {
    let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
    session.receive(message).await.unwrap();
    settle().await;
}

fn last(client: &RecordingClient) -> String {
    let delivered = client.delivered_messages();
    delivered.last().map(|(text, _)| text.clone()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_clients_call_at_the_same_time_and_survive_a_loss() {
    let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
    upstream.reply_to("initialize", WELCOME);
    let proxy = proxy(&upstream);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = Arc::new(RecordingClient::default());
        let session = proxy
            .accept(
                Transport::StreamableHttp,
                &Principal::local(),
                client.clone(),
            )
            .unwrap();
        send(&session, HELLO).await;
        send(&session, INITIALIZED).await;
        assert!(last(&client).contains(r#""id":0,"result""#));
        clients.push((session, client));
    }
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
    for (session, _) in &clients {
        send(session, call).await;
    }
    let n_greetings = || {
        let sent = upstream.sent_messages().into_iter();
        sent.filter(|(_, text)| text.contains("initialize\""))
            .count()
    };
    assert_eq!((upstream.connections(), n_greetings()), ((1, 0), 1));
    // The handshake was number 1.
    for (number, answer) in [(3, "second"), (2, "first")] {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":"riglm:s:{number}","result":{{"content":[],"of":"{answer}"}}}}"#
        );
        upstream.send_to_client(&text, None).await;
    }
    settle().await;
    for ((_, client), answer) in clients.iter().zip(["first", "second"]) {
        assert_eq!(
            last(client),
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"of":"{answer}"}}}}"#)
        );
    }

    upstream.reply_to("tools/call", r#""result":{"content":[],"again":true}"#);
    upstream.lose_connection(lost_error()).await;
    settle().await;
    for (session, client) in &clients {
        send(session, &call.replace(r#""id":1"#, r#""id":2"#)).await;
        assert!(last(client).contains(r#""id":2,"result":{"content":[],"again":true}"#));
    }
    assert_eq!((upstream.connections().0, n_greetings()), (2, 2));
    proxy.shutdown().await;
}
