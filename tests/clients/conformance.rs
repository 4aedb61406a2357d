//! The official conformance suite, run directly against its fixture and through the proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use riglm_tests::fixture::{Transport, Upstream, clients_dir, npm_package};
use riglm_tests::process::{Process, command, free_port};
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use url::Url;

use crate::{modern_fixture, node_22, script};

/// The deadline of the complete suite.
const SUITE: Duration = Duration::from_mins(5);

/// The number of scenarios that revision 2025-11-25 requires in this version of the suite.
const N_REQUIRED: usize = 30;

/// The number of scenarios that revision 2026-07-28 requires in this version of the suite.
const N_REQUIRED_MODERN: usize = 37;

/// The name prefix of scenarios of an extension. No revision requires them, and the fixture of
/// 2026-07-28 does not support them.
const EXTENSION: &str = "tasks-";

/// The result of a scenario: the number of failed checks, and whether the scenario counts as
/// passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    is_passed: bool,
    n_failed: usize,
}

/// The results of a run of the suite.
#[derive(Debug)]
struct Run {
    verdicts: BTreeMap<String, Verdict>,
    /// The failed checks with their error messages.
    failed_checks: Vec<String>,
}

impl Run {
    /// Returns a summary of the run.
    fn summary(&self, way: &str) -> String {
        let n_passed = self.verdicts.values().filter(|verdict| verdict.is_passed);
        format!(
            "{way} {} of {} scenarios pass, {} checks fail",
            n_passed.count(),
            self.verdicts.len(),
            self.failed_checks.len()
        )
    }
}

async fn run_suite(url: &Url, revision: &str) -> Run {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let mut suite = command(
        node_22(),
        &[npm_package("@modelcontextprotocol/conformance").join("dist/index.js")],
    );
    suite.current_dir(folder.path()).args([
        "server",
        "--url",
        url.as_str(),
        "--requirements",
        revision,
        "--output-dir",
        "results",
    ]);
    let text = report(suite).await;
    Run {
        verdicts: text.lines().filter_map(verdict).collect(),
        failed_checks: failed_checks(&folder.path().join("results")),
    }
}

/// Returns the failed checks from the result files of the suite, one folder for each scenario.
fn failed_checks(results: &Path) -> Vec<String> {
    let scenarios = std::fs::read_dir(results).into_iter().flatten().flatten();
    scenarios
        .filter_map(|scenario| std::fs::read_to_string(scenario.path().join("checks.json")).ok())
        .flat_map(|checks| serde_json::from_str::<Vec<Value>>(&checks).unwrap_or_default())
        .filter(|check| check["status"] == "FAILURE")
        .map(|check| format!("{}: {}", check["id"], check["errorMessage"]))
        .collect()
}

/// Parses a line of the summary: `✓ ping: 2 passed, 0 failed`.
fn verdict(line: &str) -> Option<(String, Verdict)> {
    let is_passed = line.starts_with('\u{2713}');
    if !is_passed && !line.starts_with('\u{2717}') {
        return None;
    }
    let (name, counts) = line.get('\u{2713}'.len_utf8()..)?.trim().split_once(": ")?;
    let n_failed = counts.split(", ").nth(1)?.strip_suffix(" failed")?;
    let verdict = Verdict {
        is_passed,
        n_failed: n_failed.parse().ok()?,
    };
    Some((name.to_owned(), verdict))
}

async fn start_fixture() -> (Process, Url) {
    let mut server = command(node_22(), &[script("conformance-server.mjs")]);
    server.env("RIGLM_TEST_CLIENTS", clients_dir());
    let process = Process::spawn(server);
    let url = process
        .line(Duration::from_secs(30), "the address", |line| {
            line.strip_prefix("listening on ")?.parse().ok()
        })
        .await;
    (process, url)
}

/// Starts the server of the suite's own repository, if `.ci/prepare-clients` has fetched it.
async fn start_official() -> Option<(Process, Url)> {
    let program = clients_dir().join("conformance-server/everything-server.ts");
    if !program.is_file() {
        eprintln!("{} is missing", program.display());
        return None;
    }
    let runner = npm_package("tsx").join("dist/cli.mjs");
    let port = free_port();
    let mut server = command(node_22(), &[runner, program]);
    server.env("PORT", port.to_string());
    let process = Process::spawn(server);
    process
        .line(Duration::from_secs(30), "the address", |line| {
            line.contains("MCP endpoint:").then_some(())
        })
        .await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    Some((process, url.parse().expect("the address is a URL")))
}

/// Runs the suite and returns its output. The exit code only says whether all scenarios passed, so
/// it is ignored.
async fn report(mut suite: Command) -> String {
    suite.kill_on_drop(true);
    let output = tokio::time::timeout(SUITE, suite.output())
        .await
        .unwrap_or_else(|_| panic!("{suite:?} did not end within {SUITE:?}"))
        .unwrap_or_else(|error| panic!("{suite:?}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the failed scenarios.
fn failing(verdicts: &BTreeMap<String, Verdict>) -> Vec<&str> {
    verdicts
        .iter()
        .filter(|(_, verdict)| !verdict.is_passed)
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Fails if a scenario passes fewer checks through the proxy than directly.
async fn assert_no_worse(url: Url, direct: &Run, revision: &str) {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let upstream = Upstream::at(Transport::Streamable, url);
    let riglm = Riglm::serve(&upstream, data_dir.path(), &Options::default()).await;
    let proxied = run_suite(&riglm.url, revision).await;
    eprintln!("{revision}: {}", direct.summary("direct"));
    eprintln!("{revision}: {}", proxied.summary("through the proxy"));
    let worse: Vec<_> = direct
        .verdicts
        .iter()
        .filter(|(name, before)| {
            proxied.verdicts.get(*name).is_none_or(|after| {
                after.n_failed > before.n_failed || (before.is_passed && !after.is_passed)
            })
        })
        .collect();
    let new: Vec<&String> = proxied
        .failed_checks
        .iter()
        .filter(|check| !direct.failed_checks.contains(check))
        .collect();
    assert!(worse.is_empty(), "{worse:?} got worse: {new:#?}");
}

#[tokio::test]
#[ignore = "needs npm"]
async fn no_scenario_fares_worse_through_the_proxy() {
    let (_fixture, url) = start_fixture().await;
    let direct = run_suite(&url, "2025-11-25").await;
    assert!(direct.verdicts.len() >= N_REQUIRED, "{direct:?}");
    assert_eq!(failing(&direct.verdicts), Vec::<&str>::new(), "{direct:?}");
    assert_no_worse(url, &direct, "2025-11-25").await;
}

#[tokio::test]
#[ignore = "needs npm"]
async fn the_modern_fixture_passes_all_required_scenarios() {
    let fixture = modern_fixture::start().await;
    let mut direct = run_suite(&fixture.url, "2026-07-28").await;
    direct
        .verdicts
        .retain(|name, _| !name.starts_with(EXTENSION));
    assert!(direct.verdicts.len() >= N_REQUIRED_MODERN, "{direct:?}");
    assert_eq!(failing(&direct.verdicts), Vec::<&str>::new(), "{direct:?}");
}

#[tokio::test]
#[ignore = "needs npm"]
async fn no_scenario_of_2026_07_28_fares_worse_through_the_proxy() {
    let fixture = modern_fixture::start().await;
    let direct = run_suite(&fixture.url, "2026-07-28").await;
    assert!(direct.verdicts.len() >= N_REQUIRED_MODERN, "{direct:?}");
    assert_no_worse(fixture.url.clone(), &direct, "2026-07-28").await;
}

/// The suite's own server streams JSON where the specification requires events.
#[tokio::test]
#[ignore = "needs npm"]
async fn json_bodies_fare_no_worse_than_event_streams() {
    let fixture = modern_fixture::start().await;
    let direct = run_suite(&fixture.url, "2026-07-28").await;
    assert!(direct.verdicts.len() >= N_REQUIRED_MODERN, "{direct:?}");
    let fixture = modern_fixture::start_with(modern_fixture::Framing::Json).await;
    assert_no_worse(fixture.url.clone(), &direct, "2026-07-28").await;
}

#[tokio::test]
#[ignore = "needs npm and the repository of the suite"]
async fn official_scenarios_fare_no_worse_through_the_proxy() {
    for (revision, n_required) in [
        ("2025-11-25", N_REQUIRED),
        ("2026-07-28", N_REQUIRED_MODERN),
    ] {
        let Some((_server, url)) = start_official().await else {
            return;
        };
        let direct = run_suite(&url, revision).await;
        assert!(direct.verdicts.len() >= n_required, "{direct:?}");
        assert_no_worse(url, &direct, revision).await;
    }
}
