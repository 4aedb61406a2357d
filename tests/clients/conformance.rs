//! The official conformance suite, run against its fixture and through the proxy.

use std::collections::BTreeMap;
use std::time::Duration;

use riglm_tests::fixture::{Transport, Upstream, clients_dir, npm_package};
use riglm_tests::process::{Process, command};
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;
use url::Url;

use crate::{node_22, output, script};

/// How long the whole suite may take.
const SUITE: Duration = Duration::from_mins(5);

/// How many scenarios revision 2025-11-25 requires in this version of the suite.
const N_REQUIRED: usize = 30;

/// How many checks of a scenario failed, and whether the scenario counts as passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    is_passed: bool,
    n_failed: usize,
}

async fn run_suite(url: &Url) -> BTreeMap<String, Verdict> {
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
        "2025-11-25",
    ]);
    let text = output(suite, SUITE).await;
    text.lines().filter_map(verdict).collect()
}

/// Reads a line of the summary: `✓ ping: 2 passed, 0 failed`.
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

#[tokio::test]
#[ignore = "needs npm"]
async fn no_scenario_fares_worse_through_the_proxy() {
    let (_fixture, url) = start_fixture().await;
    let direct = run_suite(&url).await;
    assert!(direct.len() >= N_REQUIRED, "{direct:?}");
    let failing: Vec<_> = direct
        .iter()
        .filter(|(_, verdict)| !verdict.is_passed)
        .collect();
    assert!(failing.is_empty(), "directly: {failing:?}");

    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let upstream = Upstream::at(Transport::Streamable, url);
    let riglm = Riglm::serve(&upstream, data_dir.path(), &Options::default()).await;
    let proxied = run_suite(&riglm.url).await;
    let worse: Vec<_> = direct
        .iter()
        .filter(|(name, before)| {
            proxied.get(*name).is_none_or(|after| {
                after.n_failed > before.n_failed || (before.is_passed && !after.is_passed)
            })
        })
        .collect();
    assert!(worse.is_empty(), "{worse:?} became {proxied:?}");
}
