//! The children of a killed proxy: a guard process ends them.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_adapters_mcp::upstream::Guard;
use riglm_adapters_mcp::upstream::guard::run_guard;

use crate::stdio::{assert_group_ends, reported_pid, reporting_its_pid, shell};
use crate::support::Connection;

/// The environment variable with the role of this test binary, when a test below starts it again.
const ROLE: &str = "RIGLM_TEST_ROLE";

/// Returns the command that runs this test binary in `role`, with the test function `test` only.
fn this_binary(role: &str, test: &str) -> Vec<String> {
    let exe = std::env::current_exe().unwrap();
    let role = format!("{ROLE}={role}");
    [
        "env",
        &role,
        exe.to_str().unwrap(),
        "--exact",
        "--nocapture",
        test,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn plays(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|played| played == role)
}

#[test]
fn role_helper() {
    if plays("helper") {
        run_guard(std::io::stdin());
    }
}

#[tokio::test]
async fn role_proxy() {
    if !plays("proxy") {
        return;
    }
    let script = reporting_its_pid("trap '' TERM HUP; while :; do sleep 1; done");
    let mut connector = shell(&script);
    let helper = this_binary("helper", "guard::role_helper");
    connector.guard = Some(Arc::new(Guard::new(helper)));
    let connection = Connection::open(&connector).await.unwrap();
    println!("group={}.", reported_pid(&connection).await);
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn the_children_of_a_killed_proxy_are_ended() {
    let argv = this_binary("proxy", "guard::role_proxy");
    let mut proxy = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = proxy.stdout.take().unwrap();
    let mut said = String::new();
    let group: u32 = loop {
        let mut byte = [0];
        assert_eq!(
            output.read(&mut byte).unwrap(),
            1,
            "the proxy said only {said}"
        );
        said.push(char::from(byte[0]));
        if let Some((_, rest)) = said.split_once("group=")
            && let Some((group, _)) = rest.split_once('.')
        {
            break group.parse().unwrap();
        }
    };
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert_group_ends(group).await;
}

#[tokio::test]
async fn guard_forgets_ended_groups_and_ends_its_helper() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let argv = ["sh", "-c", "cat >\"$0\"", log.to_str().unwrap()];
    let guard = Arc::new(Guard::new(argv.map(str::to_owned).to_vec()));
    let mut connector = shell(&reporting_its_pid("exec cat"));
    connector.guard = Some(guard.clone());
    let connection = Connection::open(&connector).await.unwrap();
    let group = reported_pid(&connection).await;
    connection.close().await;
    drop((connector, connection));
    let deadline = Instant::now() + Duration::from_secs(5);
    while Arc::strong_count(&guard) > 1 {
        assert!(Instant::now() < deadline, "the guard is still in use");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(guard);
    assert_eq!(
        std::fs::read_to_string(log).unwrap(),
        format!("+{group}\n-{group}\n")
    );
}

#[tokio::test]
async fn connections_work_without_a_startable_guard() {
    let mut connector = shell(&reporting_its_pid("exec cat"));
    connector.guard = Some(Arc::new(Guard::new(vec!["no-such-program-at-all".into()])));
    let connection = Connection::open(&connector).await.unwrap();
    let group = reported_pid(&connection).await;
    connection.close().await;
    assert_group_ends(group).await;
}

#[test]
fn the_guard_ends_registered_processes_at_end_of_input() {
    let spawn = || {
        Command::new("sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .unwrap()
    };
    let (mut registered, mut forgotten) = (spawn(), spawn());
    let lines = format!(
        "+{}\n+{}\nnonsense\n-{}\n",
        registered.id(),
        forgotten.id(),
        forgotten.id()
    );
    run_guard(lines.as_bytes());
    assert!(
        registered.wait().unwrap().code().is_none(),
        "it ended by itself"
    );
    assert!(
        forgotten.try_wait().unwrap().is_none(),
        "the other group was ended too"
    );
    forgotten.kill().unwrap();
    forgotten.wait().unwrap();
}
