//! The pool of processes: real programs, whose starts are counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_adapters_mcp::upstream::pool::{PoolOptions, PooledConnector};
use riglm_adapters_mcp::upstream::{StartGate, StartTime};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError};

use crate::stdio::shell;
use crate::support::{Connection, DEADLINE, INITIALIZE, INITIALIZED, call, number};

const CHECK: &str = r#"{"jsonrpc":"2.0","id":"riglm:check:0","method":"initialize","params":{}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{}}"#;

/// A server that counts its starts, and answers each request with its number. `$before` runs first,
/// `$handshakes` is the number of handshakes that it takes, others get an
/// error or (`refusal=silence`) nothing. `$discovery` answers to
/// `server/discover`: an `error`, a `result`, or nothing. Other results begin with `$tools`.
const SERVER: &str = r#"
echo start >> "$STARTS"; n=$(wc -l < "$STARTS"); eval "$before"; taken=0
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=${line#*'"id":'}; id=${id%%,*}
  case $line in
    *'"method":"notifications/'*) ;;
    *'"method":"initialize"'*)
      taken=$((taken + 1))
      if [ "$taken" -gt "${handshakes:-99}" ]; then
        [ "$refusal" = silence ] || answer '"error":{"code":-32600,"message":"no"}'
      else answer '"result":{"protocolVersion":"2025-11-25","capabilities":{},"process":'"$n"'}'; fi;;
    *'"method":"server/discover"'*)
      case ${discovery-error} in
        error) answer '"error":{"code":-32601,"message":"unknown"}';;
        result) answer '"result":{"supportedVersions":["2026-07-28"],"capabilities":{},"process":'"$n"'}';;
      esac;;
    *'"name":"ask"'*) printf '{"jsonrpc":"2.0","id":"q","method":"roots/list"}\n';;
    *) answer '"result":{'"$tools"'"process":'"$n"'}';;
  esac
done
"#;

/// A pool of processes of the server.
struct Scene {
    directory: tempfile::TempDir,
    pool: Arc<PooledConnector>,
    start_time: Arc<StartTime>,
}

impl Scene {
    fn new() -> Self {
        Self::with(&[], |_| {})
    }

    /// Returns the scene with these variables of the server, and changed properties of the pool.
    fn with(variables: &[(&str, &str)], change: impl FnOnce(&mut PoolOptions)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = PoolOptions {
            idle_timeout: Duration::from_mins(5),
            max_processes: 8,
            spare: false,
            start_time: Arc::new(StartTime::new(Duration::from_secs(20))),
        };
        change(&mut options);
        let mut program = shell(SERVER);
        let starts = directory.path().join("starts").display().to_string();
        program.environment.insert("STARTS".into(), starts);
        for (name, value) in variables {
            program.environment.insert((*name).into(), (*value).into());
        }
        let start_time = Arc::clone(&options.start_time);
        program.start_time = Arc::clone(&start_time);
        Self {
            directory,
            pool: Arc::new(PooledConnector::new(Arc::new(program), options)),
            start_time,
        }
    }

    fn n_starts(&self) -> usize {
        let text = std::fs::read_to_string(self.directory.path().join("starts"));
        text.unwrap_or_default().lines().count()
    }

    async fn until_starts(&self, n: usize) {
        let deadline = Instant::now() + DEADLINE;
        while self.n_starts() < n {
            assert!(
                Instant::now() < deadline,
                "{} starts of {n}",
                self.n_starts()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn open(&self) -> Connection {
        Connection::open(&*self.pool).await.unwrap()
    }

    /// Opens a connection and makes a handshake. Returns the number of its process, too.
    async fn session(&self) -> (Connection, String) {
        let connection = self.open().await;
        let process = handshake(&connection).await;
        (connection, process)
    }

    /// Returns the pool behind the bridge between the eras.
    fn bridged(&self, change: impl FnOnce(&mut BridgeOptions)) -> EraConnector {
        let mut options = BridgeOptions::new([7; 32]);
        options.probe_timeout = Duration::from_millis(400);
        change(&mut options);
        EraConnector::new(self.pool.clone(), options)
    }
}

async fn handshake(connection: &Connection) -> String {
    let process = ask(connection, INITIALIZE).await;
    connection.send(INITIALIZED).await.unwrap();
    process
}

/// Sends a request and returns the number of the process that answered.
async fn ask(connection: &Connection, request: &str) -> String {
    connection.send(request).await.unwrap();
    let event = connection.event().await;
    let text = event.text();
    let process = text.split(r#""process":"#).nth(1);
    process
        .unwrap_or_else(|| panic!("no process: {text}"))
        .trim_end_matches('}')
        .into()
}

/// Returns a request of revision 2026-07-28 of a client with these capabilities.
fn modern(id: u32, method: &str, params: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"c","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
    )
}

#[tokio::test]
async fn nothing_is_started_before_the_first_message() {
    let scene = Scene::new();
    let connection = scene.open().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(scene.n_starts(), 0);
    assert_eq!(
        connection.link.time_to_start(),
        Some(Duration::from_secs(20))
    );
    handshake(&connection).await;
    assert_eq!(scene.n_starts(), 1);
    assert_eq!(connection.link.time_to_start(), None);
}

#[tokio::test]
async fn clean_processes_are_handed_over() {
    let scene = Scene::new();
    for _ in 0..3 {
        let (session, process) = scene.session().await;
        assert_eq!(process, "1");
        assert_eq!(ask(&session, LIST).await, "1");
        session.close().await;
        assert!(session.rest().await.is_empty());
    }
    assert_eq!(scene.n_starts(), 1);
}

#[tokio::test]
async fn a_session_waits_for_the_process_of_a_check() {
    let scene = Scene::with(&[("before", "sleep 0.5")], |_| {});
    let (check, session) = (scene.open().await, scene.open().await);
    let checking = async {
        assert_eq!(ask(&check, CHECK).await, "1");
        check.send(INITIALIZED).await.unwrap();
        check.close().await;
    };
    let meeting = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        handshake(&session).await
    };
    let ((), process) = tokio::join!(checking, meeting);
    assert_eq!((process.as_str(), scene.n_starts()), ("1", 1));
}

#[tokio::test]
async fn a_check_that_keeps_its_process_is_not_awaited_for_long() {
    let scene = Scene::new();
    let check = scene.open().await;
    ask(&check, CHECK).await;
    let begun = Instant::now();
    let (_session, process) = scene.session().await;
    assert_eq!(process, "2");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_refused_second_handshake_is_made_with_a_new_process() {
    let scene = Scene::with(&[("handshakes", "1")], |_| {});
    let (first, _) = scene.session().await;
    first.close().await;
    let (second, process) = scene.session().await;
    assert_eq!(process, "2");
    assert_eq!(ask(&second, LIST).await, "2");
    second.close().await;
    assert!(second.rest().await.is_empty());
    // From now on no process gets a second handshake.
    let (_third, process) = scene.session().await;
    assert_eq!((process.as_str(), scene.n_starts()), ("3", 3));
}

#[tokio::test]
async fn a_process_without_an_answer_to_a_second_handshake_is_replaced() {
    let scene = Scene::with(&[("handshakes", "1"), ("refusal", "silence")], |_| {});
    let (first, process) = scene.session().await;
    assert_eq!(process, "1");
    first.close().await;
    let begun = Instant::now();
    let (_second, process) = scene.session().await;
    assert_eq!(process, "2");
    assert!(begun.elapsed() > Duration::from_secs(4));
}

#[tokio::test]
async fn called_processes_end_with_their_connection() {
    for unclean in [
        call(1),
        r#"{"id":1,"method":"logging/setLevel","params":{"level":"info"}}"#.to_owned(),
        r#"{"id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#.to_owned(),
        // The server asks something.
        r#"{"id":1,"method":"x/list","params":{"name":"ask"}}"#.to_owned(),
    ] {
        let scene = Scene::new();
        let (first, _) = scene.session().await;
        first.send(&unclean).await.unwrap();
        first.event().await;
        first.close().await;
        let (_second, process) = scene.session().await;
        assert_eq!(process, "2", "{unclean}");
    }
}

#[tokio::test]
async fn processes_are_handed_over_after_calls_that_change_nothing() {
    let tools = r#""tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"do"}],"#;
    let scene = Scene::with(&[("tools", tools)], |_| {});
    let call = |name: &str, more: &str| {
        let params = format!(r#"{{"name":"{name}","arguments":{{}}{more}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{params}}}"#)
    };
    let (session, _) = scene.session().await;
    ask(&session, LIST).await;
    session.close().await;
    // The number of the process of each session; the last call ends it.
    for (process, name, more) in [
        ("1", "look", ""),
        ("1", "look", r#","task":{}"#),
        ("2", "do", ""),
        ("3", "look", ""),
    ] {
        let (session, _) = scene.session().await;
        assert_eq!(ask(&session, &call(name, more)).await, process, "{name}");
        session.close().await;
    }
    assert_eq!(scene.n_starts(), 3);
}

#[tokio::test]
async fn processes_with_requests_in_flight_are_not_handed_over() {
    let scene = Scene::with(&[("discovery", "")], |_| {});
    let (first, _) = scene.session().await;
    first
        .send(&modern(9, "server/discover", "", "{}"))
        .await
        .unwrap();
    first.close().await;
    let (_second, process) = scene.session().await;
    assert_eq!(process, "2");
}

#[tokio::test]
async fn processes_stay_with_their_principal() {
    let scene = Scene::new();
    let open = async |principal: &str| {
        let principal = Principal::from_name(principal);
        let connection = Connection::open_for(&*scene.pool, &principal)
            .await
            .unwrap();
        let process = handshake(&connection).await;
        connection.close().await;
        process
    };
    // The one of a check suits everybody.
    assert_eq!(open("local").await, "1");
    assert_eq!(open("alice").await, "1");
    assert_eq!(open("alice").await, "1");
    // The newest is kept.
    assert_eq!(open("bob").await, "2");
    assert_eq!(open("bob").await, "2");
    assert_eq!(open("local").await, "3");
    assert_eq!(open("alice").await, "3");
    assert_eq!(open("bob").await, "4");
}

#[tokio::test]
async fn processes_stay_with_the_capabilities_of_their_client() {
    let scene = Scene::new();
    let open = async |capabilities: &str| {
        let connection = scene.open().await;
        let params = format!(r#""params":{{"capabilities":{capabilities}}}"#);
        let process = ask(&connection, &INITIALIZE.replace(r#""params":{}"#, &params)).await;
        connection.close().await;
        process
    };
    assert_eq!(open("{}").await, "1");
    assert_eq!(open("{}").await, "1");
    assert_eq!(open(r#"{"roots":{}}"#).await, "2");
    assert_eq!(open(r#"{"roots":{}}"#).await, "2");
    assert_eq!(open("{}").await, "3");
}

#[tokio::test]
async fn a_second_caller_makes_the_pool_start_a_process_ahead() {
    let scene = Scene::with(&[], |options| options.spare = true);
    let (first, _) = scene.session().await;
    ask(&first, &call(1)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(scene.n_starts(), 1);
    let (second, _) = scene.session().await;
    ask(&second, &call(1)).await;
    scene.until_starts(3).await;
    let (_third, process) = scene.session().await;
    assert_eq!((process.as_str(), scene.n_starts()), ("3", 3));
}

#[tokio::test]
async fn a_spare_that_ends_is_replaced_at_the_next_call_only() {
    let variables = [("before", "[ $n -ne 3 ] || exit 1")];
    let scene = Scene::with(&variables, |options| options.spare = true);
    let (first, _) = scene.session().await;
    ask(&first, &call(1)).await;
    let (second, _) = scene.session().await;
    ask(&second, &call(1)).await;
    scene.until_starts(3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(scene.n_starts(), 3);
    let (third, process) = scene.session().await;
    assert_eq!(process, "4");
    ask(&third, &call(1)).await;
    scene.until_starts(5).await;
}

#[tokio::test]
async fn idle_processes_make_room_and_end_in_time() {
    let scene = Scene::with(&[], |options| {
        options.max_processes = 1;
        options.idle_timeout = Duration::from_millis(300);
    });
    let open = async |principal: &str| {
        let principal = Principal::from_name(principal);
        let connection = Connection::open_for(&*scene.pool, &principal)
            .await
            .unwrap();
        (handshake(&connection).await, connection)
    };
    let (_, alice) = open("alice").await;
    alice.close().await;
    let (process, bob) = open("bob").await;
    assert_eq!(process, "2");
    bob.close().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (process, _bob) = open("bob").await;
    assert_eq!(process, "3");
}

#[tokio::test]
async fn closing_the_pool_waits_for_its_processes() {
    let ended = "trap 'sleep 0.2; echo end >> \"$STARTS\"; exit' EXIT";
    let scene = Scene::with(&[("before", ended)], |_| {});
    let (first, _) = scene.session().await;
    let (second, _) = scene.session().await;
    ask(&second, &call(1)).await;
    for session in [first, second] {
        session.close().await;
    }
    scene.pool.close().await;
    // Two starts and two ends.
    assert_eq!(scene.n_starts(), 4);
}

#[tokio::test]
async fn a_start_that_took_too_long_gives_the_next_one_more_time() {
    let scene = Scene::with(&[("before", "sleep 600")], |options| {
        options.start_time = Arc::new(StartTime::new(Duration::from_millis(300)));
    });
    let connection = scene.open().await;
    connection.send(INITIALIZE).await.unwrap();
    let left = connection.link.time_to_start().unwrap();
    assert!(left <= Duration::from_millis(300));
    tokio::time::sleep(left).await;
    connection.close().await;
    scene.pool.close().await;
    assert_eq!(scene.start_time.current(), Duration::from_millis(600));
    // A connection that is closed earlier says nothing of the server.
    let connection = scene.open().await;
    connection.send(INITIALIZE).await.unwrap();
    connection.close().await;
    scene.pool.close().await;
    assert_eq!(scene.start_time.current(), Duration::from_millis(600));
}

#[tokio::test]
async fn programs_start_one_after_the_other_at_a_full_gate() {
    let gate = StartGate::new(1);
    let mut program = shell("sleep 0.5; echo '{\"method\":\"ready\"}'; cat");
    program.gate = gate;
    let begun = Instant::now();
    let first = Connection::open(&program).await.unwrap();
    let second = Connection::open(&program).await.unwrap();
    // The second start waited for the first line of the first process.
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert_eq!(first.event().await.text(), r#"{"method":"ready"}"#);
    assert_eq!(second.event().await.text(), r#"{"method":"ready"}"#);
}

#[tokio::test]
async fn a_missing_program_is_reported_for_the_first_message() {
    let scene = Scene::new();
    let mut program = shell("");
    program.program = "riglm-no-such-program".into();
    let options = PoolOptions {
        idle_timeout: DEADLINE,
        max_processes: 1,
        spare: false,
        start_time: Arc::clone(&scene.start_time),
    };
    let pool = PooledConnector::new(Arc::new(program), options);
    let connection = Connection::open(&pool).await.unwrap();
    for _ in 0..2 {
        let sent = connection.send(INITIALIZE).await;
        assert!(
            matches!(sent, Err(UpstreamError::NotStarted { .. })),
            "{sent:?}"
        );
    }
}

#[tokio::test]
async fn a_modern_session_of_a_legacy_server_uses_processes_by_its_capabilities() {
    let scene = Scene::new();
    let eras = scene.bridged(|_| {});
    // A check comes first, as at the start of the proxy.
    let check = Connection::open(&eras).await.unwrap();
    ask(&check, CHECK).await;
    check.close().await;
    let session = Connection::open(&eras).await.unwrap();
    session
        .send(&modern(1, "server/discover", "", "{}"))
        .await
        .unwrap();
    session.event().await.text();
    for (id, capabilities) in [(2, "{}"), (3, "{}"), (4, r#"{"roots":{}}"#)] {
        let list = modern(id, "tools/list", "", capabilities);
        session.send(&list).await.unwrap();
        assert_eq!(session.event().await.related_request(), Some(&number(id)));
    }
    assert_eq!(scene.n_starts(), 2);
    // A process with calls stays with its capabilities.
    let called = modern(5, "tools/call", r#""name":"t","#, r#"{"roots":{}}"#);
    session.send(&called).await.unwrap();
    session.event().await.text();
    session
        .send(&modern(6, "tools/list", "", "{}"))
        .await
        .unwrap();
    session.event().await.text();
    assert_eq!(scene.n_starts(), 2);
    session.close().await;
}

#[tokio::test]
async fn a_slow_server_of_the_modern_era_is_recognized() {
    // The start takes longer than a probe may.
    let variables = [
        ("before", "sleep 1.2"),
        ("discovery", "result"),
        ("handshakes", "0"),
    ];
    let scene = Scene::with(&variables, |_| {});
    let eras = scene.bridged(|_| {});
    let session = Connection::open(&eras).await.unwrap();
    assert_eq!(ask(&session, &modern(1, "tools/list", "", "{}")).await, "1");
    assert!(eras.speaks_modern());
    assert_eq!(scene.n_starts(), 1);
}

#[tokio::test]
async fn a_slow_legacy_server_is_started_once() {
    let scene = Scene::with(&[("before", "sleep 1.2")], |_| {});
    // Slower than a handshake may be, too.
    let eras = scene.bridged(|options| options.handshake_timeout = Duration::from_millis(500));
    let session = Connection::open(&eras).await.unwrap();
    session
        .send(&modern(1, "tools/list", "", "{}"))
        .await
        .unwrap();
    session.event().await.text();
    assert!(!eras.speaks_modern());
    assert_eq!(scene.n_starts(), 1);
}

#[tokio::test]
async fn a_server_that_ignores_unknown_requests_is_recognized_soon() {
    let scene = Scene::with(&[("discovery", "")], |_| {});
    let eras = scene.bridged(|_| {});
    let session = Connection::open(&eras).await.unwrap();
    let begun = Instant::now();
    session
        .send(&modern(1, "tools/list", "", "{}"))
        .await
        .unwrap();
    session.event().await.text();
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_configured_era_is_not_probed() {
    let scene = Scene::with(&[("discovery", "")], |_| {});
    let eras = scene.bridged(|_| {}).with_era(Era::Legacy);
    let session = Connection::open(&eras).await.unwrap();
    let begun = Instant::now();
    session
        .send(&modern(1, "tools/list", "", "{}"))
        .await
        .unwrap();
    session.event().await.text();
    // Less than the time of a probe without an answer.
    assert!(
        begun.elapsed() < Duration::from_millis(400),
        "{:?}",
        begun.elapsed()
    );
    assert!(!eras.speaks_modern());
    let scene = Scene::with(&[("discovery", "result")], |_| {});
    let eras = scene.bridged(|_| {}).with_era(Era::Modern);
    assert!(eras.speaks_modern());
    let session = Connection::open(&eras).await.unwrap();
    assert_eq!(ask(&session, &modern(1, "tools/list", "", "{}")).await, "1");
}
