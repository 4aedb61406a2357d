//! `riglm connect`: a client over standard input and output, through the bridge to a running proxy.

use std::path::Path;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Upstream;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request, request_with};
use riglm_tests::process::{Process, command, free_port};
use riglm_tests::riglm::{Options, Riglm, listening_address, rows, serve_command};
use tempfile::TempDir;
use url::Url;

const KEY: &str = "the key of ann, long enough";

/// Returns the command of a bridge to a proxy.
fn bridge(url: &Url, data_dir: &Path) -> tokio::process::Command {
    let mut bridge = command(binary::riglm(), &["connect", "--url", url.as_str()]);
    bridge.arg("--data-dir").arg(data_dir);
    bridge
}

async fn two_servers(data_dir: &Path) -> Proxy {
    let proxy = proxy()
        .configuration(&format!("[auth.keys]\nann = \"{KEY}\"\n"))
        .server(&server("docs").tools(30))
        .server(&server("wiki").tools(30))
        .strategy("prediction");
    proxy.start_in(data_dir).await
}

/// Returns a client of a bridge, whose session is open.
async fn client(url: &Url, revision: &str, data_dir: &Path) -> RawClient {
    let client = RawClient::stdio(bridge(url, data_dir), Answers::default());
    client.initialize(&initialize("0", revision)).await;
    client
}

#[tokio::test]
async fn a_client_of_programs_has_the_session_of_the_proxy() {
    let (data, own) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let secrets = own.path().join("secrets.env");
    std::fs::write(&secrets, format!("RIGLM_KEY='{KEY}'\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secrets, mode).unwrap();
    let proxy = two_servers(data.path()).await;
    let client = client(&proxy.riglm.url, "2025-06-18", own.path()).await;
    let list = client.request(&request("1", "tools/list")).await.text;
    assert!(list.contains("\"docs__tool-029\""), "{list}");
    let answer = client.request(&call("2", "wiki__tool-007", "{}")).await;
    assert!(answer.text.contains("\"result\""), "{}", answer.text);
    let hint =
        r#"{"name":"docs__tool-001","arguments":{},"_meta":{"io.github.riglm/session":"job 1"}}"#;
    client.request(&request_with("3", "tools/call", hint)).await;
    let other = self::client(&proxy.riglm.url, "2025-11-25", own.path()).await;
    other.request(&request_with("1", "tools/call", hint)).await;
    let calls = rows(data.path(), &["calls", "--json"]).await;
    let work_sessions = |tool: &str| -> Vec<&str> {
        let of_tool = calls.iter().filter(|call| call["tool"] == tool);
        of_tool
            .map(|call| call["work_session"].as_str().unwrap())
            .collect()
    };
    let (plain, hinted) = (work_sessions("tool-007"), work_sessions("tool-001"));
    assert_eq!((plain.len(), hinted.len()), (1, 2), "{calls:?}");
    assert!(hinted[0] == hinted[1] && hinted[0] != plain[0], "{calls:?}");
    // The bridge records nothing.
    assert!(!own.path().join("riglm.db").exists());
}

#[tokio::test]
async fn a_client_outlives_a_restart_of_the_proxy() {
    let data = TempDir::new().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let options = Options::with_configuration(
        &(server("docs").tools(3).section() + &server("wiki").tools(3).section()),
    );
    let start = || async {
        let mode = ["--listen", &address];
        let upstream = Upstream::from_configuration();
        let process = Process::spawn(serve_command(&upstream, data.path(), &options, &mode));
        let url = listening_address(&process).await;
        Riglm { process, url }
    };
    let mut before = start().await;
    let own = TempDir::new().unwrap();
    let client = client(&before.url, "2025-11-25", own.path()).await;
    let first = client.request(&call("1", "docs__tool-001", "{}")).await;
    assert!(first.text.contains("\"result\""), "{}", first.text);
    before.stop().await;
    drop(before);
    let missing = client.request(&call("2", "docs__tool-001", "{}")).await;
    assert!(missing.text.contains("\"error\""), "{}", missing.text);
    let expected = format!("no proxy answers at http://{address}/mcp: start one with");
    assert!(missing.text.contains(&expected), "{}", missing.text);
    let _after = start().await;
    let again = client.request(&call("3", "docs__tool-001", "{}")).await;
    assert!(again.text.contains("\"result\""), "{}", again.text);
}

#[tokio::test]
async fn a_call_during_a_restart_waits_for_the_proxy_and_is_made_once() {
    let data = TempDir::new().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let options = Options::with_configuration(
        &(server("docs").tools(3).section() + &server("wiki").tools(3).section()),
    );
    let start = || async {
        let mode = ["--listen", &address];
        let upstream = Upstream::from_configuration();
        let process = Process::spawn(serve_command(&upstream, data.path(), &options, &mode));
        let url = listening_address(&process).await;
        Riglm { process, url }
    };
    let mut before = start().await;
    let own = TempDir::new().unwrap();
    let client = client(&before.url, "2025-11-25", own.path()).await;
    let list = client.request(&request("1", "tools/list")).await.text;
    assert!(list.contains("docs__tool-001"), "{list}");
    before.stop().await;
    drop(before);
    let later = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        start().await
    };
    let during = call("2", "docs__tool-001", "{}");
    let (answer, mut after) = tokio::join!(client.request(&during), later);
    assert!(answer.text.contains("\"result\""), "{}", answer.text);
    after.stop().await;
    let calls = rows(data.path(), &["calls", "--json"]).await;
    assert_eq!(calls.len(), 1, "{calls:?}");
}

#[tokio::test]
async fn without_a_proxy_the_cure_is_named() {
    let own = TempDir::new().unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", free_port());
    let mut process = Process::spawn(bridge(&url.parse().unwrap(), own.path()));
    let expected = format!("no proxy answers at {url}: start one with `riglm serve`");
    let says = |line: &str| line.contains(&expected).then_some(());
    process.line(Duration::from_mins(1), "the cure", says).await;
    let ended = process.wait_for_end(Duration::from_secs(10)).await;
    assert_eq!(ended.code(), Some(1));
}
