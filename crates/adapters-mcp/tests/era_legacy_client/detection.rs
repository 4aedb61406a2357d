//! Detection of the era of an upstream, and its cache.

use riglm_ports::upstream::UpstreamError;

use crate::scene::{
    DISCOVERED, Event, Exchanging, HELLO, META, REFUSED, Scene, WELCOME, modern, number,
    scripted_upstream,
};

const DISCOVER: &str = "server/discover";
const UNKNOWN_METHOD: &str = r#""error":{"code":-32601,"message":"?"}"#;

/// Returns the probe of the proxy.
fn probe() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"riglm:discover","method":"server/discover","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"riglm","version":"{}"}}}}}}}}"#,
        env!("CARGO_PKG_VERSION")
    )
}

#[tokio::test(start_paused = true)]
async fn legacy_clients_of_legacy_servers_are_passed_through_unchanged() {
    let scene = Scene::new(&[("initialize", WELCOME)]).await;
    scene.send(HELLO).await;
    let odd = r#"{"id":1, "method":"tools/call","jsonrpc":"2.0","params":{"n":1.0,"m":1e3,"k":18446744073709551616}}"#;
    scene.send(odd).await;
    let modern = modern(2, "tools/list");
    scene.send(&modern).await;
    assert_eq!(scene.sent_messages(), [HELLO, odd, &modern]);
    let asked = r#"{"jsonrpc":"2.0","id":"q", "method":"roots/list"}"#;
    scene.upstream.send_to_client(asked, Some(number(1))).await;
    let passed = Event::Received(asked.into(), Some(number(1)));
    assert_eq!(scene.last_event(), passed);
    assert_eq!(scene.received_messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn links_have_streams_if_the_connection_has() {
    let scene = Scene::new(&[("initialize", WELCOME)]).await;
    assert!(!scene.link.has_streams());
    scene.upstream.with_streams();
    assert!(scene.link.has_streams());
    scene.send(HELLO).await;
    assert!(scene.link.has_streams());
}

#[tokio::test(start_paused = true)]
async fn servers_refusing_a_handshake_are_probed_for_the_client() {
    let scene = Scene::with_bridge().await;
    let probe = format!(
        r#"{{"jsonrpc":"2.0","id":"riglm:discover","method":"server/discover","params":{{"_meta":{{{META}}}}}}}"#
    );
    assert_eq!(scene.sent_messages(), [HELLO, &probe]);
    let welcome = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"modern","version":"1"},"instructions":"be kind"}}"#;
    let answered = Event::Received(welcome.into(), Some(number(0)));
    assert_eq!(scene.events.all(), [answered]);
}

#[tokio::test(start_paused = true)]
async fn servers_of_neither_era_report_their_own_error() {
    let refused = r#""error":{"code":-32602,"message":"no","data":1.0}"#;
    let scene = Scene::new(&[("initialize", refused), (DISCOVER, UNKNOWN_METHOD)]).await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    let error = format!(r#"{{"jsonrpc":"2.0","id":0,{refused}}}"#);
    let answered = Event::Received(error, Some(number(0)));
    assert_eq!(scene.events.all(), [answered]);
}

#[tokio::test(start_paused = true)]
async fn handshakes_refused_by_http_status_lead_to_a_probe() {
    let scene = Scene::new(&[(DISCOVER, DISCOVERED)]).await;
    scene.send(HELLO).await;
    let status = UpstreamError::Status { status: 400 };
    scene.upstream.leave_unanswered(number(0), status).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert!(scene.last_told().contains(r#""name":"modern""#));
}

#[tokio::test(start_paused = true)]
async fn servers_exiting_at_handshakes_are_probed_over_new_connections() {
    let scene = Scene::new(&[(DISCOVER, DISCOVERED)]).await;
    scene.send(HELLO).await;
    let error = UpstreamError::Lost { reason: "x".into() };
    scene.upstream.lose_connection(error).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert!(scene.last_told().contains(r#""name":"modern""#));
    assert_eq!(scene.upstream.connections().0, 2);
    scene.link.close().await;
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_unrelated_to_the_era_reach_the_client() {
    let scene = Scene::new(&[(DISCOVER, DISCOVERED)]).await;
    scene.send(HELLO).await;
    let error = UpstreamError::Status { status: 401 };
    let unanswered = Event::Unanswered(number(0), error.clone());
    scene.upstream.leave_unanswered(number(0), error).await;
    scene.until(|scene| !scene.events.all().is_empty()).await;
    assert_eq!(scene.events.all(), [unanswered]);
    assert_eq!(scene.n_sent(DISCOVER), 0);
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_remembered() {
    let mut scene = Scene::with_bridge().await;
    scene.reconnect().await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert_eq!(scene.n_sent("initialize"), 1);
    assert_eq!(scene.n_sent(DISCOVER), 2);
    scene.reconnect().await;
    let request = modern(1, "tools/list");
    scene.send(&request).await;
    assert_eq!(scene.last_sent(), request);
    assert_eq!(scene.n_sent(DISCOVER), 2);
}

#[tokio::test(start_paused = true)]
async fn a_modern_request_is_preceded_by_one_probe_without_its_metadata() {
    let scene = Scene::new(&[(DISCOVER, DISCOVERED), ("tools/list", r#""result":{}"#)]).await;
    let request = modern(1, "tools/list");
    scene.send(&request).await;
    scene.send(&request).await;
    assert_eq!(scene.sent_messages(), [probe(), request.clone(), request]);
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(scene.received_messages(), [answer, answer]);
}

#[tokio::test(start_paused = true)]
async fn client_discovery_requests_serve_as_the_probe() {
    for (reply, is_modern) in [
        (DISCOVERED, true),
        (
            r#""error":{"code":-32022,"message":"v","data":{"supported":["2026-07-28"]}}"#,
            true,
        ),
        (
            r#""error":{"code":-32022,"message":"v","data":{"supported":["2025-11-25"]}}"#,
            false,
        ),
    ] {
        let scene = Scene::new(&[(DISCOVER, reply)]).await;
        let request = modern(5, DISCOVER);
        let _ = scene.try_send(&request).await;
        let probing = scene
            .upstream
            .sent_messages()
            .into_iter()
            .filter(|(n, _)| *n == 0);
        let probing: Vec<String> = probing.map(|(_, text)| text).collect();
        let again = (!is_modern).then(probe);
        let expected: Vec<String> = std::iter::once(request).chain(again).collect();
        assert_eq!(probing, expected, "{reply}");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":5,{reply}}}"#);
        let passed = Event::Received(answer, Some(number(5)));
        assert_eq!(scene.events.all().contains(&passed), is_modern, "{reply}");
        assert_eq!(scene.upstream.connections().1 == 0, is_modern, "{reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_discovery_does_not_imply_a_legacy_server() {
    let mut scene = Scene::new(&[]).await;
    let refused = r#""error":{"code":-32602,"message":"clientInfo lacks its version"}"#;
    let answers = async {
        scene.until(|scene| scene.n_sent(DISCOVER) == 1).await;
        scene
            .say(&format!(r#"{{"jsonrpc":"2.0","id":5,{refused}}}"#))
            .await;
        scene.until(|scene| scene.n_sent(DISCOVER) == 2).await;
        scene
            .say(&format!(
                r#"{{"jsonrpc":"2.0","id":"riglm:discover",{DISCOVERED}}}"#
            ))
            .await;
    };
    let question = modern(5, DISCOVER);
    tokio::join!(scene.send(&question), answers);
    assert_eq!(scene.sent_messages(), [question, probe()]);
    let refusal = format!(r#"{{"jsonrpc":"2.0","id":5,{refused}}}"#);
    assert_eq!(scene.received_messages(), [refusal]);
    scene.reconnect().await;
    let request = modern(1, "tools/list");
    scene.send(&request).await;
    assert_eq!(scene.last_sent(), request);
}

#[tokio::test(start_paused = true)]
async fn silent_servers_are_probed_again_later() {
    let mut scene = Scene::new(&[("initialize", WELCOME)]).await;
    let request = modern(1, "tools/list");
    scene.send(&request).await;
    assert_eq!(scene.n_sent(DISCOVER), 1);
    scene.upstream.reply_to(DISCOVER, DISCOVERED);
    for (wait, n_probes) in [(60, 1), (600, 2), (6_000, 2)] {
        tokio::time::sleep(std::time::Duration::from_secs(wait)).await;
        scene.reconnect().await;
        scene.send(&request).await;
        scene.rest().await;
        assert_eq!(scene.n_sent(DISCOVER), n_probes, "after {wait} s");
    }
    assert_eq!(scene.last_sent(), request);
}

#[tokio::test(start_paused = true)]
async fn probe_connections_to_legacy_servers_are_closed() {
    // Refuses, does not answer, or ends.
    for way in 0..3 {
        let scene = Scene::new(&[]).await;
        let request = modern(1, "tools/list");
        let replies = async {
            scene.until(|scene| scene.n_sent(DISCOVER) == 1).await;
            match way {
                0 => {
                    let id = r#""riglm:discover""#;
                    let refused = format!(r#"{{"jsonrpc":"2.0","id":{id},{UNKNOWN_METHOD}}}"#);
                    scene.say(&refused).await;
                }
                1 => {}
                _ => {
                    let error = UpstreamError::Lost { reason: "x".into() };
                    scene.upstream.lose_connection(error).await;
                }
            }
        };
        let _ = tokio::join!(scene.try_send(&request), replies);
        // The probe's connection is closed, and the request did not go over it.
        assert!(
            scene
                .upstream
                .sent_messages()
                .iter()
                .all(|(n, text)| *n > 0 || *text != request)
        );
        assert!(scene.upstream.connections().1 >= 1, "way {way}");
        let is_lost = |event: &Event| matches!(event, Event::Lost(_));
        assert!(!scene.events.all().iter().any(is_lost), "way {way}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_upstreams_are_not_classified_as_legacy() {
    let scene = Scene::new(&[]).await;
    let error = UpstreamError::Unreachable { reason: "down" };
    scene.upstream.refuse_message(error.clone());
    let request = modern(1, "tools/list");
    assert_eq!(scene.try_send(&request).await, Err(error));
    scene.upstream.reply_to(DISCOVER, DISCOVERED);
    scene.send(&request).await;
    assert_eq!(scene.last_sent(), request);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_both_eras_may_shake_hands_after_modern_messages() {
    let scene = Scene::new(&[(DISCOVER, DISCOVERED), ("initialize", WELCOME)]).await;
    scene.send(&modern(1, DISCOVER)).await;
    scene.send(HELLO).await;
    assert_eq!(scene.last_sent(), HELLO);
    assert!(scene.last_told().contains(r#""name":"s""#));
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
    scene.send(call).await;
    assert_eq!(scene.last_sent(), call);
    assert_eq!(scene.upstream.connections(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn modern_servers_are_forgotten_after_legacy_answers() {
    for is_status in [true, false] {
        let mut scene = Scene::new(&[(DISCOVER, DISCOVERED)]).await;
        scene.send(&modern(1, "tools/list")).await;
        assert_eq!(scene.n_sent(DISCOVER), 1);
        if is_status {
            let error = UpstreamError::Status { status: 404 };
            scene.upstream.leave_unanswered(number(1), error).await;
        } else {
            let error =
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"initialize first"}}"#;
            scene.say(error).await;
        }
        scene.send(&modern(2, "tools/list")).await;
        assert_eq!(scene.n_sent(DISCOVER), 2);
        scene.reconnect().await;
        scene.send(&modern(3, "tools/list")).await;
        assert_eq!(scene.n_sent(DISCOVER), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn legacy_servers_upgraded_to_modern_are_detected() {
    let mut scene = Scene::new(&[("initialize", WELCOME)]).await;
    scene.send(HELLO).await;
    let refused = r#""error":{"code":-32022,"message":"v","data":{"supported":["2026-07-28"]}}"#;
    scene.upstream.reply_to("initialize", refused);
    scene.upstream.reply_to(DISCOVER, DISCOVERED);
    scene.reconnect().await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert!(scene.last_told().contains(r#""name":"modern""#));
}

#[tokio::test(start_paused = true)]
async fn modern_servers_replaced_by_legacy_ones_are_detected() {
    let mut scene = Scene::with_bridge().await;
    scene.upstream.reply_to(DISCOVER, UNKNOWN_METHOD);
    scene.upstream.reply_to("initialize", WELCOME);
    scene.reconnect().await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert!(scene.last_told().contains(r#""name":"s""#));
    assert_eq!(scene.last_sent(), HELLO);
}

#[tokio::test(start_paused = true)]
async fn messages_wait_for_a_detection_in_their_order() {
    let scene = Scene::new(&[]).await;
    let requests: Vec<String> = (1..4).map(|id| modern(id, "tools/list")).collect();
    let answer = async {
        scene.until(|scene| scene.n_sent(DISCOVER) == 1).await;
        scene.rest().await;
        assert_eq!(scene.sent_messages().len(), 1);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":"riglm:discover",{DISCOVERED}}}"#);
        scene.say(&answer).await;
    };
    let [first, second, third] = requests.as_slice() else {
        unreachable!("there are three");
    };
    tokio::join!(
        scene.send(first),
        scene.send(second),
        scene.send(third),
        answer
    );
    assert_eq!(scene.sent_messages()[1..], requests);
}

#[tokio::test(start_paused = true)]
async fn exchanges_of_the_bridge_are_driven_by_the_bridge() {
    let upstream = scripted_upstream();
    let inner = std::sync::Arc::new(Exchanging(upstream.clone()));
    let replies = [("initialize", REFUSED), (DISCOVER, DISCOVERED)];
    let scene = Scene::over(upstream, inner, &replies).await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert!(scene.last_told().contains(r#""name":"modern""#));
    assert!(scene.link.has_streams());
}

#[tokio::test(start_paused = true)]
async fn closed_links_refuse_messages_and_close_once() {
    let scene = Scene::with_bridge().await;
    scene.link.close().await;
    scene.link.close().await;
    assert_eq!(scene.upstream.connections(), (1, 1));
    let request = modern(1, "tools/list");
    let refused = scene.try_send(&request).await;
    assert!(matches!(refused, Err(UpstreamError::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_a_detection() {
    let scene = Scene::new(&[]).await;
    let request = modern(1, "tools/list");
    let started = tokio::time::Instant::now();
    let close = async {
        scene.until(|scene| scene.n_sent(DISCOVER) == 1).await;
        scene.link.close().await;
    };
    let (sent, ()) = tokio::join!(scene.try_send(&request), close);
    assert!(matches!(sent, Err(UpstreamError::Lost { .. })), "{sent:?}");
    assert!(started.elapsed() < std::time::Duration::from_secs(1));
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn clients_without_handshake_are_bridged_to_known_servers() {
    let mut scene = Scene::with_bridge().await;
    scene.reconnect().await;
    scene
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
        .await;
    let signed = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    assert_eq!(scene.last_sent(), signed);
}

#[tokio::test(start_paused = true)]
async fn upstreams_refusing_modern_requests_serve_legacy_clients() {
    let mut scene = Scene::new(&[(DISCOVER, UNKNOWN_METHOD), ("initialize", WELCOME)]).await;
    let _ = scene.try_send(&modern(1, "tools/list")).await;
    let (n_opened, _) = scene.upstream.connections();
    scene.reconnect().await;
    assert_eq!(scene.upstream.connections().0, n_opened);
    scene.send(HELLO).await;
    assert_eq!(scene.last_sent(), HELLO);
    assert_eq!(scene.upstream.connections().0, n_opened + 1);
    assert_eq!(scene.n_sent(DISCOVER), 1);
    assert!(scene.last_told().contains(r#""name":"s""#));
}

#[tokio::test(start_paused = true)]
async fn silence_after_a_refusal_does_not_delay_the_refusal() {
    let scene = Scene::new(&[("initialize", REFUSED)]).await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    assert!(scene.last_told().contains(r#""code":-32601"#));
    // The rest of the first attempt does not disturb the next one.
    scene.upstream.reply_to("initialize", WELCOME);
    scene.send(HELLO).await;
    assert!(scene.last_told().contains(r#""name":"s""#));
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn failed_deferred_connections_are_reported_as_lost() {
    let mut scene = Scene::new(&[(DISCOVER, UNKNOWN_METHOD)]).await;
    let _ = scene.try_send(&modern(1, "tools/list")).await;
    scene.reconnect().await;
    let error = UpstreamError::NotStarted { reason: "x".into() };
    scene.upstream.refuse_connection(error.clone());
    assert_eq!(scene.try_send(HELLO).await, Err(error.clone()));
    assert_eq!(scene.events.all(), [Event::Lost(error)]);
}
