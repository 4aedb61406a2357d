//! Times of the slowest predictions, and size of the learned state in memory and in snapshots.
//!
//! `cargo bench -p riglm-domain --bench prediction_tail` prints all parts. With `-- latency`,
//! `forecasts`, `state`, `restart` or `sets` it prints one part. Linux only: resident memory is
//! read from `/proc`. Each part runs in its own process for each size.
//!
//! - `latency`: time to predict and learn, over 20,000 calls after 3,000 others.
//! - `forecasts`: a digest of all predictions for 20,000 calls. Equal numbers give an equal digest,
//!   bit for bit.
//! - `state`: memory growth of a process that learns from 100,000 calls, and of a process that
//!   restores their snapshot and predicts once. Only the tools of a server are candidates of a
//!   call, which changes no size.
//! - `restart`: time to restore a snapshot of a million calls, and the time for which predictions
//!   wait while the state is saved or aged. The weights of the mixers are learned from the last
//!   20,000 calls only.
//! - `sets`: time in which several kinds of predictors learn from 20,000 calls, memory growth of
//!   the process, and size of the snapshots.
#![expect(clippy::unwrap_used, reason = "a measurement may fail")]
#![expect(clippy::print_stdout, reason = "it is what a measurement is for")]

#[expect(unreachable_pub, reason = "a module of two benches")]
#[path = "prediction/scene.rs"]
mod scene;

use std::hint::black_box;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::prediction::{Engine, Expert, ExpertSet, PredictionMethod};
use scene::SyntheticSessions;

const N_TOOLS: [usize; 3] = [50, 500, 2_000];
/// Tools, principals and clients of the measured states.
const STATES: [(usize, usize, usize); 5] = [
    (50, 1, 1),
    (500, 1, 1),
    (500, 1, 2),
    (500, 8, 2),
    (2_000, 1, 1),
];
const HALF_LIFE_DAYS: f64 = 30.0;
/// Kinds of predictors, and the experts in their mix. An empty list means all experts.
const SETS: [(&str, PredictionMethod, &[Expert]); 4] = [
    ("mix", PredictionMethod::Mix, &[]),
    (
        "mix_of_three",
        PredictionMethod::Mix,
        &[Expert::Markov, Expert::Workflow, Expert::Server],
    ),
    ("markov", PredictionMethod::Expert(Expert::Markov), &[]),
    (
        "frequency",
        PredictionMethod::Expert(Expert::Frequency),
        &[],
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = (arguments.iter().map(String::as_str))
        .filter(|word| !word.starts_with("--"))
        .collect();
    match words.as_slice() {
        [part, numbers @ ..] if numbers.len() == 3 => {
            let number = |at: usize| numbers[at].parse().unwrap();
            measure(part, (number(0), number(1), number(2)));
        }
        parts => {
            let is_wanted = |part: &str| parts.is_empty() || parts.contains(&part);
            for n_tools in N_TOOLS {
                if is_wanted("latency") {
                    print(&run_in_child("latency", (n_tools, 1, 1), &[]));
                }
            }
            for size in [(500, 1, 1), (200, 3, 2)] {
                if is_wanted("forecasts") {
                    print(&run_in_child("forecasts", size, &[]));
                }
            }
            for size in STATES {
                if is_wanted("state") {
                    let (text, snapshot) = split(&run_in_child("state", size, &[]));
                    print(&text);
                    print(&run_in_child("restored", size, &snapshot));
                }
            }
            for (set, ..) in SETS {
                if is_wanted("sets") {
                    print(&run_in_child(set, (500, 1, 1), &[]));
                }
            }
            if is_wanted("restart") {
                print(&run_in_child("restart", (500, 1, 1), &[]));
            }
        }
    }
}

fn measure(part: &str, size: (usize, usize, usize)) {
    let (n_tools, n_principals, n_clients) = size;
    let scene = |method| SyntheticSessions::new(method, n_tools, n_principals, n_clients);
    match part {
        "latency" => latency(SyntheticSessions::after_calls(n_tools, 3_000)),
        "forecasts" => forecasts(scene(PredictionMethod::Mix)),
        "state" => state(scene(PredictionMethod::Mix)),
        "restored" => measure_restore(scene(PredictionMethod::Mix)),
        "restart" => restart(scene(PredictionMethod::CooccurrenceWithFallback)),
        part => match SETS.iter().find(|(name, ..)| *name == part) {
            Some((_, method, experts)) => measure_learning(part, scene(*method), experts),
            None => println!("no part is named {part}"),
        },
    }
}

fn latency(mut scene: SyntheticSessions) {
    let mut times: Vec<Duration> = (0..20_000)
        .map(|_| {
            let start = Instant::now();
            black_box(scene.step());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let of = |per_mille: usize| times[(times.len() - 1) * per_mille / 1_000];
    println!(
        "latency, {} tools: median {:?}, 90th percentile {:?}, 99th {:?}, 99.9th {:?}",
        scene.slots.len(),
        of(500),
        of(900),
        of(990),
        of(999),
    );
}

fn measure_learning(set: &str, mut scene: SyntheticSessions, experts: &[Expert]) {
    if !experts.is_empty() {
        scene.engine = scene.engine.clone().with_experts(ExpertSet::of(experts));
    }
    let (before, start) = (resident_bytes(), Instant::now());
    for _ in 0..20_000 {
        scene.learn_among_all();
    }
    let took = start.elapsed();
    let grown = resident_bytes().saturating_sub(before);
    let bytes = scene.engine.snapshot().unwrap().len();
    println!(
        "{set}, {} tools, 20,000 calls: learned in {took:?}, grown by {grown} bytes; snapshot {bytes} bytes",
        scene.slots.len(),
    );
}

fn forecasts(mut scene: SyntheticSessions) {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |number: u64| digest = (digest ^ number).wrapping_mul(0x0100_0000_01b3);
    for _ in 0..20_000 {
        for (slot, p) in scene.step().ranking() {
            add(slot.index().try_into().unwrap());
            add(p.to_bits());
        }
    }
    println!("forecasts, {} tools: {digest:016x}", scene.slots.len());
}

/// Prints the memory growth of the process, and then the snapshot.
fn state(mut scene: SyntheticSessions) {
    let before = resident_bytes();
    for _ in 0..100_000 {
        scene.learn();
    }
    let grown = resident_bytes().saturating_sub(before);
    black_box(scene.step());
    let predicted = resident_bytes().saturating_sub(before);
    let bytes = scene.engine.snapshot().unwrap();
    let size = bytes.len();
    println!("learned: grown by {grown} bytes, {predicted} with a forecast; snapshot {size} bytes");
    std::io::stdout().write_all(&bytes).unwrap();
}

fn measure_restore(mut scene: SyntheticSessions) {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).unwrap();
    let before = resident_bytes();
    scene.engine.restore(Engine::FORMAT, &bytes).unwrap();
    let grown = resident_bytes().saturating_sub(before);
    black_box(scene.step());
    let predicted = resident_bytes().saturating_sub(before);
    println!("  restored: grown by {grown} bytes, {predicted} with a forecast");
}

fn restart(mut scene: SyntheticSessions) {
    for _ in 0..980_000 {
        scene.learn();
    }
    let counted = scene.engine.snapshot().unwrap();
    scene.engine = Engine::new(PredictionMethod::Mix, HALF_LIFE_DAYS);
    scene.engine.restore(Engine::FORMAT, &counted).unwrap();
    for _ in 0..20_000 {
        scene.learn();
    }
    let bytes = scene.engine.snapshot().unwrap();
    let engine = &scene.engine;
    let new = || Engine::new(PredictionMethod::Mix, HALF_LIFE_DAYS);
    println!(
        "after 1,000,000 calls, {} tools, snapshot {} bytes",
        scene.slots.len(),
        bytes.len()
    );
    print_repeated_times("restart", new, |engine| {
        engine.restore(Engine::FORMAT, &bytes).unwrap();
    });
    print_repeated_times("snapshot", new, |_| {
        black_box(engine.snapshot().unwrap());
    });
    print_repeated_times(
        "ageing",
        || engine.clone(),
        |engine| {
            black_box(engine.maintain(Timestamp::constant(4_000_000_000, 0)));
        },
    );
}

/// Prints the median and the slowest time of `work`, each run on a new engine from `make`.
fn print_repeated_times(name: &str, make: impl Fn() -> Engine, work: impl Fn(&mut Engine)) {
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let mut engine = make();
            let start = Instant::now();
            work(&mut engine);
            let time = start.elapsed();
            black_box(engine);
            time
        })
        .collect();
    times.sort_unstable();
    println!(
        "  {name}: median {:?}, slowest {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

/// Returns the resident memory of the process, in bytes. Assumes pages of 4 KiB.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    resident * 4_096
}

/// Runs a part in a process of its own, with `input` on its standard input, and returns its output.
fn run_in_child(part: &str, size: (usize, usize, usize), input: &[u8]) -> Vec<u8> {
    let (n_tools, n_principals, n_clients) = size;
    let numbers = [n_tools, n_principals, n_clients].map(|number| number.to_string());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(part)
        .args(numbers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let mut output = Vec::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_end(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    if part == "state" {
        println!("state, {n_tools} tools, {n_principals} principals, {n_clients} clients:");
    }
    output
}

fn split(output: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = output.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let text = [&b"  "[..], &output[..end]].concat();
    (text, output[end..].to_vec())
}

fn print(output: &[u8]) {
    std::io::stdout().write_all(output).unwrap();
}
