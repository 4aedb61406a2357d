//! Benchmark of a model on disk: the time for a query and for the text of a tool, and the resident
//! memory of the loaded model.
//!
//! Run with `RIGLM_BENCH_MODEL=models/NAME cargo bench -p riglm-adapters-prediction --bench
//! encoders`. The directory must have the files of a model with their manifest. The arguments are
//! numbers of threads.
#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a measurement says what it does and may fail"
)]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{env, fs, thread};

use divan::Bencher;
use parking_lot::Mutex;
use riglm_adapters_prediction::encoder::LocalEncoder;
use riglm_ports::encoder::{Encoder as _, TextRole};
use tokio::runtime::Runtime;

/// The allocator of the binary, because it decides how much freed memory stays resident.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// At most 16 tokens.
const QUERY: &str = "find the open issues that were assigned to me last week";
/// About 70 tokens.
const PASSAGE: &str = "search_issues: Searches the issues and pull requests of a repository by \
    text, state, label, author and assignee, and returns the newest ones first. Arguments: query, \
    the text to look for; state, open or closed; labels, names of labels that all must be set; \
    limit, the most issues that are returned.";

fn main() {
    if env::var_os("RIGLM_BENCH_MODEL").is_none() {
        eprintln!("set RIGLM_BENCH_MODEL to the directory of a model");
        return;
    }
    let before = resident_bytes();
    encode(1, QUERY, TextRole::Query);
    print_resident("with the model", before);
    encode(1, &PASSAGE.repeat(12), TextRole::Passage);
    print_resident("right after the longest text", before);
    thread::sleep(Duration::from_secs(1));
    encode(1, QUERY, TextRole::Query);
    print_resident("a second later", before);
    divan::main();
}

fn print_resident(when: &str, before: u64) {
    let more = resident_bytes().saturating_sub(before);
    eprintln!("resident {when}: {} MB more", more / 1_000_000);
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
});

/// Encoders by their number of threads.
static ENCODERS: Mutex<BTreeMap<usize, Arc<LocalEncoder>>> = Mutex::new(BTreeMap::new());

fn encoder(threads: usize) -> Arc<LocalEncoder> {
    let mut encoders = ENCODERS.lock();
    let made = encoders.entry(threads).or_insert_with(|| {
        let directory = PathBuf::from(env::var_os("RIGLM_BENCH_MODEL").unwrap());
        let manifest = fs::read(directory.join("manifest.json")).unwrap();
        let manifest = serde_json::from_slice(&manifest).unwrap();
        let threads = NonZeroUsize::new(threads).unwrap();
        Arc::new(LocalEncoder::new(directory, manifest, threads))
    });
    Arc::clone(made)
}

fn encode(threads: usize, text: &str, role: TextRole) -> Vec<Vec<f32>> {
    let encoder = encoder(threads);
    RUNTIME
        .block_on(encoder.encode(vec![text.to_owned()], role))
        .unwrap()
}

/// Returns different texts of tools with 20 to 70 tokens.
fn descriptions() -> Vec<String> {
    let words: Vec<&str> = PASSAGE.split(' ').collect();
    let description = |number: usize| {
        let n_words = words.len() / 3 + number * 7 % (words.len() * 2 / 3);
        format!("tool {number}: {}", words[..n_words].join(" "))
    };
    (0..1_000).map(description).collect()
}

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let counted = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = counted.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

#[divan::bench(args = [1, 2], sample_count = 200)]
fn query(bencher: Bencher<'_, '_>, threads: usize) {
    encode(threads, QUERY, TextRole::Query);
    bencher.bench(|| encode(threads, QUERY, TextRole::Query));
}

#[divan::bench(args = [1, 2], sample_count = 100)]
fn passage(bencher: Bencher<'_, '_>, threads: usize) {
    encode(threads, PASSAGE, TextRole::Passage);
    bencher.bench(|| encode(threads, PASSAGE, TextRole::Passage));
}

/// Embeds a catalog in batches, as the search does.
#[divan::bench(args = [1, 2], sample_count = 1, sample_size = 1)]
fn descriptions_1000(bencher: Bencher<'_, '_>, threads: usize) {
    encode(threads, QUERY, TextRole::Query);
    let encoder = encoder(threads);
    bencher.bench(|| {
        for batch in descriptions().chunks(16) {
            let encoding = encoder.encode(batch.to_vec(), TextRole::Passage);
            RUNTIME.block_on(encoding).unwrap();
        }
    });
}
