//! Cost of a prediction of the next tool, of learning from a call, and of restoring a snapshot.
//!
//! `cargo bench -p riglm-domain --bench prediction`
//!
//! The bench `prediction_tail` measures the slowest calls and the size of the learned state.
#![expect(clippy::unwrap_used, reason = "a measurement may fail")]

#[expect(dead_code, unreachable_pub, reason = "another bench uses the rest")]
#[path = "prediction/scene.rs"]
mod scene;

use divan::Bencher;
use riglm_domain::prediction::{Engine, PredictionMethod};
use scene::SyntheticSessions;

const N_TOOLS: [usize; 3] = [50, 500, 2_000];

fn main() {
    divan::main();
}

#[divan::bench(args = N_TOOLS, sample_count = 2_000, sample_size = 1)]
fn predict_and_learn(bencher: Bencher<'_, '_>, n_tools: usize) {
    let mut scene = SyntheticSessions::after_calls(n_tools, 3_000);
    bencher.bench_local(|| scene.step());
}

// The snapshot is taken after 20,000 calls.
#[divan::bench(args = N_TOOLS, sample_count = 20)]
fn restore(bencher: Bencher<'_, '_>, n_tools: usize) {
    let bytes = SyntheticSessions::after_calls(n_tools, 20_000)
        .engine
        .snapshot()
        .unwrap();
    bencher
        .counter(divan::counter::BytesCount::new(bytes.len()))
        .bench(|| {
            let mut engine = Engine::new(PredictionMethod::Mix, 30.0);
            engine.restore(Engine::FORMAT, &bytes).unwrap();
            engine
        });
}
