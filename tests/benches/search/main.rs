//! The cost of a search: the latency of `search_available_tools` through the real program, from
//! request to response, with short queries that were not asked before, and the memory of its
//! encoder.
//!
//! `cargo bench -p riglm-tests --bench search [-- --tools N] [--searches N] [--models DIR]
//! [--encoder none|embedded|NAME]... [--recommend] [--riglm PATH]`
//!
//! With `--recommend` it measures `recommend_tools`, and sends every query a second time, which is
//! answered from the ranking cache.
//!
//! `DIR` contains the models, like `DATA_DIR/models`. The first row is a program without search.
//! Its memory is the baseline of the other rows.
#![expect(
    clippy::panic,
    reason = "arguments that are not understood end the bench"
)]

mod riglm_program;
mod tools;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::process::{Process, resident_kib};
use riglm_tests::riglm::listening_address;
use tokio::process::Command;
use url::Url;

const RECOMMEND: &str = "recommend_tools";
/// The deadline for the vectors of a catalog.
const EMBEDDING_DEADLINE: Duration = Duration::from_mins(20);

struct Arguments {
    n_tools: usize,
    n_searches: usize,
    models: Option<PathBuf>,
    encoders: Vec<String>,
    tool: &'static str,
    program: Option<PathBuf>,
}

fn main() {
    let arguments = arguments();
    let program = arguments.program.clone();
    let program = program.unwrap_or_else(riglm_program::riglm_program);
    let upstream = tools::start(arguments.n_tools);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let bare = measure(&program, &upstream, &arguments, None).await;
        print_head();
        print_row("no search", &bare, bare.resident_kib);
        for encoder in &arguments.encoders {
            let row = measure(&program, &upstream, &arguments, Some(encoder)).await;
            print_row(encoder, &row, bare.resident_kib);
            if let Some(kept) = row.repeated_row() {
                print_row(&format!("{encoder}, kept"), &kept, bare.resident_kib);
            }
        }
    });
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        n_tools: 1_000,
        n_searches: 400,
        models: None,
        encoders: Vec::new(),
        tool: "search_available_tools",
        program: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{name} has a value"));
        match name.as_str() {
            "--tools" => found.n_tools = value().parse().expect("a number of tools"),
            "--searches" => found.n_searches = value().parse().expect("a number of searches"),
            "--models" => found.models = Some(value().into()),
            "--encoder" => found.encoders.push(value()),
            "--recommend" => found.tool = RECOMMEND,
            "--riglm" => found.program = Some(value().into()),
            // Added by cargo.
            "--bench" => {}
            other => panic!("unknown argument {other}"),
        }
    }
    if found.encoders.is_empty() {
        found.encoders = vec!["none".into(), "embedded".into()];
    }
    found
}

/// The measurements of a program with one encoder.
struct EncoderRow {
    embedding: Duration,
    latencies: Vec<Duration>,
    /// Latencies of the repeated queries.
    kept: Vec<Duration>,
    resident_kib: u64,
}

impl EncoderRow {
    /// Returns the row of the repeated queries.
    fn repeated_row(&self) -> Option<Self> {
        (!self.kept.is_empty()).then(|| Self {
            embedding: self.embedding,
            latencies: self.kept.clone(),
            kept: Vec::new(),
            resident_kib: self.resident_kib,
        })
    }
}

/// Starts the program with an encoder, waits for the vectors of the tools, and searches.
async fn measure(
    program: &Path,
    upstream: &Url,
    arguments: &Arguments,
    encoder: Option<&String>,
) -> EncoderRow {
    let data = tempfile::tempdir().expect("a temporary directory");
    let started = Instant::now();
    let (process, url) = serve(program, upstream, arguments, encoder, data.path()).await;
    let client = RawClient::streamable(&url, Answers::default()).with_patience(EMBEDDING_DEADLINE);
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.request(&request("1", "tools/list")).await;
    let mut latencies = Vec::new();
    let mut kept = Vec::new();
    let mut embedding = Duration::ZERO;
    if let Some(encoder) = encoder {
        // Without an encoder, the first search prepares the catalog.
        let tool = arguments.tool;
        search(&client, tool, 0, "anything at all").await;
        if let Some(model) = ready_log_text(encoder) {
            process
                .line(EMBEDDING_DEADLINE, "vectors that are there", |line| {
                    (line.contains("embedding complete") && line.contains(&model)).then_some(())
                })
                .await;
        }
        embedding = started.elapsed();
        let queries = tools::queries(arguments.n_searches);
        let rounds = [
            Some(&mut latencies),
            (tool == RECOMMEND).then_some(&mut kept),
        ];
        let mut number = 0;
        for latencies in rounds.into_iter().flatten() {
            for query in &queries {
                number += 1;
                let asked = Instant::now();
                search(&client, tool, number, query).await;
                latencies.push(asked.elapsed());
            }
            latencies.sort_unstable();
        }
    }
    // The allocator returns memory to the system only after a while.
    tokio::time::sleep(Duration::from_secs(2)).await;
    EncoderRow {
        embedding,
        latencies,
        kept,
        resident_kib: resident_kib(process.pid()),
    }
}

/// Returns the text of the log line that reports the vectors of an encoder.
fn ready_log_text(encoder: &str) -> Option<String> {
    match encoder {
        "none" => None,
        "embedded" => Some("model=".into()),
        name => Some(name.into()),
    }
}

async fn search(client: &RawClient, tool: &str, number: usize, query: &str) {
    let arguments = format!(r#"{{"query":"{query}"}}"#);
    let id = format!(r#""s{number}""#);
    let answer = client.request(&call(&id, tool, &arguments)).await;
    let is_answer = |key: &str| answer.text.contains(key);
    assert!(
        is_answer("matches") || is_answer("left_out"),
        "{}",
        answer.text
    );
}

async fn serve(
    program: &Path,
    upstream: &Url,
    arguments: &Arguments,
    encoder: Option<&String>,
    data: &Path,
) -> (Process, Url) {
    let strategy = if encoder.is_some() {
        "prediction"
    } else {
        "none"
    };
    let mut command = Command::new(program);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--control", "off"])
        .args(["--strategy", strategy, "--upstream", upstream.as_str()])
        .arg("--data-dir")
        .arg(data)
        .env("RIGLM__LOGGING__LEVEL", "debug")
        .env(
            "RIGLM__RECOMMEND__TOOLS",
            (arguments.tool == RECOMMEND).to_string(),
        )
        .env("RIGLM__SEARCH__ENCODER__MODEL", model(encoder, arguments));
    let process = Process::spawn(command);
    let url = listening_address(&process).await;
    (process, url)
}

/// Returns the configuration value of an encoder: the path for models in a directory.
fn model(encoder: Option<&String>, arguments: &Arguments) -> String {
    let name = encoder.map_or("none", String::as_str);
    if matches!(name, "none" | "embedded") {
        return name.into();
    }
    let models = arguments.models.as_ref();
    let models = models.expect("--models says where models are");
    models.join(name).display().to_string()
}

#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
fn print_head() {
    println!("| encoder | p50 ms | p95 ms | ready after s | resident MB | added MB |");
    println!("|---|---|---|---|---|---|");
}

#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
fn print_row(name: &str, row: &EncoderRow, bare_kib: u64) {
    let at = |percent: usize| match row.latencies.len() {
        0 => "-".to_owned(),
        n => {
            let latency = row.latencies[(n - 1) * percent / 100];
            format!("{:.2}", latency.as_secs_f64() * 1e3)
        }
    };
    let megabytes = |kib: u64| kib * 1_024 / 1_000_000;
    println!(
        "| {name} | {} | {} | {:.1} | {} | {} |",
        at(50),
        at(95),
        row.embedding.as_secs_f64(),
        megabytes(row.resident_kib),
        megabytes(row.resident_kib.saturating_sub(bare_kib)),
    );
}
