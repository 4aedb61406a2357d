//! Several proxies over stdio with one data directory: one client starts one for each of its
//! servers.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, initialize};
use riglm_tests::plain_http;
use riglm_tests::process::{command, eventually};
use riglm_tests::riglm::rows;
use tempfile::TempDir;

/// Starts a proxy over stdio in front of `program`, with more `options`.
fn start_proxy(data_dir: &Path, options: &[&str], program: &str) -> RawClient {
    let mut serve = command(binary::riglm(), &["serve", "--stdio", "--strategy", "none"]);
    serve.arg("--data-dir").arg(data_dir).args(options);
    serve.args(["--", program, "stdio"]);
    RawClient::stdio(serve, Answers::default())
}

/// Returns the address of the control port from the log of a proxy.
async fn control_address(client: &mut RawClient) -> String {
    let process = client.process();
    let told = || {
        let output = process.output();
        let (_, rest) = output.split_once("control API on ")?;
        rest.split_once(',').map(|(address, _)| address.to_owned())
    };
    let address = eventually(Duration::from_secs(20), told).await;
    address.unwrap_or_else(|| panic!("no control address in {}", process.output()))
}

#[tokio::test]
async fn each_proxy_has_its_own_control_address_and_name() {
    let directory = TempDir::new().expect("a temporary folder can be made");
    let data_dir = directory.path().join("data");
    let mut programs = Vec::new();
    for name in ["calc-server", "mcp-server-notes", "third"] {
        let program = directory.path().join(name);
        symlink(env!("CARGO_BIN_EXE_odd-server"), &program).expect("a link can be made");
        programs.push(program.display().to_string());
    }
    let mut clients = [
        start_proxy(&data_dir, &[], &programs[0]),
        start_proxy(&data_dir, &[], &programs[1]),
        start_proxy(&data_dir, &["--name", "mine"], &programs[2]),
    ];
    let mut addresses = BTreeSet::new();
    for client in &mut clients {
        client.initialize(&initialize("0", "2025-06-18")).await;
        client.request(&call("1", "echo", r#"{"text":"a"}"#)).await;
        addresses.insert(control_address(client).await);
        let told = client.process().output();
        for line in [
            "serving one client over standard input and output".to_owned(),
            format!("token in {}", data_dir.join("control.token").display()),
            "no configuration file".to_owned(),
            format!("data in {}", data_dir.display()),
            "upstreams: ".to_owned(),
        ] {
            assert!(told.contains(&line), "{line:?} is not in {told}");
        }
    }
    assert_eq!(addresses.len(), clients.len(), "{addresses:?}");
    for address in addresses {
        let url = format!("{address}/health").parse().expect("it is a URL");
        let health = plain_http::exchange(http::Method::GET, &url, &[], "").await;
        let health = health.unwrap_or_else(|error| panic!("{address}: {}", error.0));
        assert_eq!(health.status, 200, "{address}");
    }
    for client in &clients {
        client.close_input().await;
    }
    let calls = rows(&data_dir, &["calls", "--json"]).await;
    let upstreams: BTreeSet<&str> = calls
        .iter()
        .filter_map(|it| it["upstream"].as_str())
        .collect();
    assert_eq!(upstreams, BTreeSet::from(["calc", "mine", "notes"]));
}
