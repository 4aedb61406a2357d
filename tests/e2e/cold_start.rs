//! The predictions after a cold start, measured on recorded streams that are not part of the
//! project: with enough history, lists can be filtered.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_tests::streams::streams_in;
use riglm_tests::{binary, process};
use serde_json::Value;
use tempfile::TempDir;

/// The maximum share of cold starts among the calls after the first 50 sessions.
const MAX_COLD_STARTS: f64 = 0.02;

/// Returns the streams in the folder of `RIGLM_TEST_STREAMS`.
fn streams() -> Vec<(PathBuf, PathBuf)> {
    let folder = std::env::var_os("RIGLM_TEST_STREAMS").expect("RIGLM_TEST_STREAMS names a folder");
    streams_in(Path::new(&folder))
}

async fn replay_stream(catalog: &Path, sessions: &Path, mode: &[&str]) -> Value {
    let data = TempDir::new().unwrap();
    let mut command = process::command(binary::riglm(), &["replay", "--json"]);
    command.args(["--predictor", "mix", "--policy", "static"]);
    let named: [(&str, OsString); 3] = [
        ("--data-dir", data.path().into()),
        ("--catalog", catalog.into()),
        ("--sessions", sessions.into()),
    ];
    for (option, value) in named {
        command.arg(option).arg(value);
    }
    command.args(mode);
    let ended = tokio::time::timeout(Duration::from_mins(15), command.output());
    let output = ended.await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
#[ignore = "needs streams of calls"]
async fn with_history_a_cold_start_is_rare() {
    let streams = streams();
    let mut n_mature = 0;
    for (catalog, sessions) in &streams {
        for mode in [&[][..], &["--no-query"]] {
            let measured = replay_stream(catalog, sessions, mode).await;
            let name = &measured["dataset"];
            let mix = &measured["predictors"]["mix"];
            let (share, first) = (&mix["cold_starts"], &mix["first_call_cold_starts"]);
            println!("{name} {mode:?}: {share} of calls, {first} of first calls");
            // Streams of 50 sessions or fewer have no value.
            let Some(share) = share.as_f64() else {
                continue;
            };
            n_mature += 1;
            assert!(share <= MAX_COLD_STARTS, "{name} {mode:?}: {share}");
        }
    }
    assert!(n_mature > 0, "no stream is long enough: {streams:?}");
}
