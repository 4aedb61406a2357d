//! The life cycle of a session: its id, its own upstream session, and every way to end it.

use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::{integer_at, raw_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::kit::{proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http;
use riglm_tests::process::{command_line, descendants, eventually, is_alive, survivors};
use riglm_tests::riglm::{Options, ProxiedClient, Riglm};
use tempfile::TempDir;
use url::Url;

use crate::{answers, connect, odd, odd_over_stdio};

/// The deadline for the end of a child process after its session.
const GRACE: Duration = Duration::from_secs(10);

/// Returns the process id of the server of a client.
async fn server_pid(client: &RawClient) -> u32 {
    let answer = client.request(&call("\"pid\"", "pid", "{}")).await;
    integer_at(&answer.text, &["result", "structuredContent", "pid"])
        .and_then(|pid| u32::try_from(pid).ok())
        .unwrap_or_else(|| panic!("no process id in {}", answer.text))
}

/// Returns a counter from the server's own statistics of its sessions.
async fn stat(server: &Url, name: &str) -> i64 {
    let url = server.join("/stats").expect("the path is valid");
    let answer = plain_http::exchange(Method::GET, &url, &[], "")
        .await
        .unwrap_or_else(|error| panic!("{}", error.0));
    integer_at(&answer.body, &[name]).unwrap_or_else(|| panic!("{}", answer.body))
}

/// Waits until a counter of the server has a value.
async fn wait_for_stat(server: &Url, name: &str, value: i64) {
    let end = std::time::Instant::now() + GRACE;
    loop {
        let now = stat(server, name).await;
        if now == value {
            return;
        }
        assert!(
            std::time::Instant::now() < end,
            "{name} is {now}, not {value}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn deleted_sessions_are_unknown_and_their_servers_end() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let pid = server_pid(&line.client).await;
    assert!(is_alive(pid));
    let status = line.client.delete().await;
    assert!((200..300).contains(&status), "DELETE answered {status}");
    assert_eq!(line.client.send(&request("9", "ping")).await.status, 404);
    assert_eq!(line.client.open_stream(None).await, 404);
    assert_eq!(line.client.delete().await, 404);
    assert_eq!(survivors(&[pid], GRACE).await, Vec::<u32>::new());
}

#[tokio::test]
async fn the_answer_to_a_delete_does_not_wait_for_servers_that_stay() {
    let stubborn = server("a").after("(trap '' TERM; sleep 60) & true");
    let proxy = proxy().server(&stubborn).start().await;
    let client = proxy.client().connect().await;
    let left = descendants(server_pid(&client).await);
    assert!(!left.is_empty());
    let begun = Instant::now();
    assert_eq!(client.delete().await, 204);
    let took = begun.elapsed();
    // Ending it takes two stages of three seconds.
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(left.iter().all(|pid| is_alive(*pid)));
    assert_eq!(survivors(&left, 2 * GRACE).await, Vec::<u32>::new());
}

#[tokio::test]
async fn deleting_a_session_deletes_its_upstream_session() {
    let upstream = odd().start(Transport::Streamable).await;
    let server = upstream.url.clone().expect("the server has an address");
    let line = connect(Transport::Streamable, &upstream).await;
    // The health check at the start may still have a session of its own.
    wait_for_stat(&server, "open", 1).await;
    let n_deleted = stat(&server, "deleted").await;
    line.client.delete().await;
    wait_for_stat(&server, "deleted", n_deleted + 1).await;
    assert_eq!(stat(&server, "open").await, 0);
}

#[tokio::test]
async fn sessions_forgotten_by_the_upstream_are_reopened() {
    let upstream = odd().start(Transport::Streamable).await;
    let server = upstream.url.clone().expect("the server has an address");
    let line = connect(Transport::Streamable, &upstream).await;
    let forget = [("mcp-session-id", "odd-session-1")];
    plain_http::exchange(Method::DELETE, &server, &forget, "")
        .await
        .unwrap_or_else(|error| panic!("{}", error.0));
    let seen = line.client.request(&call("1", "seen", "{}")).await;
    let told = |member: &str| {
        let path = ["result", "structuredContent", member];
        raw_at(&seen.text, &path).unwrap_or_else(|| panic!("no {member} in {}", seen.text))
    };
    assert_eq!(
        Some(told("initialize")),
        raw_at(&initialize("0", "2025-11-25"), &["params"]),
        "the new session was opened in the name of the client"
    );
    assert!(told("notifications").contains("notifications/initialized"));
    assert_eq!(told("calls"), "1", "the call was made once");
    assert_eq!(stat(&server, "open").await, 1);
}

#[tokio::test]
async fn every_client_has_a_server_of_its_own() {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let riglm = Riglm::serve(&odd_over_stdio(), data_dir.path(), &Options::default()).await;
    let mut pids = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = riglm.client(answers());
        client.initialize(&initialize("0", "2025-11-25")).await;
        pids.push(server_pid(&client).await);
        clients.push(client);
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 3);
}

#[tokio::test]
async fn session_ids_are_long_visible_ascii_and_not_the_upstreams() {
    let upstream = odd().start(Transport::Streamable).await;
    let line = connect(Transport::Streamable, &upstream).await;
    let id = line.client.session_id().expect("the session has an id");
    assert!(id.len() >= 22, "{id} has too few bits");
    assert!(id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
    assert!(!id.contains("odd-session"), "{id}");
}

#[tokio::test]
async fn closed_input_ends_the_proxy_and_its_server() {
    let mut line = connect(Transport::Stdio, &odd_over_stdio()).await;
    let pid = server_pid(&line.client).await;
    line.client.close_input().await;
    let status = line.client.process().wait_for_end(GRACE).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(survivors(&[pid], GRACE).await, Vec::<u32>::new());
}

#[tokio::test]
async fn calls_before_end_of_input_are_answered() {
    let mut line = connect(Transport::Stdio, &odd_over_stdio()).await;
    line.client
        .send(&call("\"last\"", "sleep", r#"{"ms":200}"#))
        .await;
    line.client.close_input().await;
    line.client.answer("\"last\"").await;
    assert_eq!(
        line.client.process().wait_for_end(GRACE).await.code(),
        Some(0)
    );
}

#[tokio::test]
async fn a_termination_signal_ends_the_proxy_cleanly_with_open_streams() {
    let mut line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let pid = server_pid(&line.client).await;
    let riglm = line.riglm.as_mut().expect("the proxy listens");
    assert_eq!(riglm.stop().await, Some(0));
    assert_eq!(survivors(&[pid], GRACE).await, Vec::<u32>::new());
}

#[tokio::test]
async fn a_call_in_flight_is_answered_before_the_proxy_ends() {
    let mut line = connect(Transport::Streamable, &odd_over_stdio()).await;
    line.client
        .send(&call("\"last\"", "sleep", r#"{"ms":500}"#))
        .await;
    let riglm = line.riglm.as_mut().expect("the proxy listens");
    assert_eq!(riglm.stop().await, Some(0));
    line.client.answer("\"last\"").await;
}

#[tokio::test]
async fn disconnected_http_sse_clients_end_their_servers() {
    let line = connect(Transport::Legacy, &odd_over_stdio()).await;
    let pid = server_pid(&line.client).await;
    line.client.drop_streams();
    assert_eq!(survivors(&[pid], GRACE).await, Vec::<u32>::new());
}

#[tokio::test]
async fn dead_stdio_servers_are_restarted_for_the_same_session() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        let before = server_pid(&line.client).await;
        let failed = line.client.request(&call("1", "exit", "{}")).await;
        assert!(
            raw_at(&failed.text, &["error"]).is_some(),
            "{}",
            failed.text
        );
        let after = server_pid(&line.client).await;
        assert_ne!(before, after);
        let seen = line.client.request(&call("2", "seen", "{}")).await;
        let told = raw_at(&seen.text, &["result", "structuredContent", "initialize"]);
        assert_eq!(
            told,
            raw_at(&initialize("0", "2025-11-25"), &["params"]),
            "the new server was initialised as the old one"
        );
        let left = eventually(GRACE, || (!is_alive(before)).then_some(())).await;
        assert!(left.is_some(), "the old server lives on");
    }
}

/// Returns the command lines of the server processes of a proxy.
fn servers_of(riglm: &Riglm) -> Vec<String> {
    let processes = descendants(riglm.process.pid()).into_iter();
    let commands = processes.map(command_line);
    commands
        .filter(|command| command.contains("odd-server"))
        .collect()
}

#[tokio::test]
async fn a_proxy_without_clients_ends_the_server_of_its_check_after_the_idle_timeout() {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let options = Options::with_configuration(&format!(
        "[upstreams.odd]\ncommand = [\"{}\", \"stdio\"]\nidle_timeout = \"1s\"\n",
        env!("CARGO_BIN_EXE_odd-server")
    ));
    let upstream = Upstream::from_configuration();
    let riglm = Riglm::serve(&upstream, data_dir.path(), &options).await;
    let is_checked = || {
        riglm
            .process
            .output()
            .contains(" is available: ")
            .then_some(())
    };
    let is_checked = eventually(GRACE, is_checked).await.is_some();
    assert!(is_checked, "{}", riglm.process.output());
    let is_ended = || servers_of(&riglm).is_empty().then_some(());
    let is_ended = eventually(GRACE, is_ended).await.is_some();
    assert!(is_ended, "{:?}", servers_of(&riglm));
}

#[tokio::test]
async fn idle_proxies_start_no_servers_without_health_check() {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let odd = env!("CARGO_BIN_EXE_odd-server");
    let configuration = format!(
        "[upstreams.alone]\ncommand = [\"{odd}\", \"stdio\"]\nhealth_check = false\n\
         [upstreams.checked]\ncommand = [\"{odd}\", \"stdio\"]\n"
    );
    let options = Options::with_configuration(&configuration);
    let riglm = Riglm::serve(&Upstream::from_configuration(), data_dir.path(), &options).await;
    let is_checked = || {
        riglm
            .process
            .output()
            .contains("checked is available: ")
            .then_some(())
    };
    let is_checked = eventually(GRACE, is_checked).await.is_some();
    let log = riglm.process.output();
    assert!(is_checked && !log.contains("alone is available"), "{log}");
}

#[tokio::test]
async fn a_killed_proxy_leaves_no_server_behind() {
    let mut line = ProxiedClient::through(
        Transport::Streamable,
        &odd_over_stdio(),
        &Options::default(),
        answers(),
    )
    .await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    let pid = server_pid(&line.client).await;
    let riglm = line.riglm.as_mut().expect("the proxy listens");
    riglm.process.kill().await;
    assert_eq!(survivors(&[pid], GRACE).await, Vec::<u32>::new());
}
