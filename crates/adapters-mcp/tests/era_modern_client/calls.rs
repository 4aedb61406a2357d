//! Requests, their answers, and related notifications.

use std::time::Duration;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamLink};
use serde_json::json;

use crate::scene::{ALL, INFO, Report, Scene, request};

const LOG: &str = r#","io.modelcontextprotocol/logLevel":"info""#;
const SHORT: Duration = Duration::from_millis(500);

#[tokio::test(start_paused = true)]
async fn discovery_repeats_the_handshake_information() {
    let scene = Scene::new();
    scene.request("1", "server/discover", "", "").await;
    let report = scene.next().await;
    assert_eq!(
        report.text(),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{{"tools":{{"listChanged":true}},"resources":{{"subscribe":true}},"logging":{{}},"x":1.0}},"instructions":"be\u0020kind","ttlMs":0,"cacheScope":"private","_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}}}"#
        )
    );
    assert_eq!(report.related_id(), "1");
    assert_eq!(scene.n_sent("server/discover"), 0);
}

#[tokio::test(start_paused = true)]
async fn lists_are_immediately_stale_without_other_changes() {
    let scene = Scene::new();
    scene.upstream.reply_to(
        "tools/list",
        r#""result":{ "tools":[{"x":1e3}],"n":18446744073709551616}"#,
    );
    let extra = r#","io.modelcontextprotocol/logLevel":"info","traceparent":"00-1","n":1e3"#;
    scene
        .request(r#""a""#, "tools/list", r#""cursor":"c""#, extra)
        .await;
    assert_eq!(
        scene.next().await.text(),
        format!(
            r#"{{"jsonrpc":"2.0","id":"a","result":{{ "tools":[{{"x":1e3}}],"n":18446744073709551616,"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}}}"#
        )
    );
    // The modern metadata is removed: a server of both eras would take a request with its revision
    // for a modern one.
    let id = scene.legacy_id("tools/list");
    let sent = format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/list","params":{{"cursor":"c","_meta":{{"traceparent":"00-1","n":1e3}}}}}}"#
    );
    assert_eq!(scene.last(), sent);
}

#[tokio::test(start_paused = true)]
async fn a_call_reports_its_progress_and_then_its_answer() {
    let scene = Scene::new();
    let token = r#","progressToken":"p""#;
    scene
        .request("1", "tools/call", r#""name":"t""#, token)
        .await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.70}}"#;
    scene.say(progress).await;
    scene.say(&progress.replace(r#""p""#, r#""q""#)).await;
    let id = scene.legacy_id("tools/call");
    scene.answer(&id, r#""result":{"content":[]}"#).await;
    scene.say(progress).await;
    let first = scene.next().await;
    assert_eq!((first.text(), first.related_id()), (progress, "1".into()));
    let answer = scene.next().await;
    assert_eq!(answer.json()["result"]["resultType"], "complete");
    assert_eq!(answer.json()["result"].get("ttlMs"), None);
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn errors_keep_their_texts_and_get_the_codes_of_the_revision() {
    let scene = Scene::new();
    let error = |code| format!(r#""error":{{"code":{code},"message":"m","data":{{"x":1.0}}}}"#);
    scene.upstream.reply_to("resources/read", &error(-32002));
    scene
        .request("1", "resources/read", r#""uri":"a:b""#, "")
        .await;
    let expected = format!(r#"{{"jsonrpc":"2.0","id":1,{}}}"#, error(-32602));
    assert_eq!(scene.next().await.text(), expected);
}

#[tokio::test(start_paused = true)]
async fn methods_of_legacy_revisions_are_unknown() {
    let scene = Scene::new();
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        scene.request("1", method, "", "").await;
        assert_eq!(
            scene.next().await.json()["error"]["code"],
            -32601,
            "{method}"
        );
    }
    assert_eq!(scene.upstream.connections(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_reaches_the_server_under_the_id_it_knows() {
    let scene = Scene::new();
    scene.call("1").await;
    let id = scene.legacy_id("tools/call");
    scene.cancel("2").await;
    scene.cancel("1").await;
    let sent = scene.last();
    assert_eq!(
        sent,
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{id}","reason":"no"}}}}"#
        )
    );
    assert_eq!(scene.n_sent("notifications/cancelled"), 1);
    scene.answer(&id, r#""result":{}"#).await;
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn calls_cancelled_before_the_handshake_are_never_sent() {
    let scene = Scene::new();
    let text = request(ALL, "1", "tools/call", r#""name":"t""#, "");
    let sent = scene.link.send(Message::from_text(text).unwrap()).await;
    scene.cancel("1").await;
    if let SendOutcome::UnderWay(exchange) = sent.unwrap() {
        exchange.on_its_way.await;
    }
    scene.nothing_within(SHORT).await;
    assert_eq!(scene.n_sent("initialize"), 1);
    assert_eq!(scene.n_sent("tools/call"), 0);
}

#[tokio::test(start_paused = true)]
async fn log_messages_go_to_requests_with_a_log_level() {
    let scene = Scene::new();
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}"#;
    scene.call("1").await;
    scene.say(log).await;
    scene.nothing_within(SHORT).await;
    scene.request("2", "tools/call", r#""name":"t""#, LOG).await;
    assert!(
        scene
            .sees("logging/setLevel")
            .await
            .contains(r#""params":{"level":"info"}"#)
    );
    scene.say(log).await;
    let report = scene.next().await;
    assert_eq!((report.text(), report.related_id()), (log, "2".into()));
    scene.request("3", "tools/call", r#""name":"t""#, LOG).await;
    scene.say(log).await;
    scene.nothing_within(SHORT).await;
    scene.say_for(&scene.legacy_id("tools/call"), log).await;
    assert_eq!(scene.next().await.related_id(), "3");
}

#[tokio::test(start_paused = true)]
async fn other_notifications_pass_only_on_behalf_of_a_request() {
    let scene = Scene::new();
    scene.call("1").await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"y":1.0}}"#;
    scene.say(note).await;
    scene.nothing_within(SHORT).await;
    scene.say_for(&scene.legacy_id("tools/call"), note).await;
    let report = scene.next().await;
    assert_eq!((report.text(), report.related_id()), (note, "1".into()));
}

#[tokio::test(start_paused = true)]
async fn server_batches_are_split() {
    let scene = Scene::new();
    scene.call("1").await;
    let id = scene.legacy_id("tools/call");
    let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#);
    scene.say(&format!("[{ping},{answer}]")).await;
    assert_eq!(scene.next().await.related_id(), "1");
    scene.sees(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#).await;
}

#[tokio::test(start_paused = true)]
async fn unanswered_requests_are_reported() {
    let scene = Scene::new();
    scene.call("1").await;
    let id = RequestId::Text(scene.legacy_id("tools/call").into());
    let error = UpstreamError::Status { status: 500 };
    scene.upstream.leave_unanswered(id, error.clone()).await;
    let expected = Report::Unanswered(RequestId::Number("1".into()), error);
    assert_eq!(scene.next().await, expected);
}

#[tokio::test(start_paused = true)]
async fn batches_and_ids_in_flight_are_refused() {
    let scene = Scene::new();
    scene.call("1").await;
    let again = request(ALL, "1", "tools/list", "", "");
    assert!(scene.send(&again).await.is_err());
    scene
        .send(&format!("[{}]", again.replace(r#""id":1"#, r#""id":2"#)))
        .await
        .unwrap();
    let refused = scene.next().await.json();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(2), &json!(-32600))
    );
}

#[tokio::test(start_paused = true)]
async fn calls_requiring_url_elicitation_are_repeated_afterwards() {
    let scene = Scene::new();
    let page = r#"{"mode":"url","elicitationId":"e","url":"https://a/","message":"go","n":1.0}"#;
    let required =
        format!(r#""error":{{"code":-32042,"message":"m","data":{{"elicitations":[{page}]}}}}"#);
    scene.upstream.reply_to("tools/call", &required);
    scene.call("1").await;
    let report = scene.next().await;
    assert!(report.text().contains(&format!(
        r#""inputRequests":{{"elicitation-1":{{"method":"elicitation/create","params":{page}}}}}"#
    )));
    let state = report.json()["result"]["requestState"]
        .as_str()
        .unwrap()
        .to_owned();
    scene
        .upstream
        .reply_to("tools/call", r#""result":{"content":[]}"#);
    scene
        .retry("2", &state, r#"{"elicitation-1":{"action":"accept"}}"#)
        .await;
    let done = scene.next().await.json();
    assert_eq!(
        (&done["id"], &done["result"]["resultType"]),
        (&json!(2), &json!("complete"))
    );
    let sent = scene.last();
    assert!(
        !sent.contains("requestState") && !sent.contains("inputResponses"),
        "{sent}"
    );
    assert_eq!(scene.n_sent("tools/call"), 2);
}

#[tokio::test(start_paused = true)]
async fn clients_without_url_elicitation_get_the_missing_capability() {
    let scene = Scene::with(r#"{"elicitation":{}}"#, |_| {});
    let required = r#""error":{"code":-32042,"message":"m","data":{"elicitations":[{"url":"u"}]}}"#;
    scene.upstream.reply_to("tools/call", required);
    scene.call("1").await;
    let error = scene.next().await.json()["error"].clone();
    assert_eq!(error["code"], -32021);
    assert_eq!(
        error["data"],
        json!({"requiredCapabilities": {"elicitation": {"url": {}}}})
    );
}

#[tokio::test(start_paused = true)]
async fn a_closed_link_reports_nothing_and_takes_nothing() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.link.close().await;
    assert_eq!(scene.upstream.connections(), (1, 1));
    let id = scene.legacy_id("tools/call");
    scene.answer(&id, r#""result":{}"#).await;
    scene.nothing_within(SHORT).await;
    let again = request(ALL, "2", "tools/list", "", "");
    assert!(matches!(
        scene.send(&again).await,
        Err(UpstreamError::Lost { .. })
    ));
}
