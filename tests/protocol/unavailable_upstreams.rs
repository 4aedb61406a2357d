//! The cause of an unavailable upstream is reported to the caller, the operator and the log.

use std::time::Duration;

use riglm_tests::client::RawClient;
use riglm_tests::envelope::string_at;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::process::{eventually, free_port};
use riglm_tests::riglm::rows;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

use crate::answers;

/// Unavailable upstreams: name, cause, and the remedy if the cause does not contain one.
const BROKEN: [(&str, &str, &str); 7] = [
    (
        "refusing",
        "connection refused",
        "check that the server runs",
    ),
    ("unresolved", "the name could not be resolved", "`url`"),
    ("closed", "run `riglm login closed`", ""),
    ("failing", "HTTP status 501", "the log of the server"),
    ("website", "neither JSON nor an event stream", "`url`"),
    ("missing", "/no/such/program", "`command`"),
    ("ending", "exit status: 3", ""),
];

/// Returns the text of a cause for readers without a token, which contains nothing of the
/// configuration.
fn public_cause(cause: &str) -> &str {
    if cause.starts_with('/') {
        "its command could not be started; "
    } else {
        cause
    }
}

/// Starts a server that sends the same response to every request.
async fn start_constant_server(head: &'static str, body: &'static str) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("the socket has an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 16 * 1024];
                let _ = stream.read(&mut request).await;
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(text.as_bytes()).await;
            });
        }
    });
    format!("http://{address}/mcp")
        .parse()
        .expect("the address is a URL")
}

struct Scene(Proxy);

impl Scene {
    async fn start(further: &str) -> Self {
        let failing = start_constant_server("501 Not Implemented", "").await;
        let website =
            start_constant_server("200 OK\r\ncontent-type: text/html", "<html></html>").await;
        let locked = start_constant_server("401 Unauthorized", "").await;
        let configuration = format!(
            r#"{further}
[upstreams.refusing]
url = "http://127.0.0.1:{}/mcp"
[upstreams.unresolved]
url = "http://no-such-host.invalid/mcp"
[upstreams.closed]
url = "{locked}"
auth = {{ type = "oauth" }}
[upstreams.failing]
url = "{failing}"
[upstreams.website]
url = "{website}"
[upstreams.missing]
command = ["/no/such/program"]
[upstreams.ending]
command = ["sh", "-c", "exit 3"]
"#,
            free_port(),
        );
        let proxy = proxy().configuration(&configuration);
        let proxy = proxy.server(&server("works"));
        Self(proxy.with_control().start().await)
    }

    /// Calls a tool of every unavailable upstream. Returns the errors that differ from the expected
    /// ones.
    async fn call_all(&self, client: &RawClient, is_modern: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for (n, (name, cause, _)) in BROKEN.iter().enumerate() {
            let (id, tool) = ((100 + n).to_string(), format!("{name}__tool"));
            let call = if is_modern {
                Meta::default().call(&id, &tool, "{}")
            } else {
                call(&id, &tool, "{}")
            };
            let answer = client.request(&call).await.text;
            let told = string_at(&answer, &["error", "message"]).unwrap_or_default();
            if !(told.contains(cause) && told.starts_with(&format!("upstream {name}: "))) {
                wrong.push(format!("{name}: {answer}"));
            }
        }
        wrong
    }

    fn warnings(&self) -> Vec<String> {
        let log = self.0.riglm.process.output();
        let lines = log.lines().filter(|line| line.contains("WARN"));
        lines.map(str::to_owned).collect()
    }
}

/// Checks the reported causes after several sessions of a client.
async fn assert_causes_are_reported(further: &str, revision: Option<&str>) {
    let scene = Scene::start(further).await;
    for _ in 0..3 {
        let client = match revision {
            Some(_) => scene.0.riglm.client(answers()),
            None => RawClient::modern(&scene.0.riglm.url),
        };
        let list = match revision {
            Some(revision) => {
                client.initialize(&initialize("0", revision)).await;
                request("1", "tools/list")
            }
            None => Meta::default().request("1", "tools/list", ""),
        };
        client.request(&list).await;
        let wrong = scene.call_all(&client, revision.is_none()).await;
        assert!(wrong.is_empty(), "calls were told {wrong:#?}");
    }
    let health = scene.0.control_response("/health").await;
    let upstreams = scene.0.control_response("/upstreams").await;
    for (name, cause, remedy) in BROKEN {
        let told = health["upstreams"][name].to_string();
        assert!(
            told.contains(public_cause(cause)) && told.contains(remedy),
            "{name}: {told}"
        );
        let listed = upstreams["upstreams"]
            .as_array()
            .expect("a list of upstreams");
        let told = listed.iter().find(|upstream| upstream["name"] == name);
        let told = told.map(Value::to_string).unwrap_or_default();
        assert!(
            told.contains(cause) && told.contains(remedy),
            "{name}: {told}"
        );
    }
    // The log is written in the background.
    let all_there = || {
        BROKEN
            .iter()
            .all(|(name, ..)| n_about(&scene.warnings(), name) > 0)
            .then_some(())
    };
    let is_there = eventually(Duration::from_secs(5), all_there)
        .await
        .is_some();
    assert!(is_there, "{:#?}", scene.warnings());
    let warnings = scene.warnings();
    for (name, cause, remedy) in BROKEN {
        let about: Vec<&String> = warnings
            .iter()
            .filter(|line| is_about(line, name))
            .collect();
        assert_eq!(about.len(), 1, "{name}: {about:#?}");
        assert!(
            about[0].contains(cause) && about[0].contains(remedy),
            "{}",
            about[0]
        );
    }
    assert_eq!(warnings.len(), BROKEN.len(), "{warnings:#?}");
}

fn n_about(warnings: &[String], name: &str) -> usize {
    warnings.iter().filter(|line| is_about(line, name)).count()
}

fn is_about(line: &str, name: &str) -> bool {
    line.contains(&format!("upstream {name} "))
}

#[tokio::test]
async fn causes_are_reported_to_legacy_clients_operators_and_the_log() {
    assert_causes_are_reported("", Some("2025-06-18")).await;
}

#[tokio::test]
async fn causes_are_reported_to_modern_clients_operators_and_the_log() {
    assert_causes_are_reported("", None).await;
}

#[tokio::test]
async fn the_startup_check_finds_unavailable_upstreams_and_their_causes() {
    let scene = Scene::start("").await;
    let is_checked = async || {
        let health = scene.0.control_response("/health").await;
        let told = |name: &str| health["upstreams"][name].to_string();
        let is_broken = |(name, cause, remedy): &(&str, &str, &str)| {
            let told = told(name);
            told.contains("\"unavailable\"")
                && told.contains(public_cause(cause))
                && told.contains(remedy)
        };
        (told("works").contains("\"available\"") && BROKEN.iter().all(is_broken)).then_some(())
    };
    let checked = async {
        while is_checked().await.is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let checked = tokio::time::timeout(Duration::from_secs(30), checked).await;
    assert!(
        checked.is_ok(),
        "{}",
        scene.0.control_response("/health").await
    );
    let ready = scene.0.control_response("/health/ready").await;
    assert_eq!(ready["ready"], true, "{ready}");
    for open in [ready, scene.0.control_response("/health").await] {
        assert!(!open.to_string().contains("/no/such"), "{open}");
    }
    let log = scene.0.riglm.process.output();
    assert!(log.contains("upstream works is available: "), "{log}");
    let sessions = rows(&scene.0.data_dir, &["sessions", "--json"]).await;
    assert!(sessions.is_empty(), "{sessions:?}");
}

#[tokio::test]
async fn late_upstreams_become_available_without_a_client() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let gate = folder.path().join("gate");
    let late = server("late")
        .argument("--gate", gate.display().to_string())
        .key("start_timeout = \"1s\"");
    let proxy = proxy()
        .configuration("[limits]\nhandshake_timeout = \"1s\"\n")
        .server(&late)
        .start()
        .await;
    let riglm = &proxy.riglm;
    let said = |text: &str| riglm.process.output().contains(text).then_some(());
    let is_down = || said("upstream late is unavailable");
    let is_down = eventually(Duration::from_secs(20), is_down).await;
    assert!(is_down.is_some(), "{}", riglm.process.output());
    std::fs::write(&gate, "").expect("the gate can be opened");
    let is_up = eventually(Duration::from_mins(1), || {
        said("upstream late is available: ")
    })
    .await;
    assert!(is_up.is_some(), "{}", riglm.process.output());
}
