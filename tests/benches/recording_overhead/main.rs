//! The overhead of recording per call: the same calls through riglm with and without recording, in
//! one run.
//!
//! `cargo bench -p riglm-tests --bench recording_overhead [-- --blocks N] [--riglm PATH]`
//!
//! Blocks of calls alternate between the two, with one session each, so that a slow moment of the
//! machine affects both. The report compares whole runs, and also pairs of blocks, whose median is
//! robust against a few slow blocks.

#[expect(
    dead_code,
    reason = "lists and other sizes are measured by the other bench"
)]
#[path = "../proxy_overhead/load.rs"]
mod load;
#[path = "../proxy_overhead/process.rs"]
mod process;
#[path = "../proxy_overhead/upstream.rs"]
mod upstream;

use std::path::{Path, PathBuf};

use load::{Case, Figures, Sample, Target};
use process::Process;

/// The number of blocks for each of the two, unless `--blocks` is given.
const BLOCKS: usize = 12;
/// A block lasts several times as long as the interval in which records are collected into rows.
const CALLS_OF_A_BLOCK: usize = 3_000;
const CASE: Case = Case::Call(1_000);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let n_blocks = value_of("--blocks").map_or(BLOCKS, |text| text.parse().expect("a number"));
    let program = value_of("--riglm").map_or_else(process::riglm_program, PathBuf::from);
    let upstream = upstream::start(100);
    let data = tempfile::tempdir().expect("a temporary directory");
    let start = |mode: &str| start(&program, upstream, &data.path().join(mode), mode);
    let (off, on) = (start("off"), start("best_effort"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let [off, on] = runtime.block_on(async {
        let mut targets = [
            Target::connect("off", off.address, Some(off.child.id())).await,
            Target::connect("on", on.address, Some(on.child.id())).await,
        ];
        for target in &mut targets {
            target.run(CASE, CALLS_OF_A_BLOCK).await; // Warms up.
        }
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..n_blocks {
            for (target, samples) in targets.iter_mut().zip(&mut samples) {
                samples.push(target.run(CASE, CALLS_OF_A_BLOCK).await);
            }
        }
        samples
    });
    print(&off, &on);
}

fn start(program: &Path, upstream: std::net::SocketAddr, data_dir: &Path, mode: &str) -> Process {
    let mut command = process::serve_command(program, upstream, data_dir, "none");
    Process::start(command.env("RIGLM__RECORDING__MODE", mode))
}

#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
fn print(off: &[Sample], on: &[Sample]) {
    let row = |name: &str, [p50, p99, cpu]: [f64; 3]| {
        println!("| {name} | {p50:.1} | {p99:.1} | {cpu:.1} |");
    };
    println!("| recording | p50 us | p99 us | CPU us |\n|---|---|---|---|");
    let (all_off, all_on) = (numbers(&load::merge(off)), numbers(&load::merge(on)));
    row("off", all_off);
    row("on", all_on);
    row("difference", difference(all_off, all_on));
    let mut blocks: [Vec<f64>; 3] = Default::default();
    for (off, on) in off.iter().zip(on) {
        let [off, on] = [off, on].map(|block| numbers(&load::merge(std::slice::from_ref(block))));
        for (values, value) in blocks.iter_mut().zip(difference(off, on)) {
            values.push(value);
        }
    }
    let medians = blocks.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    });
    row("difference, median of the blocks", medians);
}

fn numbers(figures: &Figures) -> [f64; 3] {
    [figures.p50, figures.p99, figures.cpu]
}

fn difference(off: [f64; 3], on: [f64; 3]) -> [f64; 3] {
    [on[0] - off[0], on[1] - off[1], on[2] - off[2]]
}
