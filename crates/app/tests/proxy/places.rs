//! Limits of the connections of an upstream and of the requests in flight: which one must give way,
//! and the share of one principal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientPresence, ClientSession};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::RecordingClient;

use crate::scene::{HELLO, Scene, Setup, call, id};

const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The timeout of waits in these tests.
const SOON: Duration = Duration::from_secs(20);

struct Visitor {
    client: Arc<RecordingClient>,
    session: Arc<ClientSession>,
}

impl Visitor {
    fn new(scene: &Scene, principal: &str) -> Self {
        let client = Arc::new(RecordingClient::default());
        let principal = Principal::from_name(principal);
        let accepted = (scene.proxy).accept(
            Transport::StreamableHttp,
            &principal,
            Arc::<RecordingClient>::clone(&client),
        );
        Self {
            client,
            session: accepted.unwrap(),
        }
    }

    async fn send(&self, text: &str) {
        let message = Message::from_text(text.into()).unwrap();
        self.session.receive(message).await.unwrap();
    }

    async fn connect(&self) {
        self.send(HELLO).await;
        self.send(READY).await;
    }

    /// Returns the last answer.
    fn last(&self) -> String {
        let last = self.client.delivered_messages().pop();
        last.map(|(text, _)| text).unwrap_or_default()
    }
}

/// Returns a scene with `max_connections` connections, and an upstream that answers `tools/list`.
fn with_connections(max_connections: usize, handshake_timeout: Duration) -> Scene {
    let limits = Limits {
        handshake_timeout,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        max_connections,
        ..Setup::default()
    };
    let scene = setup.scene();
    scene
        .upstream
        .reply_to("tools/list", r#""result":{"tools":[]}"#);
    scene
}

async fn eventually(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.unwrap();
}

#[tokio::test]
async fn the_least_recently_used_connection_is_closed_at_the_limit() {
    let scene = with_connections(2, SOON);
    let [first, second, third] = ["a", "b", "c"].map(|name| Visitor::new(&scene, name));
    first.connect().await;
    second.connect().await;
    first
        .send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#)
        .await;
    // The periodic sweep does not run here: the new client is served at once.
    third.connect().await;
    assert!(third.last().contains("\"result\""), "{}", third.last());
    eventually(|| scene.upstream.connections() == (3, 1)).await;
    let n_sent = scene.upstream.sent_messages().len();
    first
        .send(r#"{"jsonrpc":"2.0","id":6,"method":"tools/list"}"#)
        .await;
    assert_eq!(
        scene.upstream.connections().0,
        3,
        "the first one kept its own"
    );
    assert_eq!(scene.upstream.sent_messages().len(), n_sent + 1);
    second
        .send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)
        .await;
    assert!(
        second.last().contains("\"id\":7,\"result\""),
        "{}",
        second.last()
    );
    assert_eq!(scene.upstream.connections().0, 4, "it got another one");
}

#[tokio::test]
async fn two_hundred_clients_take_turns_at_few_connections() {
    let scene = with_connections(16, SOON);
    let visitors: Vec<Visitor> = (0..200).map(|_| Visitor::new(&scene, "a")).collect();
    futures_util::future::join_all(visitors.iter().map(|visitor| async {
        visitor.connect().await;
        visitor
            .send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)
            .await;
    }))
    .await;
    for visitor in &visitors {
        assert!(
            visitor.last().contains("\"id\":7,\"result\""),
            "{}",
            visitor.last()
        );
    }
    let states = scene.proxy.upstream_states();
    assert!(
        states[0].n_connections <= 16 && states[0].n_waiting == 0,
        "{states:?}"
    );
}

#[tokio::test]
async fn connections_in_use_are_never_evicted() {
    let scene = with_connections(1, Duration::from_millis(50));
    let [busy, asked] = ["a", "b"].map(|name| Visitor::new(&scene, name));
    busy.connect().await;
    busy.send(&call(5)).await;
    asked.send(HELLO).await;
    let refused = asked.last();
    assert!(refused.contains("max_connections"), "{refused}");
    assert_eq!(scene.upstream.connections(), (1, 0));
    // A connection is also in use while the server waits for its client.
    let question = r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#;
    scene.upstream.send_to_client(question, None).await;
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, None)
        .await;
    let third = Visitor::new(&scene, "c");
    third.send(HELLO).await;
    assert!(third.last().contains("max_connections"), "{}", third.last());
    busy.send(r#"{"jsonrpc":"2.0","id":9,"result":{"roots":[]}}"#)
        .await;
    let fourth = Visitor::new(&scene, "d");
    fourth.connect().await;
    assert!(fourth.last().contains("\"result\""), "{}", fourth.last());
}

#[tokio::test]
async fn a_waiting_session_gets_the_next_idle_connection() {
    let scene = with_connections(1, SOON);
    let [busy, coming] = ["a", "b"].map(|name| Visitor::new(&scene, name));
    busy.connect().await;
    busy.send(&call(5)).await;
    let arriving = coming.connect();
    tokio::pin!(arriving);
    assert!(futures_util::poll!(&mut arriving).is_pending());
    assert_eq!(scene.proxy.upstream_states()[0].n_waiting, 1);
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, None)
        .await;
    tokio::time::timeout(SOON, arriving).await.unwrap();
    assert!(coming.last().contains("\"result\""), "{}", coming.last());
}

#[tokio::test]
async fn upstreams_without_connections_have_no_session_limit() {
    let scene = Setup {
        has_no_connections: true,
        ..Setup::default()
    }
    .scene();
    let visitors: Vec<Visitor> = (0..300).map(|_| Visitor::new(&scene, "a")).collect();
    for visitor in &visitors {
        visitor.connect().await;
        visitor.send(&call(5)).await;
    }
    assert_eq!(scene.upstream.connections(), (300, 0));
}

#[tokio::test]
async fn principals_at_their_connection_share_displace_only_themselves() {
    let scene = with_connections(4, Duration::from_millis(50));
    scene.proxy.expect_principals(2);
    let other = Visitor::new(&scene, "b");
    other.connect().await;
    let own: Vec<Visitor> = (0..3).map(|_| Visitor::new(&scene, "a")).collect();
    for visitor in &own {
        visitor.connect().await;
        assert!(visitor.last().contains("\"result\""), "{}", visitor.last());
    }
    eventually(|| scene.upstream.connections() == (4, 1)).await;
    // The connection of the other principal is the least recently used one, and still open.
    other
        .send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)
        .await;
    assert_eq!(scene.upstream.connections().0, 4);
    own[1].send(&call(5)).await;
    own[2].send(&call(5)).await;
    own[0].send(&call(5)).await;
    let refused = own[0].last();
    assert!(refused.contains("limits.principal_share"), "{refused}");
    assert!(
        scene.proxy.upstream_states()[0].is_available,
        "others are served"
    );
}

fn few_requests() -> Scene {
    let limits = Limits {
        in_flight: 4,
        sessions: 6,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        ..Setup::default()
    };
    setup.scene()
}

#[tokio::test]
async fn requests_in_flight_are_limited_to_the_principal_share() {
    let scene = few_requests();
    scene.proxy.expect_principals(2);
    let [one, other] = ["a", "b"].map(|name| Visitor::new(&scene, name));
    for number in 1..=3 {
        one.send(&call(number)).await;
    }
    let refused = one.last();
    let code = RpcErrorCode::LimitReached.code().to_string();
    assert!(
        refused.contains(&code) && refused.contains("the limit is 2 at once"),
        "{refused}"
    );
    for number in 1..=2 {
        other.send(&call(number)).await;
    }
    assert!(
        other.client.delivered_messages().is_empty(),
        "{}",
        other.last()
    );
    assert_eq!(scene.proxy.n_in_flight(), 4);
}

#[tokio::test]
async fn a_single_principal_may_use_all_permits() {
    let scene = few_requests();
    scene.proxy.expect_principals(1);
    let one = Visitor::new(&scene, "a");
    for number in 1..=4 {
        one.send(&call(number)).await;
    }
    assert!(one.client.delivered_messages().is_empty(), "{}", one.last());
    one.send(&call(5)).await;
    let refused = one.last();
    assert!(
        refused.contains("too many requests are in flight;"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_principal_has_its_share_of_the_sessions() {
    let scene = few_requests();
    scene.proxy.expect_principals(2);
    let accept = |name: &str| {
        let client = Arc::new(RecordingClient::default());
        (scene.proxy).accept(Transport::Sse, &Principal::from_name(name), client)
    };
    let held: Vec<_> = (0..3).map(|_| accept("a").unwrap()).collect();
    let refused = accept("a").unwrap_err();
    assert!(
        refused.message.contains("the limit is 3;"),
        "{}",
        refused.message
    );
    // The session of the scene belongs to the other principal.
    let others: Vec<_> = (0..2).map(|_| accept("local").unwrap()).collect();
    held[0].close().await;
    assert!(accept("a").is_ok());
    drop(others);
}

#[tokio::test]
async fn initialize_is_answered_at_the_limit_of_calls_in_flight() {
    let scene = few_requests();
    let [one, other] = ["a", "b"].map(|name| Visitor::new(&scene, name));
    for number in 1..=5 {
        one.send(&call(number)).await;
    }
    assert!(one.last().contains("too many"), "{}", one.last());
    other.connect().await;
    assert!(other.last().contains("\"result\""), "{}", other.last());
}

#[tokio::test]
async fn requests_without_a_client_release_permits_and_continue() {
    let scene = few_requests();
    let one = Visitor::new(&scene, "a");
    for number in 1..=4 {
        one.send(&call(number)).await;
    }
    let left: Vec<RequestId> = (1..=4).map(id).collect();
    one.session.note_presence(&left, ClientPresence::Left);
    assert_eq!(scene.proxy.n_in_flight(), 0);
    // The same number of requests may be left again; further ones keep their places.
    for number in 5..=8 {
        one.send(&call(number)).await;
    }
    let left: Vec<RequestId> = (5..=8).map(id).collect();
    one.session.note_presence(&left, ClientPresence::Left);
    assert_eq!(scene.proxy.n_in_flight(), 4);
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":2,"result":{"late":true}}"#, None)
        .await;
    assert!(one.last().contains("late"), "{}", one.last());
    // Requests without a client do not delay the shutdown.
    let started = Instant::now();
    scene.proxy.shutdown().await;
    assert!(started.elapsed() < Limits::default().drain_timeout);
}

#[tokio::test]
async fn shutdown_waits_for_requests_of_returned_clients() {
    let scene = few_requests();
    let one = Visitor::new(&scene, "a");
    one.send(&call(1)).await;
    one.session.note_presence(&[id(1)], ClientPresence::Left);
    one.session.note_presence(&[id(1)], ClientPresence::Back);
    let shutdown = scene.proxy.shutdown();
    tokio::pin!(shutdown);
    assert!(futures_util::poll!(shutdown.as_mut()).is_pending());
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    tokio::time::timeout(SOON, shutdown).await.unwrap();
    assert!(one.client.delivered_messages()[0].0.contains("\"result\""));
}

/// Returns a call whose message has `n_bytes` bytes.
fn call_of(number: u32, n_bytes: usize) -> String {
    let empty = call(number).len();
    call(number).replace("s3cr3t", &format!("s3cr3t{}", "x".repeat(n_bytes - empty)))
}

#[tokio::test]
async fn request_bytes_are_limited_to_the_principal_share() {
    let limits = Limits {
        in_flight_bytes: 4_000,
        request_body_bytes: 1_024,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        ..Setup::default()
    };
    let scene = setup.scene();
    scene.proxy.expect_principals(2);
    let [one, other] = ["a", "b"].map(|name| Visitor::new(&scene, name));
    for number in 1..=2 {
        one.send(&call_of(number, 1_000)).await;
    }
    assert!(one.client.delivered_messages().is_empty(), "{}", one.last());
    one.send(&call(3)).await;
    let refused = one.last();
    assert!(refused.contains("limits.in_flight_bytes"), "{refused}");
    assert!(refused.contains("the limit is 2000 bytes"), "{refused}");
    // Requests without a client still use memory.
    let left: Vec<RequestId> = (1..=2).map(id).collect();
    one.session.note_presence(&left, ClientPresence::Left);
    one.send(&call(4)).await;
    assert!(one.last().contains("limits.in_flight_bytes"));
    // A new session is accepted, and other principals can call.
    for number in 1..=2 {
        other.send(&call_of(number, 1_000)).await;
    }
    assert!(
        other.client.delivered_messages().is_empty(),
        "{}",
        other.last()
    );
    one.connect().await;
    assert!(one.last().contains("\"result\""), "{}", one.last());
    // An answer makes room.
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, None)
        .await;
    assert!(other.last().contains("\"result\""), "{}", other.last());
    other.send(&call_of(5, 900)).await;
    assert_eq!(
        other.client.delivered_messages().len(),
        1,
        "{}",
        other.last()
    );
}

#[tokio::test]
async fn a_single_request_may_have_the_maximum_size() {
    let limits = Limits {
        in_flight_bytes: 100,
        request_body_bytes: 2_000,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        ..Setup::default()
    };
    let scene = setup.scene();
    let one = Visitor::new(&scene, "a");
    one.send(&call_of(1, 2_000)).await;
    assert!(one.client.delivered_messages().is_empty(), "{}", one.last());
    one.send(&call(2)).await;
    assert!(one.last().contains("limits.in_flight_bytes"));
}
