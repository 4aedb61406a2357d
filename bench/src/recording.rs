//! The overhead of recording: the same calls through riglm with and without recording, in one run.
//!
//! Blocks of calls alternate between the two, with one session each, so that a slow moment of the
//! machine affects both. The report compares whole runs, and also pairs of blocks, whose median is
//! robust against a few slow blocks.

use crate::message::{Case, Era};
use crate::report::print_table;
use crate::riglm::{Behind, CaseArgs};
use crate::sequence::Sequence;
use crate::statistics::{Figures, Sample};
use crate::upstream::Upstream;

/// A block lasts several times as long as the interval in which records are collected into rows.
const CALLS_OF_A_BLOCK: usize = 3_000;
const HEAD: &str = "| recording | p50 us | p99 us | CPU us |\n|---|---|---|---|";
const CASE: Case = Case::Call(1_000);

/// Measures `rounds` blocks of each of the two and prints the table.
pub(crate) async fn run(arguments: CaseArgs) -> anyhow::Result<()> {
    let riglm = arguments.prepare()?;
    let upstream = Upstream::new(Era::Legacy, 100).start()?;
    let mut processes = Vec::new();
    let mut sequences = Vec::new();
    for (name, mode) in [("off", "off"), ("on", "best_effort")] {
        let riglm = riglm.clone().with_variable("RIGLM__RECORDING__MODE", mode);
        let process = riglm.start(name, &Behind::Http(upstream), arguments.cores())?;
        sequences.push(Sequence::open(name, &process).await?);
        processes.push(process);
    }
    let request = CASE.request(Era::Legacy);
    for sequence in &mut sequences {
        sequence.run(&request, CALLS_OF_A_BLOCK).await?; // Warms up.
    }
    let mut samples = [const { Vec::new() }; 2];
    for _ in 0..arguments.rounds() {
        for (sequence, samples) in sequences.iter_mut().zip(&mut samples) {
            samples.push(sequence.run(&request, CALLS_OF_A_BLOCK).await?);
        }
    }
    print(&samples);
    Ok(())
}

fn print([off, on]: &[Vec<Sample>; 2]) {
    let row = |name: &str, [p50, p99, cpu]: [f64; 3]| {
        format!("| {name} | {p50:.1} | {p99:.1} | {cpu:.1} |")
    };
    let (all_off, all_on) = (numbers(off), numbers(on));
    let mut blocks: [Vec<f64>; 3] = Default::default();
    for (off, on) in off.iter().zip(on) {
        let [off, on] = [off, on].map(|block| numbers(std::slice::from_ref(block)));
        for (values, value) in blocks.iter_mut().zip(difference(off, on)) {
            values.push(value);
        }
    }
    let medians = blocks.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    });
    print_table(
        HEAD,
        &[
            row("off", all_off),
            row("on", all_on),
            row("difference", difference(all_off, all_on)),
            row("difference, median of the blocks", medians),
        ],
    );
}

fn numbers(samples: &[Sample]) -> [f64; 3] {
    let figures = Figures::of(samples);
    [
        figures.p50_us,
        figures.p99_us,
        figures.cpu_us.unwrap_or_default(),
    ]
}

fn difference(off: [f64; 3], on: [f64; 3]) -> [f64; 3] {
    [on[0] - off[0], on[1] - off[1], on[2] - off[2]]
}
