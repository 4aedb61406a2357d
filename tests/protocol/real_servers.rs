//! Many servers as users have them, started at once.

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_tests::kit::proxy;
use riglm_tests::messages::{initialize, request};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::answers;

/// The longest time for the start of all servers.
const DEADLINE: Duration = Duration::from_mins(5);
/// The longest time behind the proxy, in those of a program that does nothing else.
const MOST_TIMES: f64 = 1.5;

/// A server of a client's configuration.
struct RealServer {
    name: String,
    words: Vec<String>,
    env: Vec<(String, String)>,
}

fn read_servers(file: &str) -> Vec<RealServer> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let all: Value = serde_json::from_str(&text).expect("the servers are JSON");
    let all = all["mcpServers"].as_object().expect("there are servers");
    let text = |value: &Value| value.as_str().expect("a word is text").to_owned();
    let servers = all.iter().map(|(name, server)| {
        let arguments = server["args"].as_array().expect("there are arguments");
        let env = server["env"].as_object().expect("there are variables");
        RealServer {
            name: name.clone(),
            words: std::iter::once(&server["command"])
                .chain(arguments)
                .map(text)
                .collect(),
            env: env
                .iter()
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
        }
    });
    servers.collect()
}

/// Starts a server and lists its tools. Returns their number; `None` after the deadline, or if the
/// server ends.
async fn start_plainly(server: &RealServer, folder: &TempDir) -> Option<usize> {
    let mut command = Command::new(&server.words[0]);
    command
        .args(&server.words[1..])
        .envs(server.env.iter().map(|(key, value)| (key, value)))
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let (mut input, output) = (child.stdin.take()?, child.stdout.take()?);
    let mut lines = BufReader::new(output).lines();
    let mut ask = async |text: String, id: u64| {
        input.write_all((text + "\n").as_bytes()).await.ok()?;
        while let Some(line) = lines.next_line().await.ok()? {
            let said: Value = serde_json::from_str(&line).unwrap_or_default();
            if said["id"] == id && said["result"].is_object() {
                return Some(said["result"].clone());
            }
        }
        None
    };
    let listing = async {
        ask(initialize("0", "2025-11-25"), 0).await?;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let list = format!("{initialized}\n{}", request("1", "tools/list"));
        let listed = ask(list, 1).await?;
        Some(listed["tools"].as_array()?.len())
    };
    let n_tools = tokio::time::timeout(DEADLINE, listing).await.ok().flatten();
    drop(input);
    let ended = tokio::time::timeout(Duration::from_secs(20), child.wait()).await;
    if ended.is_err() {
        child.kill().await.expect("a child can be killed");
    }
    n_tools
}

/// `RIGLM_TEST_SERVERS` names the file that `tests/prepare-servers` writes.
#[tokio::test]
#[ignore = "needs real servers (tests/prepare-servers)"]
async fn real_servers_are_available_about_as_soon_as_when_started_plainly() {
    let Ok(file) = std::env::var("RIGLM_TEST_SERVERS") else {
        return println!("left out: RIGLM_TEST_SERVERS is not set");
    };
    let mut servers = read_servers(&file);
    let folder = TempDir::new().expect("a temporary folder can be made");
    let begun = Instant::now();
    let times = join_all(servers.iter().map(async |server| {
        let n_tools = start_plainly(server, &folder).await;
        (n_tools, begun.elapsed())
    }));
    let times = times.await;
    let started = times.iter().filter(|(n_tools, _)| n_tools.is_some());
    let plainly = started
        .map(|(_, time)| *time)
        .max()
        .expect("a server starts");
    let n_tools: usize = times.iter().filter_map(|(n_tools, _)| *n_tools).sum();
    let mut can_start = times.iter().map(|(n_tools, _)| n_tools.is_some());
    servers.retain(|_| can_start.next() == Some(true));
    println!(
        "plainly: {} servers with {n_tools} tools after {plainly:?}",
        servers.len()
    );
    let mut all = proxy().strategy("prediction").with_control();
    all = all.configuration("limits.first_wait = \"1500ms\"");
    for RealServer { name, words, env } in &servers {
        let command = Value::from(words.clone());
        all = all.configuration(&format!("[upstreams.{name}]\ncommand = {command}"));
        all = all.configuration(&format!(
            "cwd = {}",
            Value::from(folder.path().display().to_string())
        ));
        all = all.configuration(&format!("[upstreams.{name}.env]"));
        for (key, value) in env {
            all = all.configuration(&format!("{key} = {}", Value::from(value.clone())));
        }
    }
    let begun = Instant::now();
    let proxy = all.start().await;
    let client = proxy.riglm.client(answers());
    client.initialize(&initialize("0", "2025-11-25")).await;
    let first = client.request(&request("1", "tools/list")).await.text;
    println!(
        "the first list of the first run came after {:?}",
        begun.elapsed()
    );
    let mut up = Vec::new();
    while up.len() < servers.len() && begun.elapsed() < DEADLINE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let states = proxy.control_response("/upstreams").await;
        let states = states["upstreams"]
            .as_array()
            .expect("there are upstreams")
            .clone();
        up = states
            .into_iter()
            .filter(|state| state["state"] == "available")
            .map(|state| state["name"].clone())
            .collect();
    }
    let behind = begun.elapsed();
    let times = behind.as_secs_f64() / plainly.as_secs_f64();
    println!(
        "behind the proxy: {} after {behind:?} ({times:.2} times)",
        up.len()
    );
    let missing: Vec<&RealServer> = servers
        .iter()
        .filter(|server| !up.contains(&Value::from(server.name.clone())))
        .collect();
    let missing: Vec<&str> = missing.iter().map(|server| &*server.name).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let list = client.request(&request("2", "tools/list")).await.text;
    println!("{} bytes at first, {} bytes now", first.len(), list.len());
    println!("the list: {list}");
    assert!(times <= MOST_TIMES, "{times}");
}
