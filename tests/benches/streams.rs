//! The quality of predictions on recorded streams. Prints the table of docs/prediction.md.
//!
//! `cargo bench -p riglm-tests --bench streams -- DIR [--riglm PATH]`
//!
//! `DIR` contains streams in the format of `riglm replay`: `NAME.catalog.json` with `NAME.jsonl`.
//! Each is replayed unchanged, without its queries, and with unseen tasks. The output contains no
//! measured times, so the same program prints the same output.
#![expect(
    clippy::panic,
    reason = "arguments that are not understood end the bench"
)]
#![expect(clippy::print_stdout, reason = "it is what a measurement is for")]

#[path = "search/riglm_program.rs"]
mod riglm_program;

use std::path::{Path, PathBuf};
use std::process::Command;

use riglm_tests::streams::streams_in;
use serde_json::Value;

/// The replays of each stream: name and options.
const MODES: [(&str, &[&str]); 3] = [
    ("", &[]),
    ("no query", &["--no-query"]),
    ("unseen tasks", &["--unseen-tasks"]),
];

fn main() {
    let (folder, program) = arguments();
    let program = program.unwrap_or_else(riglm_program::riglm_program);
    println!(
        "| Stream | | Predictor | hit@5 | @10 | @20 | first_use@5 | @10 | @20 | cov@25% | first_use_cov@25% | bits | cold_starts |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut policies = Vec::new();
    for (catalog, sessions) in streams_in(&folder) {
        for (mode, options) in MODES {
            let measured = replay_stream(&program, (&catalog, &sessions), options);
            let stream = measured["dataset"].as_str().unwrap_or_default().to_owned();
            for name in ["frequency", "cooccurrence", "mix"] {
                let of = &measured["predictors"][name];
                println!(
                    "| {stream} | {mode} | {name} | {} | {} |",
                    per_cent(
                        of,
                        &[
                            "hit@5",
                            "hit@10",
                            "hit@20",
                            "first_use@5",
                            "first_use@10",
                            "first_use@20",
                            "cov@25%",
                            "first_use_cov@25%",
                        ]
                    ),
                    number(&of["bits"]) + " | " + &per_cent(of, &["cold_starts"]),
                );
            }
            for name in ["static+inline", "conformal-95"] {
                let of = &measured["policies"][name];
                policies.push(format!(
                    "| {stream} | {mode} | {name} | {} | {} |",
                    per_cent(of, &["coverage", "first_use_coverage", "cost_vs_all"]),
                    number(&of["mean_size"]) + " | " + &number(&of["searches_per_session"]),
                ));
            }
        }
    }
    println!(
        "\n| Stream | | Policy | coverage | first_use_coverage | cost_vs_all | mean_size | searches_per_session |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for row in policies {
        println!("{row}");
    }
}

fn arguments() -> (PathBuf, Option<PathBuf>) {
    let (mut folder, mut program) = (None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--riglm" => program = words.next().map(Into::into),
            // Added by cargo.
            "--bench" => {}
            option if option.starts_with("--") => panic!("unknown argument {option}"),
            path => folder = Some(path.into()),
        }
    }
    (folder.expect("a folder with streams is named"), program)
}

fn replay_stream(program: &Path, (catalog, sessions): (&Path, &Path), options: &[&str]) -> Value {
    let data = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(program)
        .args(["replay", "--json", "--catalog"])
        .arg(catalog)
        .arg("--sessions")
        .arg(sessions)
        .arg("--data-dir")
        .arg(data.path())
        .args(["--predictor", "mix", "--predictor", "cooccurrence"])
        .args(["--predictor", "frequency"])
        .args(options)
        .output()
        .expect("riglm starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("riglm prints JSON")
}

/// Returns shares in per cent, as cells of a table row.
fn per_cent(of: &Value, keys: &[&str]) -> String {
    let cells = keys.iter().map(|key| match of[*key].as_f64() {
        Some(share) => format!("{:.1}", 100.0 * share),
        None => String::new(),
    });
    cells.collect::<Vec<_>>().join(" | ")
}

fn number(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(String::new, |value| format!("{value:.2}"))
}
