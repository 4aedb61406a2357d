//! The pause of a running proxy: lists are whole and safeguards off, for open and new sessions of
//! both eras, and nothing is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{read_store, run_at_home};
use serde_json::{Value, json};
use tempfile::TempDir;

const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// A generous deadline for a change to be seen.
const SOON: Duration = Duration::from_mins(1);
const N_TOOLS: usize = 12;
/// The tool that the list hides and that a safeguard refuses after its first call.
const REFUSED: &str = "tool-011";

const FILE: &str = r#"
[filtering]
policy = "allowlist"
allow = ["tool-00*"]
[[safeguards.limits.rules]]
tools = ["tool-011"]
calls = 1
per = "1h"
"#;

async fn start(data: &Path) -> Proxy {
    let proxy = proxy()
        .before(server("plain").tools(N_TOOLS).upstream())
        .configuration(FILE)
        .strategy("prediction")
        .with_control();
    proxy.start_in(data).await
}

/// Runs `riglm pause` or `riglm resume`, and returns its JSON output.
async fn run(data: &Path, arguments: &[&str]) -> Value {
    let printed = read_store(data, &[arguments, &["--json"]].concat()).await;
    serde_json::from_str(&printed).unwrap()
}

async fn connect(proxy: &Proxy) -> RawClient {
    let client = RawClient::streamable(&proxy.riglm.at("/mcp"), Answers::default());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.open_stream(None).await;
    client
}

/// The answer to a request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The tools of the server, without own tools.
    Whole,
    /// A part of the tools, with own tools.
    Selected,
    Called,
    Refused,
}

fn seen_list(answer: &str) -> Seen {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let Some(tools) = answer["result"]["tools"].as_array() else {
        panic!("no list: {answer}");
    };
    let tools = tools.iter();
    let names: Vec<&str> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
    let n_of_server = names
        .iter()
        .filter(|name| name.starts_with("tool-"))
        .count();
    match (n_of_server, names.len()) {
        (N_TOOLS, N_TOOLS) => Seen::Whole,
        (10, n) if n > 10 => Seen::Selected,
        _ => panic!("neither whole nor selected: {names:?}"),
    }
}

fn seen_call(answer: &str) -> Seen {
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str();
    if text.is_some_and(|text| text.starts_with("This call was not made: ")) {
        return Seen::Refused;
    }
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    Seen::Called
}

/// An observation, with the times of its request and its answer.
#[derive(Clone, Copy, Debug)]
struct Observation {
    asked_at: Instant,
    answered_at: Instant,
    seen: Seen,
}

/// A client that lists and calls all the time.
struct BusyClient {
    observations: Arc<Mutex<Vec<Observation>>>,
}

impl BusyClient {
    fn start(client: RawClient, is_modern: bool, stop: &Arc<AtomicBool>) -> (Self, Work) {
        let busy = Self {
            observations: Arc::default(),
        };
        let stop = Arc::clone(stop);
        let observations = Arc::clone(&busy.observations);
        let work = tokio::spawn(async move {
            let mut id = 0;
            while !stop.load(Ordering::SeqCst) {
                for tool in [None, Some("tool-001"), Some(REFUSED)] {
                    id += 1;
                    let id = (1_000 + id).to_string();
                    let message = match (tool, is_modern) {
                        (None, false) => request(&id, "tools/list"),
                        (None, true) => Meta::default().request(&id, "tools/list", ""),
                        (Some(tool), false) => call(&id, tool, "{}"),
                        (Some(tool), true) => Meta::default().call(&id, tool, "{}"),
                    };
                    let asked_at = Instant::now();
                    let answer = client.request(&message).await.text;
                    let seen = match tool {
                        None => seen_list(&answer),
                        Some(_) => seen_call(&answer),
                    };
                    assert!(tool != Some("tool-001") || seen == Seen::Called);
                    observations.lock().push(Observation {
                        asked_at,
                        answered_at: Instant::now(),
                        seen,
                    });
                }
            }
            id
        });
        (busy, work)
    }

    /// Returns the answers to requests that began and ended within a time.
    fn between(&self, start: Instant, end: Instant) -> Vec<Seen> {
        let all = self.observations.lock();
        let within = all
            .iter()
            .filter(|it| it.asked_at >= start && it.answered_at <= end);
        within.map(|it| it.seen).collect()
    }

    /// Waits until the client saw something, in a request after `start`.
    async fn wait_for(&self, start: Instant, wanted: Seen) {
        while !self.between(start, Instant::now()).contains(&wanted) {
            assert!(start.elapsed() < SOON, "no {wanted:?} since {start:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

type Work = tokio::task::JoinHandle<usize>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_under_load_shows_whole_lists_and_loses_nothing() {
    let data = TempDir::new().unwrap();
    let proxy = start(data.path()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let (mut busy, mut works) = (Vec::new(), Vec::new());
    for is_modern in [false, false, true] {
        let client = if is_modern {
            RawClient::modern(&proxy.riglm.url)
        } else {
            connect(&proxy).await
        };
        let (client, work) = BusyClient::start(client, is_modern, &stop);
        busy.push(client);
        works.push(work);
    }
    for client in &busy {
        client.wait_for(begin, Seen::Selected).await;
        client.wait_for(begin, Seen::Refused).await;
    }

    // A client that has its list learns of the change by a notification. The busy clients may see
    // the new list before that.
    let idle = connect(&proxy).await;
    idle.request(&request("1", "tools/list")).await;
    let received = idle.n_received();
    let said = run(data.path(), &["pause"]).await;
    assert_eq!(said, json!({"paused": true, "until": null, "processes": 1}));
    let paused_at = Instant::now();
    for client in &busy {
        client.wait_for(paused_at, Seen::Whole).await;
        client.wait_for(paused_at, Seen::Called).await;
    }
    idle.method_after(received, LIST_CHANGED, 1).await;
    let health = proxy.control_response("/health").await;
    assert_eq!(health["paused"], true, "{health}");
    let metrics = proxy.operate(Method::GET, "/metrics", "").await.body;
    assert!(metrics.contains("\nriglm_paused 1\n"), "{metrics}");
    // A new session is not selected, either.
    let late = connect(&proxy).await;
    let listed = late.request(&request("1", "tools/list")).await.text;
    assert_eq!(seen_list(&listed), Seen::Whole);

    let resume_asked_at = Instant::now();
    let said = run(data.path(), &["resume"]).await;
    assert_eq!(said["paused"], false, "{said}");
    let resumed_at = Instant::now();
    for client in &busy {
        client.wait_for(resumed_at, Seen::Selected).await;
        client.wait_for(resumed_at, Seen::Refused).await;
    }
    late.method_after(0, LIST_CHANGED, 1).await;

    stop.store(true, Ordering::SeqCst);
    let end = Instant::now();
    for (client, work) in busy.iter().zip(works) {
        // Every request was answered, and no call failed.
        let n_asked = work.await.unwrap();
        assert_eq!(client.observations.lock().len(), n_asked);
        let paused = client.between(paused_at, resume_asked_at);
        let is_free = |seen: &Seen| matches!(seen, Seen::Whole | Seen::Called);
        assert!(paused.iter().all(is_free), "{paused:?}");
        let after = client.between(resumed_at, end);
        assert!(!after.contains(&Seen::Whole), "{after:?}");
    }
}

#[tokio::test]
async fn a_pause_outlives_a_restart_and_ends_at_its_time() {
    let data = TempDir::new().unwrap();
    let mut proxy = start(data.path()).await;
    let said = run(data.path(), &["pause", "--for", "1h"]).await;
    assert!(said["until"].is_string(), "{said}");
    proxy.riglm.stop().await;
    let proxy = start(data.path()).await;
    let client = connect(&proxy).await;
    let listed = client.request(&request("1", "tools/list")).await.text;
    assert_eq!(seen_list(&listed), Seen::Whole);
    let health = proxy.control_response("/health").await;
    assert_eq!(health["paused_until"], said["until"], "{health}");
    // The commands that tell how a proxy is say it, too; a pause is no failure.
    let until = said["until"].as_str().unwrap();
    let told = format!("; lists are paused until {until}");
    let health = read_store(data.path(), &["health"]).await;
    assert!(health.contains(&told), "{health}");
    let rows = run(data.path(), &["health"]).await;
    assert_eq!(rows[0]["paused_until"], said["until"], "{rows}");
    let home = TempDir::new().unwrap();
    let places = ["doctor", "--data-dir", data.path().to_str().unwrap()];
    let doctor = run_at_home(home.path(), &places).await.stdout;
    let told = format!("ok       proxy: lists are paused until {until}");
    assert!(doctor.contains(&told), "{doctor}");

    let received = client.n_received();
    run(data.path(), &["pause", "--for", "1s"]).await;
    client.method_after(received, LIST_CHANGED, 1).await;
    let listed = client.request(&request("2", "tools/list")).await.text;
    assert_eq!(seen_list(&listed), Seen::Selected);
    let health = proxy.control_response("/health").await;
    assert_eq!(health["paused"], false, "{health}");
    assert!(health.get("paused_until").is_none(), "{health}");
    let health = read_store(data.path(), &["health"]).await;
    assert!(!health.contains("paused"), "{health}");
}
