//! The proxy over fakes: what is recorded when, and what happens when the upstream fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use riglm_app::clock::SystemClock;
use riglm_app::filtering::ListFilter;
use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientSession, Naming, Proxy, ProxyParts, Upstream};
use riglm_app::tracking::{Recorder, RecorderOptions};
use riglm_domain::canonical::KeyedHasher;
use riglm_domain::id::{RunId, ToolName, UpstreamName};
use riglm_domain::invocation::{Outcome, ToolSource};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_domain::principal::Principal;
use riglm_domain::protocol::Transport;
use riglm_domain::record::Record;
use riglm_domain::rpc_error::RpcErrorCode;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, SessionRepository};
use riglm_ports::clock::Clock;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::fake::{MemoryStore, RecordingClient, ScriptedUpstream};
use riglm_ports::predictor::Predictor;
use riglm_ports::upstream::UpstreamError;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#;
const WELCOME: &str = r#""result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;

/// A proxy over fakes, with one client.
struct Scene {
    store: Arc<MemoryStore>,
    upstream: Arc<ScriptedUpstream>,
    client: Arc<RecordingClient>,
    proxy: Proxy,
    session: Arc<ClientSession>,
}

#[derive(Default)]
struct Setup {
    options: RecorderOptions,
    limits: Limits,
    predictor: Option<Arc<dyn Predictor>>,
}

impl Setup {
    fn scene(self) -> Scene {
        let store = Arc::new(MemoryStore::default());
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        upstream.reply_to("initialize", WELCOME);
        let run = RunId::new(SystemClock.now(), [0; 10]);
        let hasher = KeyedHasher::new(&[7; 32]);
        let clock = Arc::new(SystemClock);
        let proxy = Proxy::new(ProxyParts {
            upstreams: vec![Upstream::new(upstream.clone())],
            naming: Naming::Prefix,
            recorder: Arc::new(Recorder::new(
                store.clone(),
                hasher,
                clock,
                run,
                self.options,
            )),
            filter: ListFilter::new(self.predictor),
            limits: self.limits,
        });
        let client = Arc::new(RecordingClient::default());
        let session = proxy
            .accept(
                Transport::StreamableHttp,
                &Principal::local(),
                client.clone(),
            )
            .unwrap();
        Scene {
            store,
            upstream,
            client,
            proxy,
            session,
        }
    }
}

impl Scene {
    async fn send(&self, text: &str) {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        self.session.receive(message).await.unwrap();
    }

    async fn outcomes(&self) -> Vec<Option<Outcome>> {
        let calls = self
            .store
            .invocations(&InvocationFilter::default(), 100)
            .await
            .unwrap();
        calls
            .into_iter()
            .map(|call| call.end.map(|end| end.outcome))
            .collect()
    }

    fn last(&self) -> String {
        self.client.delivered().last().unwrap().0.clone()
    }
}

fn call(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"secret":"s3cr3t"}}}}}}"#
    )
}

fn id(number: u32) -> RequestId {
    RequestId::Number(number.to_string().into())
}

/// A client that notes how many calls were closed in the store when their answers came.
#[derive(Debug)]
struct Witness {
    store: Arc<MemoryStore>,
    closed: Mutex<Vec<usize>>,
}

#[async_trait]
impl ClientLink for Witness {
    async fn deliver(&self, _message: Message, _route: Route) {
        let is_end = |record: &Record| matches!(record, Record::CallClosed(_));
        let n_closed = self
            .store
            .records()
            .iter()
            .filter(|record| is_end(record))
            .count();
        self.closed.lock().unwrap().push(n_closed);
    }

    async fn finish(&self, _request: &RequestId) {}

    async fn close(&self) {}
}

#[tokio::test]
async fn the_row_of_a_call_is_open_when_it_is_forwarded_and_closed_when_its_reply_leaves() {
    let scene = Setup::default().scene();
    let witness = Arc::new(Witness {
        store: scene.store.clone(),
        closed: Mutex::default(),
    });
    let session = scene
        .proxy
        .accept(Transport::Stdio, &Principal::local(), witness.clone())
        .unwrap();
    let message = Message::parse(&Bytes::from(call(1))).unwrap();
    session.receive(message).await.unwrap();
    assert_eq!(scene.outcomes().await, [None]);
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(*witness.closed.lock().unwrap(), [1]);
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn a_session_is_recorded_with_what_its_client_says_of_itself() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    scene.session.close().await;
    let sessions = scene.store.sessions(10).await.unwrap();
    let session = &sessions[0];
    assert_eq!(session.session.client_info.name, "tester");
    assert_eq!(session.session.protocol.as_str(), "2025-06-18");
    assert_eq!((session.n_calls, session.ended_at.is_some()), (1, true));
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
    assert!(scene.client.is_closed());
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test]
async fn arguments_are_stored_only_when_asked_for_and_then_without_secrets() {
    for include_arguments in [false, true] {
        let options = RecorderOptions {
            include_arguments,
            ..RecorderOptions::default()
        };
        let scene = Setup {
            options,
            ..Setup::default()
        }
        .scene();
        scene.send(&call(1)).await;
        let calls = scene
            .store
            .invocations(&InvocationFilter::default(), 1)
            .await
            .unwrap();
        let expected = include_arguments.then(|| r#"{"secret":"[redacted]"}"#.to_owned());
        assert_eq!(calls[0].invocation.arguments, expected);
        assert!(!format!("{:?}", scene.store.records()).contains("s3cr3t"));
    }
}

#[tokio::test]
async fn the_three_kinds_of_failure_are_errors_and_pass_as_they_are() {
    let scene = Setup::default().scene();
    let answers = [
        r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"x":1.0}}"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"m","data":null}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{"isError":false}}"#,
    ];
    for (number, answer) in (1..).zip(answers) {
        scene.send(&call(number)).await;
        scene.upstream.say(answer, None).await;
        assert_eq!(scene.last(), answer);
    }
    let expected = [Outcome::Error, Outcome::Error, Outcome::Ok].map(Some);
    assert_eq!(scene.outcomes().await, expected);
}

#[tokio::test]
async fn a_second_request_with_an_id_in_flight_is_refused_and_the_first_goes_on() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.send(&call(1)).await;
    assert!(
        scene.last().contains(r#""id":1,"error":{"code":-32600"#),
        "{}",
        scene.last()
    );
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.last(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_goes_on_unless_recording_is_required() {
    for is_required in [false, true] {
        let options = RecorderOptions {
            is_required,
            ..RecorderOptions::default()
        };
        let scene = Setup {
            options,
            ..Setup::default()
        }
        .scene();
        scene.send(HELLO).await;
        scene.store.start_failing();
        scene.send(&call(1)).await;
        let n_sent = scene
            .upstream
            .sent()
            .iter()
            .filter(|(_, text)| text.contains("echo"))
            .count();
        assert_eq!(n_sent, usize::from(!is_required));
        let code = RpcErrorCode::RecordingUnavailable.code().to_string();
        assert_eq!(scene.last().contains(&code), is_required);
    }
}

#[tokio::test]
async fn a_cancelled_call_is_recorded_and_its_late_answer_changes_nothing() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    scene.send(cancel).await;
    assert_eq!(scene.upstream.sent().last().unwrap().1, cancel);
    assert_eq!(scene.client.finished(), [id(1)]);
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
}

#[tokio::test]
async fn a_request_past_its_deadline_is_answered_and_cancelled_upstream() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    while scene.client.delivered().is_empty() || scene.upstream.sent().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::UpstreamTimeout.code().to_string())
    );
    assert!(
        scene
            .upstream
            .sent()
            .last()
            .unwrap()
            .1
            .contains("notifications/cancelled")
    );
    assert_eq!(scene.outcomes().await, [Some(Outcome::Timeout)]);
}

#[tokio::test]
async fn nothing_expires_while_the_client_owes_the_server_an_answer() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene
        .upstream
        .say(
            r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}"#,
            None,
        )
        .await;
    assert_eq!(
        scene.client.delivered().last().unwrap().1,
        Route::Related(id(1))
    );
    scene.proxy.sweep(Instant::now() + Duration::from_mins(5));
    tokio::task::yield_now().await;
    assert_eq!(scene.outcomes().await, [None]);
}

#[tokio::test]
async fn a_lost_connection_fails_its_calls_and_is_set_up_again_as_the_client_did() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    scene.send(ready).await;
    scene.send(&call(1)).await;
    scene
        .upstream
        .lose(UpstreamError::Lost {
            reason: "exit status 1".into(),
        })
        .await;
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::UpstreamUnavailable.code().to_string())
    );
    assert_eq!(scene.outcomes().await, [Some(Outcome::Error)]);
    scene.send(&call(2)).await;
    let again: Vec<String> = scene
        .upstream
        .sent()
        .into_iter()
        .filter(|(connection, _)| *connection == 1)
        .map(|(_, text)| text)
        .collect();
    let hello_again = HELLO.replace(r#""hello""#, r#""riglm:initialize:2""#);
    assert_eq!(again, [hello_again, ready.to_owned(), call(2)]);
    assert!(
        !scene.last().contains("riglm:"),
        "the proxy's own answer reached the client"
    );
}

#[tokio::test]
async fn a_forgotten_session_is_set_up_again_and_the_request_sent_once_more() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    scene
        .upstream
        .leave_unanswered(id(1), UpstreamError::SessionExpired)
        .await;
    while scene
        .upstream
        .sent()
        .iter()
        .filter(|(_, text)| *text == call(1))
        .count()
        < 2
    {
        tokio::task::yield_now().await;
    }
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn an_upstream_that_does_not_start_is_an_answer_and_the_next_try_is_free() {
    let scene = Setup::default().scene();
    scene.upstream.refuse_connection(UpstreamError::NotStarted {
        reason: "no such file".into(),
    });
    scene.send(HELLO).await;
    assert!(scene.last().contains("no such file"), "{}", scene.last());
    scene.send(HELLO).await;
    assert!(scene.last().contains("serverInfo"), "{}", scene.last());
}

#[tokio::test]
async fn too_many_requests_are_refused_and_places_become_free_again() {
    let limits = Limits {
        in_flight_per_session: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    for number in 1..=3 {
        scene.send(&call(number)).await;
    }
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::LimitReached.code().to_string())
    );
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    scene.send(&call(4)).await;
    assert_eq!(scene.upstream.sent().len(), 3);
}

#[tokio::test]
async fn a_session_that_is_silent_too_long_is_ended() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.proxy.sweep(Instant::now() + Duration::from_hours(1));
    scene.session.close().await; // Waits for the end that the sweep began.
    assert!(scene.client.is_closed());
    scene.proxy.sweep(Instant::now());
    assert_eq!(scene.proxy.n_sessions(), 0);
}

#[tokio::test]
async fn sessions_are_limited_in_all_and_for_each_principal() {
    let limits = Limits {
        sessions: 3,
        sessions_per_principal: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    let accept = |name: &str| {
        let client = Arc::new(RecordingClient::default());
        scene
            .proxy
            .accept(Transport::Sse, &Principal::named(name), client)
    };
    let first = accept("a").unwrap();
    accept("a").unwrap();
    assert_eq!(accept("a").unwrap_err().code, RpcErrorCode::LimitReached);
    assert_eq!(accept("b").unwrap_err().code, RpcErrorCode::LimitReached);
    first.close().await;
    assert!(accept("b").is_ok());
}

#[derive(Debug)]
struct HidesB;

impl Predictor for HidesB {
    fn select(&self, _context: &SelectionContext<'_>, tools: &[ToolName]) -> Selection {
        Selection::Without(
            (0..tools.len())
                .filter(|at| tools[*at].as_str() == "b")
                .collect(),
        )
    }
}

#[tokio::test]
async fn a_list_is_recorded_whole_and_shown_filtered_and_hidden_tools_are_callable() {
    let scene = Setup {
        predictor: Some(Arc::new(HidesB)),
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
    assert_eq!(scene.upstream.sent().len(), 3);
}

#[tokio::test]
async fn messages_of_an_upstream_without_streams_go_where_they_belong() {
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
        scene.upstream.say(text, None).await;
        let route = expected.map_or(Route::Standalone, |number| Route::Related(id(number)));
        assert_eq!(
            scene.client.delivered().last().unwrap(),
            &(text.to_owned(), route)
        );
    }
}

#[tokio::test]
async fn at_shutdown_requests_in_flight_end_and_new_ones_are_refused() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    let shutdown = scene.proxy.shutdown();
    tokio::pin!(shutdown);
    assert!(futures_util::poll!(shutdown.as_mut()).is_pending());
    scene.send(&call(2)).await;
    assert!(scene.last().contains("shutting down"), "{}", scene.last());
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    shutdown.await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
    assert!(scene.client.is_closed());
}

#[tokio::test]
async fn an_answer_keeps_its_distance_from_progress_and_the_end_waits_for_it() {
    let scene = Setup::default().scene();
    let with_token = call(1).replace(r#""name""#, r#""_meta":{"progressToken":"t"},"name""#);
    scene.send(&with_token).await;
    let progress = r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#;
    scene.upstream.say(progress, None).await;
    let before = Instant::now();
    let answer = scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None);
    tokio::pin!(answer);
    assert!(futures_util::poll!(answer.as_mut()).is_pending());
    let drained = scene.session.drain(Duration::from_secs(10));
    tokio::join!(answer, drained);
    assert!(before.elapsed() >= Duration::from_millis(2));
    assert_eq!(scene.client.delivered().len(), 2);
}

/// Sends a request that asks for progress and lets the upstream answer right after some of it, so
/// that the answer is on its way for a moment. Returns the future that brings it.
async fn answer_on_its_way(scene: &Scene) -> impl Future<Output = ()> + '_ {
    let with_token = call(1).replace(r#""name""#, r#""_meta":{"progressToken":"t"},"name""#);
    scene.send(&with_token).await;
    let progress = r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#;
    scene.upstream.say(progress, None).await;
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
}

#[tokio::test]
async fn an_answer_that_is_cut_off_on_its_way_gives_up_its_place_and_closes_its_row() {
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
    assert_eq!(scene.upstream.sent().len(), 2);
}

#[tokio::test]
async fn a_cancelled_request_gives_its_place_to_other_sessions_but_not_to_its_own() {
    let limits = Limits {
        in_flight: 2,
        in_flight_per_session: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    for number in 1..=2 {
        scene.send(&call(number)).await;
        scene
            .send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number}}}}}"#
            ))
            .await;
    }
    scene.send(&call(3)).await;
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::LimitReached.code().to_string())
    );
    let client = Arc::new(RecordingClient::default());
    let other = scene
        .proxy
        .accept(Transport::Sse, &Principal::local(), client.clone())
        .unwrap();
    other
        .receive(Message::parse(&Bytes::from(call(1))).unwrap())
        .await
        .unwrap();
    assert!(client.delivered().is_empty(), "{:?}", client.delivered());
}

#[tokio::test]
async fn a_request_that_the_server_took_back_extends_no_deadline() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene
        .upstream
        .say(r#"{"id":9,"method":"elicitation/create"}"#, None)
        .await;
    let back = r#"{"method":"notifications/cancelled","params":{"requestId":9}}"#;
    scene.upstream.say(back, None).await;
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    while scene.outcomes().await == [None] {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.outcomes().await, [Some(Outcome::Timeout)]);
}

#[tokio::test]
async fn only_the_request_that_the_server_asked_for_gets_more_time() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.send(&call(2)).await;
    scene
        .upstream
        .say(r#"{"id":9,"method":"elicitation/create"}"#, Some(id(1)))
        .await;
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    while scene.outcomes().await == [None, None] {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.outcomes().await, [None, Some(Outcome::Timeout)]);
}

#[tokio::test]
async fn sessions_that_expire_again_and_again_are_set_up_again_without_delay() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    for number in 1..=12 {
        scene.send(&call(number)).await;
        scene
            .upstream
            .leave_unanswered(id(number), UpstreamError::SessionExpired)
            .await;
        let sent = call(number);
        let again = async {
            while scene
                .upstream
                .sent()
                .iter()
                .filter(|(_, text)| *text == sent)
                .count()
                < 2
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(1), again)
            .await
            .unwrap();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
        scene.upstream.say(&answer, None).await;
    }
    assert!(
        scene
            .outcomes()
            .await
            .iter()
            .all(|outcome| *outcome == Some(Outcome::Ok))
    );
}

#[tokio::test]
async fn a_broken_delivery_does_not_end_a_session_that_goes_on() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    scene.upstream.refuse_message(UpstreamError::Lost {
        reason: "one connection broke".into(),
    });
    let note = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    let message = Message::parse(&Bytes::from(note.to_owned())).unwrap();
    let refused = scene.session.receive(message).await.unwrap_err();
    assert_eq!(refused.code, RpcErrorCode::UpstreamUnavailable);
    assert_eq!(scene.upstream.connections(), (1, 0));
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn what_comes_on_the_own_stream_of_a_server_stays_there() {
    let scene = Setup::default().scene();
    scene.upstream.with_streams();
    scene.send(&call(1)).await;
    scene
        .upstream
        .say(r#"{"method":"notifications/message"}"#, None)
        .await;
    assert_eq!(
        scene.client.delivered().last().unwrap().1,
        Route::Standalone
    );
}

#[tokio::test]
async fn a_handshake_in_a_batch_repeats_nothing_but_itself() {
    let scene = Setup::default().scene();
    scene
        .upstream
        .reply_to("initialize", &WELCOME.replace("2025-06-18", "2025-03-26"));
    scene.send(HELLO).await;
    scene
        .send(&format!(
            r"[{},{}]",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            call(2)
        ))
        .await;
    scene
        .upstream
        .lose(UpstreamError::Lost {
            reason: "exit".into(),
        })
        .await;
    scene.send(&call(3)).await;
    let n_calls = scene
        .upstream
        .sent()
        .iter()
        .filter(|(_, text)| text.contains(r#""id":2"#))
        .count();
    assert_eq!(n_calls, 1);
}

#[tokio::test]
async fn names_and_targets_are_recorded_without_secrets_and_within_bounds() {
    let scene = Setup::default().scene();
    let read = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"https://u:s3cr3t@h/a?t=s3cr3t"}}"#;
    scene.send(read).await;
    scene
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    scene
        .send(&call(2).replace(r#""echo""#, r#"{"password":"s3cr3t"}"#))
        .await;
    scene
        .send(&call(3).replace("echo", &"x".repeat(100_000)))
        .await;
    let records = format!("{:?}", scene.store.records());
    assert!(
        !records.contains("s3cr3t") && records.len() < 10_000,
        "{records}"
    );
}

#[tokio::test]
async fn calls_in_flight_are_answered_when_their_session_ends() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.session.close().await;
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::SessionNotFound.code().to_string())
    );
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
}

#[tokio::test]
async fn what_was_agreed_on_holds_until_a_new_handshake_is_answered() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene
        .upstream
        .reply_to("initialize", r#""error":{"code":-1,"message":"no"}"#);
    let again = r#"{"jsonrpc":"2.0","id":"again","method":"initialize","params":{}}"#;
    scene.send(again).await;
    scene.send(&format!("[{}]", call(1))).await;
    assert!(
        scene.last().contains("no JSON-RPC batches"),
        "{}",
        scene.last()
    );
}

#[tokio::test]
async fn the_ids_of_the_proxys_own_requests_are_not_for_clients() {
    let scene = Setup::default().scene();
    scene
        .send(&call(1).replace(r#""id":1"#, r#""id":"riglm:initialize:2""#))
        .await;
    assert!(
        scene.last().contains("riglm:initialize:2"),
        "{}",
        scene.last()
    );
    assert!(scene.upstream.sent().is_empty());
}
