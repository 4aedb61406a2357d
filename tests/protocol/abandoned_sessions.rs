//! Abandoned sessions: clients that disconnect without ending their session leave no processes,
//! descriptors or memory behind.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::messages::{call, initialize};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http;
use riglm_tests::process::{
    command_line, descendants, eventually, free_port, n_descriptors, resident_kib,
};
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;
use url::Url;

use crate::answers;

/// The number of abandoned sessions.
const SESSIONS: usize = 200;

/// The number of sessions that are opened at the same time.
const AT_ONCE: usize = 10;

/// More descriptors than a proxy without sessions has open.
const MAX_IDLE_DESCRIPTORS: usize = 60;

/// The deadline for the cleanup after the last session: many times the limits of the proxy.
const CLEANUP_DEADLINE: Duration = Duration::from_mins(1);

/// The allowed growth of memory in per cent, compared with the memory after the same number of
/// earlier sessions. An allocator keeps the memory that it once needed.
const MEMORY_GROWTH: u64 = 40;

/// The same for sessions over HTTP on both sides, without child processes.
const HTTP_MEMORY_GROWTH: u64 = 10;

/// The resources of a proxy process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footprint {
    servers: usize,
    descriptors: usize,
    memory_kib: u64,
}

impl Footprint {
    fn of(riglm: &Riglm) -> Self {
        let pid = riglm.process.pid();
        let servers = descendants(pid)
            .into_iter()
            .filter(|pid| command_line(*pid).contains("odd-server"))
            .count();
        Self {
            servers,
            descriptors: n_descriptors(pid),
            memory_kib: resident_kib(pid),
        }
    }
}

async fn start(era: &str) -> (Riglm, TempDir) {
    let program = env!("CARGO_BIN_EXE_odd-server");
    let configuration = format!(
        "[upstreams.one]\ncommand = [\"{program}\", \"stdio\", \"--era\", \"{era}\"]\n\
         isolation = \"per_session\"\nidle_timeout = \"1s\"\nmax_connections = 300\n\
         [limits]\nidle_timeout = \"2s\"\n"
    );
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let options = Options::with_configuration(&configuration);
    let riglm = Riglm::serve(&Upstream::from_configuration(), data_dir.path(), &options).await;
    (riglm, data_dir)
}

/// Opens a session, calls its server, and disconnects without a DELETE.
async fn open_call_and_leave(riglm: &Riglm) {
    let client = riglm.client(answers());
    client.initialize(&initialize("0", "2025-11-25")).await;
    let answer = client
        .request(&call("1", "echo", r#"{"text":"here"}"#))
        .await;
    assert!(answer.text.contains("here"), "{}", answer.text);
}

/// The same for a modern client with its own session key.
async fn call_as_modern_client(riglm: &Riglm, number: usize) {
    let client = RawClient::modern(&riglm.url);
    client.set_header("X-Riglm-Session", &format!("visitor-{number}"));
    let text = Meta::default().call("1", "echo", r#"{"text":"here"}"#);
    let answer = client.request(&text).await;
    assert!(answer.text.contains("here"), "{}", answer.text);
}

async fn assert_cleaned_up(riglm: &Riglm, before: Footprint) {
    let cleaned = eventually(CLEANUP_DEADLINE, || {
        let now = Footprint::of(riglm);
        (now.servers <= before.servers && now.descriptors <= before.descriptors).then_some(now)
    })
    .await;
    let after = cleaned.unwrap_or_else(|| {
        panic!(
            "{before:?} became {:?}; the proxy printed:\n{}",
            Footprint::of(riglm),
            riglm.process.output()
        )
    });
    eprintln!("{before:?} became {after:?}");
    assert!(
        after.memory_kib * 100 <= before.memory_kib * (100 + MEMORY_GROWTH),
        "{before:?} became {after:?}"
    );
}

/// Returns the resources after the first sessions have ended.
async fn footprint_at_rest(riglm: &Riglm) -> Footprint {
    let quiet = eventually(CLEANUP_DEADLINE, || {
        let now = Footprint::of(riglm);
        (now.servers == 0 && now.descriptors < MAX_IDLE_DESCRIPTORS).then_some(now)
    })
    .await;
    quiet.unwrap_or_else(|| panic!("the servers of the first visitors stay"))
}

#[tokio::test]
async fn two_hundred_abandoned_sessions_leave_nothing_behind() {
    let (riglm, _data_dir) = start("legacy").await;
    let visits = async || {
        for _ in 0..SESSIONS / AT_ONCE {
            futures_util::future::join_all((0..AT_ONCE).map(|_| open_call_and_leave(&riglm))).await;
        }
    };
    visits().await;
    let before = footprint_at_rest(&riglm).await;
    visits().await;
    assert_cleaned_up(&riglm, before).await;
}

#[tokio::test]
async fn two_hundred_clients_without_sessions_leave_nothing_behind() {
    for era in ["legacy", "modern"] {
        let (riglm, _data_dir) = start(era).await;
        let visits = async |first: usize| {
            for batch in 0..SESSIONS / AT_ONCE {
                let first = first + batch * AT_ONCE;
                let visitors =
                    (first..first + AT_ONCE).map(|number| call_as_modern_client(&riglm, number));
                futures_util::future::join_all(visitors).await;
            }
        };
        visits(0).await;
        let before = footprint_at_rest(&riglm).await;
        visits(SESSIONS).await;
        assert_cleaned_up(&riglm, before).await;
    }
}

/// Opens sessions, `at_once` at a time, and abandons them. Returns the sorted latencies of the
/// handshakes.
async fn open_and_leave(riglm: &Riglm, n_sessions: usize, at_once: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for batch in 0..n_sessions.div_ceil(at_once) {
        let n_now = at_once.min(n_sessions - batch * at_once);
        took.extend(futures_util::future::join_all((0..n_now).map(|_| open(riglm))).await);
    }
    took.sort_unstable();
    took
}

/// Opens a session and abandons it. Returns the latency of the handshake.
async fn open(riglm: &Riglm) -> Duration {
    let client = riglm.client(answers());
    let start = Instant::now();
    let delivery = client.send(&initialize("0", "2025-11-25")).await;
    let took = start.elapsed();
    assert_eq!(
        delivery.status,
        200,
        "{}\n{}",
        delivery.body,
        riglm.process.output()
    );
    assert!(delivery.body.contains("\"result\""), "{}", delivery.body);
    took
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Waits until all sessions have ended, according to the metrics, and returns the resident memory.
async fn memory_at_rest(riglm: &Riglm, metrics: &Url) -> u64 {
    let deadline = Instant::now() + CLEANUP_DEADLINE;
    loop {
        let read = plain_http::exchange(Method::GET, metrics, &[], String::new()).await;
        let read = read.expect("the control port answers").body;
        if read.lines().any(|line| line == "riglm_sessions 0") {
            return resident_kib(riglm.process.pid());
        }
        assert!(
            Instant::now() < deadline,
            "sessions that nobody closed stay:\n{read}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The maximum ratio of two 99th percentiles of the handshake: with a thousand abandoned sessions,
/// and with none.
const MAX_LATENCY_RATIO: u32 = 5;
/// A latency that is always acceptable: a busy machine delays single handshakes as much.
const ACCEPTABLE_LATENCY: Duration = Duration::from_millis(50);
/// The number of handshakes for a percentile.
const SAMPLES: usize = 200;
/// The maximum memory after thousands of sessions, as a multiple of the memory before them, plus a
/// fixed amount in KiB.
const MAX_MEMORY_RATIO: u64 = 2;
const MEMORY_MORE_KIB: u64 = 64 << 10;

#[tokio::test]
async fn a_thousand_abandoned_sessions_do_not_slow_down_new_ones() {
    let odd = Server::Odd(env!("CARGO_BIN_EXE_odd-server").into());
    let server = odd.start(Transport::Streamable).await;
    let url = server.url.clone().expect("it is reached over HTTP");
    let configuration = format!(
        "[upstreams.one]\nurl = \"{url}\"\n[limits]\nsessions = 4000\n\
         sessions_per_principal = 4000\nidle_timeout = \"10s\"\n\
         [control]\npublic_metrics = true\n"
    );
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let control = format!("127.0.0.1:{}", free_port());
    let metrics = format!("http://{control}/metrics");
    let metrics = metrics.parse().expect("the address is a URL");
    let options = Options {
        arguments: vec!["--control".to_owned(), control],
        ..Options::with_configuration(&configuration)
    };
    let riglm = Riglm::serve(&Upstream::from_configuration(), data_dir.path(), &options).await;
    let pid = riglm.process.pid();
    // Warms up: the first sessions allocate memory that later ones reuse.
    open_and_leave(&riglm, SAMPLES, 1).await;
    memory_at_rest(&riglm, &metrics).await;
    let with_none = percentile(&open_and_leave(&riglm, SAMPLES, 1).await, 99);
    let at_first = memory_at_rest(&riglm, &metrics).await;
    eprintln!("memory before the rounds: {at_first} KiB, p99 with no others {with_none:?}");
    let mut with_many = Duration::MAX;
    let mut at_rest = Vec::new();
    for at_once in [50, 1, 1] {
        let start = Instant::now();
        let took = open_and_leave(&riglm, 1_000, at_once).await;
        let (all, peak) = (start.elapsed(), resident_kib(pid));
        let p99 = percentile(&open_and_leave(&riglm, SAMPLES, 1).await, 99);
        with_many = with_many.min(p99);
        at_rest.push(memory_at_rest(&riglm, &metrics).await);
        eprintln!(
            "1000 sessions, {at_once} at once: {all:?} in all, median {:?}, p99 {:?}, of more \
             beside them {p99:?}, memory {peak} KiB, {at_rest:?} KiB when they had ended",
            percentile(&took, 50),
            percentile(&took, 99)
        );
    }
    let after = at_rest.pop().unwrap_or_default();
    let before = at_rest.into_iter().max().unwrap_or_default();
    assert!(
        after * 100 <= before * (100 + HTTP_MEMORY_GROWTH),
        "{before} KiB became {after} KiB"
    );
    assert!(
        after <= MAX_MEMORY_RATIO * at_first + MEMORY_MORE_KIB,
        "{at_first} KiB became {after} KiB"
    );
    // The best round counts, because a round may be slow for reasons outside the test.
    assert!(
        with_many <= MAX_LATENCY_RATIO * with_none.max(ACCEPTABLE_LATENCY / MAX_LATENCY_RATIO),
        "opening takes {with_many:?} beside a thousand sessions, {with_none:?} beside none"
    );
}

#[tokio::test]
async fn two_hundred_sessions_share_sixteen_processes() {
    const PROCESSES: usize = 16;
    let program = env!("CARGO_BIN_EXE_odd-server");
    let configuration = format!(
        "[upstreams.one]\ncommand = [\"{program}\", \"stdio\"]\nmax_connections = {PROCESSES}\n\
         [limits]\nidle_timeout = \"20s\"\nhandshake_timeout = \"2m\"\n"
    );
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let options = Options::with_configuration(&configuration);
    let riglm = Riglm::serve(&Upstream::from_configuration(), data_dir.path(), &options).await;
    let pid = riglm.process.pid();
    let servers = || {
        let all = descendants(pid).into_iter();
        let is_server = |pid: &u32| {
            let line = command_line(*pid);
            line.contains("odd-server") && !line.contains("__guard")
        };
        all.filter(is_server).collect::<BTreeSet<u32>>()
    };
    let mut at_rest = Vec::new();
    for _ in 0..3 {
        let clients: Vec<RawClient> = (0..SESSIONS)
            .map(|_| riglm.client(answers()).with_patience(CLEANUP_DEADLINE))
            .collect();
        let most = take_turns(&clients, || servers().len()).await;
        assert!(most <= PROCESSES, "{most} processes at once");
        // A session counts as abandoned when it has no open stream.
        for client in &clients {
            client.drop_streams();
        }
        // One process that was only looked at waits for the next session.
        let cleaned = eventually(CLEANUP_DEADLINE, || (servers().len() <= 1).then_some(())).await;
        assert!(
            cleaned.is_some(),
            "processes of sessions that have ended stay"
        );
        at_rest.push(resident_kib(pid));
    }
    eprintln!("memory when they had ended: {at_rest:?} KiB");
    assert!(
        at_rest[2] * 100 <= at_rest[0].max(at_rest[1]) * (100 + MEMORY_GROWTH),
        "{at_rest:?} KiB"
    );
}

/// Has all clients call a tool at once, and then each once more. Returns the most servers that there
/// were meanwhile.
async fn take_turns(clients: &[RawClient], n_servers: impl Fn() -> usize) -> usize {
    let start = Instant::now();
    let visits = futures_util::future::join_all(clients.iter().map(async |client| {
        client.initialize(&initialize("0", "2025-11-25")).await;
        let answer = client
            .request(&call("1", "echo", r#"{"text":"here"}"#))
            .await;
        assert!(answer.text.contains("here"), "{}", answer.text);
    }));
    tokio::pin!(visits);
    let mut most = 0;
    loop {
        let pause = tokio::time::sleep(Duration::from_millis(20));
        let is_over = tokio::select! {
            _ = &mut visits => true,
            () = pause => false,
        };
        most = most.max(n_servers());
        if is_over {
            break;
        }
    }
    eprintln!(
        "{} sessions, {most} processes at most: {:?}",
        clients.len(),
        start.elapsed()
    );
    // A session that lost its process gets another one.
    let start = Instant::now();
    for client in clients {
        let answer = client
            .request(&call("2", "echo", r#"{"text":"again"}"#))
            .await;
        assert!(answer.text.contains("again"), "{}", answer.text);
    }
    eprintln!("one call of each after that: {:?}", start.elapsed());
    most
}
