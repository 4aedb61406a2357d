//! Delivery of messages to the client, and their routes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_app::limits::Limits;
use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_domain::usage::invocation::{Outcome, ToolSource};
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, SessionRepository};
use riglm_ports::downstream::Route;
use riglm_ports::list_policy::ListPolicy;

use crate::scene::{Scene, Setup, call, id};

#[derive(Debug)]
struct HidesB;

impl ListPolicy for HidesB {
    fn select(&self, _context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        Selection::Without(
            (0..tools.len())
                .filter(|at| tools[*at].as_str() == "b")
                .collect(),
        )
    }
}

#[tokio::test]
async fn filtered_lists_are_recorded_whole_with_hidden_tools_callable() {
    let scene = Setup {
        policy: Some(Arc::new(HidesB)),
        ..Setup::default()
    }
    .scene();
    scene.upstream.reply_to(
        "tools/list",
        r#""result":{"tools":[{"name":"a","n":1.0},{"name":"b"}],"x":[]}"#,
    );
    scene
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
        .await;
    assert_eq!(
        scene.last(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","n":1.0}],"x":[]}}"#
    );
    scene.send(&call(2).replace("echo", "b")).await;
    scene.send(&call(3).replace("echo", "a")).await;
    let sessions = scene.store.sessions(1).await.unwrap();
    assert_eq!(sessions[0].tools_available, ["a", "b"]);
    let calls = scene
        .store
        .invocations(&InvocationFilter::default(), 10)
        .await
        .unwrap();
    let sources: Vec<_> = calls.iter().map(|call| call.invocation.source).collect();
    assert_eq!(sources, [ToolSource::Hidden, ToolSource::Shown]);
    assert_eq!(scene.upstream.sent_messages().len(), 3);
}

#[tokio::test]
async fn messages_without_streams_are_routed_to_their_requests() {
    let scene = Setup::default().scene();
    let with_token = call(1).replace(r#""name""#, r#""_meta":{"progressToken":"t"},"name""#);
    scene.send(&with_token).await;
    scene.send(&call(2)).await;
    let said = [
        (
            r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#,
            Some(1),
        ),
        (
            r#"{"method":"notifications/progress","params":{"progressToken":"?"}}"#,
            None,
        ),
        (r#"{"method":"notifications/message","params":{}}"#, None),
        (r#"{"method":"notifications/tools/list_changed"}"#, None),
        (r#"{"id":1,"method":"sampling/createMessage"}"#, Some(2)),
    ];
    for (text, expected) in said {
        scene.upstream.send_to_client(text, None).await;
        let route = expected.map_or(Route::Standalone, |number| Route::Related(id(number)));
        assert_eq!(
            scene.client.delivered_messages().last().unwrap(),
            &(text.to_owned(), route)
        );
    }
}

#[tokio::test]
async fn answers_shortly_after_progress_are_delayed_but_drained() {
    let scene = Setup::default().scene();
    let with_token = call(1).replace(r#""name""#, r#""_meta":{"progressToken":"t"},"name""#);
    scene.send(&with_token).await;
    let progress = r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#;
    scene.upstream.send_to_client(progress, None).await;
    let before = Instant::now();
    let answer = scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None);
    tokio::pin!(answer);
    assert!(futures_util::poll!(answer.as_mut()).is_pending());
    let drained = scene.session.drain(Duration::from_secs(10));
    tokio::join!(answer, drained);
    assert!(before.elapsed() >= Duration::from_millis(2));
    assert_eq!(scene.client.delivered_messages().len(), 2);
}

/// Sends a request with a progress token and makes the upstream answer right after a progress
/// notification, so that the answer is delayed for a moment. Returns the future that delivers it.
async fn answer_on_its_way(scene: &Scene) -> impl Future<Output = ()> + '_ {
    let with_token = call(1).replace(r#""name""#, r#""_meta":{"progressToken":"t"},"name""#);
    scene.send(&with_token).await;
    let progress = r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#;
    scene.upstream.send_to_client(progress, None).await;
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
}

#[tokio::test]
async fn interrupted_answers_release_the_permit_and_close_the_record() {
    let limits = Limits {
        in_flight: 1,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    {
        let answer = answer_on_its_way(&scene).await;
        tokio::pin!(answer);
        assert!(futures_util::poll!(answer.as_mut()).is_pending());
    }
    scene.session.drain(Duration::from_secs(5)).await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
    scene.send(&call(2)).await;
    assert_eq!(scene.upstream.sent_messages().len(), 2);
}

#[tokio::test]
async fn messages_on_the_server_stream_arrive_on_the_standalone_stream() {
    let scene = Setup::default().scene();
    scene.upstream.with_streams();
    scene.send(&call(1)).await;
    scene
        .upstream
        .send_to_client(r#"{"method":"notifications/message"}"#, None)
        .await;
    assert_eq!(
        scene.client.delivered_messages().last().unwrap().1,
        Route::Standalone
    );
}

#[tokio::test]
async fn hints_to_the_proxy_are_not_forwarded() {
    let scene = Setup::default().scene();
    scene.upstream.reply_to("tools/call", r#""result":{}"#);
    let plain = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"a/b": 1.0}}}"#;
    let hints = r#","io.github.riglm/session":"job","io.github.riglm/context":"words"}"#;
    scene
        .send(&plain.replace("1.0}", &format!("1.0{hints}")))
        .await;
    let trace = r#""traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#;
    let traced = plain.replace("1.0", &format!("1.0,{trace}"));
    scene.send(&traced.replace("\"id\":1", "\"id\":2")).await;
    let sent = scene.upstream.sent_messages().into_iter();
    assert_eq!(
        sent.map(|(_, text)| text).collect::<Vec<_>>(),
        [plain.to_owned(), traced.replace("\"id\":1", "\"id\":2")]
    );
}
