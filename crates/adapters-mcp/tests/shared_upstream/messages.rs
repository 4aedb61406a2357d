//! Ids, tokens and notifications of the server.

use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::privacy::principal::Principal;

use crate::scene::Scene;

fn call(token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"n":1.0,"_meta":{{"progressToken":{token}}}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn equal_ids_and_tokens_of_two_sessions_are_kept_apart() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&call("7")).await;
    b.send(&call("7")).await;
    let sent = |number: u32| {
        call(&format!(r#""riglm:s:{number}""#))
            .replace(r#""id":1"#, &format!(r#""id":"riglm:s:{number}""#))
    };
    assert_eq!(scene.sent_messages(), [sent(1), sent(2)]);
    assert_eq!(scene.upstream.connections(), (1, 0));

    scene.say(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"riglm:s:2","progress":0.50}}"#).await;
    scene
        .say(r#"{"jsonrpc":"2.0","id":"riglm:s:2","result":{"big":1e3}}"#)
        .await;
    scene
        .say(r#"{"jsonrpc":"2.0","id":"riglm:s:1","error":{"code":5,"message":"m","data":null}}"#)
        .await;
    // The progress of a task continues after the answer.
    scene.say(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"riglm:s:1","progress":1}}"#).await;
    assert_eq!(
        b.received_messages(),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.50}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"big":1e3}} on 1"#,
        ]
    );
    assert_eq!(
        a.received_messages(),
        [
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m","data":null}} on 1"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn cancellations_use_the_upstream_request_id() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(r#"{"jsonrpc":"2.0","id":"x","method":"m"}"#).await;
    let cancel = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"r"}}}}"#
        )
    };
    b.send(&cancel(r#""x""#)).await;
    a.send(&cancel(r#""other""#)).await;
    assert_eq!(scene.sent_messages().len(), 1);
    a.send(&cancel(r#""x""#)).await;
    assert_eq!(scene.sent_messages()[1], cancel(r#""riglm:s:1""#));
}

#[tokio::test(start_paused = true)]
async fn closing_a_session_cancels_only_its_own_requests() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).await;
    b.send(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).await;
    a.link.close().await;
    assert_eq!(
        scene.sent_messages()[2..],
        [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"riglm:s:1","reason":"the session ended"}}"#
        ]
    );
    a.link.close().await;
    assert!(
        a.try_send(r#"{"jsonrpc":"2.0","id":2,"method":"m"}"#)
            .await
            .is_err()
    );
    for id in ["riglm:s:1", "riglm:s:2"] {
        scene
            .say(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#))
            .await;
    }
    assert_eq!(a.received_messages(), Vec::<String>::new());
    assert_eq!(
        b.received_messages(),
        [r#"{"jsonrpc":"2.0","id":1,"result":{}} on 1"#]
    );
    assert_eq!(scene.upstream.connections(), (1, 0));
    assert_eq!(scene.sent_messages().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_server_reach_no_session() {
    let scene = Scene::new();
    let a = scene.session().await;
    scene
        .say(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#)
        .await;
    scene
        .say(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#)
        .await;
    let sent = scene.sent_messages();
    assert_eq!(sent[0], r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    assert!(sent[1].starts_with(r#"{"jsonrpc":"2.0","id":"r","error":{"code":-32601,"#));
    assert_eq!((sent.len(), a.received_messages().len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn global_notifications_reach_all_sessions_of_the_principal() {
    let scene = Scene::new();
    let other = scene.session_of(&Principal::from_name("other")).await;
    let (a, b) = (scene.session().await, scene.session().await);
    assert_eq!(scene.upstream.connections(), (2, 0));
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    scene.say(changed).await;
    assert_eq!(
        (a.received_messages(), b.received_messages()),
        (vec![changed.into()], vec![changed.into()])
    );
    assert_eq!(other.received_messages(), Vec::<String>::new());

    other.send(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).await;
    a.send(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#).await;
    let connections: Vec<usize> = scene
        .upstream
        .sent_messages()
        .into_iter()
        .map(|sent| sent.0)
        .collect();
    assert_eq!(connections, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn log_messages_go_to_sessions_with_a_log_level() {
    let scene = Scene::new();
    let (a, b, c) = (
        scene.session().await,
        scene.session().await,
        scene.session().await,
    );
    a.send(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#)
        .await;
    b.send(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}"#)
        .await;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}"#;
    scene.say(log).await;
    assert_eq!(
        (a.received_messages(), b.received_messages()),
        (vec![log.into()], vec![log.into()])
    );
    assert_eq!(c.received_messages(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn subscription_notifications_go_to_the_subscribed_session() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    let listen = r#"{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{}}"#;
    b.send(listen).await;
    a.send(listen).await;
    let news = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}}}"#
        )
    };
    scene.say(&news(r#""riglm:s:1""#)).await;
    assert_eq!(a.received_messages(), Vec::<String>::new());
    assert_eq!(b.received_messages(), [format!("{} on 9", news("9"))]);

    let cancelled = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        )
    };
    scene.say(&cancelled(r#""riglm:s:2""#)).await;
    assert_eq!(a.received_messages(), [format!("{} on 9", cancelled("9"))]);
    scene.say(&news(r#""riglm:s:2""#)).await;
    assert_eq!(
        (a.received_messages(), b.received_messages()),
        (Vec::new(), Vec::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_sent_and_answered_member_by_member() {
    let scene = Scene::new();
    let a = scene.session().await;
    scene.upstream.reply_to("m", r#""result":{}"#);
    a.send(r#"[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"n"}]"#)
        .await;
    assert_eq!(
        scene.sent_messages(),
        [
            r#"{"jsonrpc":"2.0","id":"riglm:s:1","method":"m"}"#,
            r#"{"jsonrpc":"2.0","method":"n"}"#
        ]
    );
    assert_eq!(
        a.received_messages(),
        [r#"{"jsonrpc":"2.0","id":1,"result":{}} on 1"#]
    );
}
