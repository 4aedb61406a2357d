//! What predicting the next tool and learning from a call cost, and what restoring a snapshot does.
//!
//! `cargo bench -p riglm-domain --bench prediction`
//!
//! How slow the slowest calls are, and how large what is learned becomes: `prediction_tail`.
#![expect(clippy::unwrap_used, reason = "a measurement may fail")]

#[expect(dead_code, unreachable_pub, reason = "another bench uses the rest")]
#[path = "prediction/scene.rs"]
mod scene;

use divan::Bencher;
use riglm_domain::prediction::{Engine, Method};
use scene::Scene;

const N_TOOLS: [usize; 3] = [50, 500, 2_000];

fn main() {
    divan::main();
}

#[divan::bench(args = N_TOOLS, sample_count = 2_000, sample_size = 1)]
fn predict_and_learn(bencher: Bencher<'_, '_>, n_tools: usize) {
    let mut scene = Scene::after(n_tools, 3_000);
    bencher.bench_local(|| scene.step());
}

/// After 20,000 calls.
#[divan::bench(args = N_TOOLS, sample_count = 20)]
fn restore(bencher: Bencher<'_, '_>, n_tools: usize) {
    let bytes = Scene::after(n_tools, 20_000).engine.snapshot().unwrap();
    bencher
        .counter(divan::counter::BytesCount::new(bytes.len()))
        .bench(|| {
            let mut engine = Engine::new(Method::Mix, 30.0);
            engine.restore(Engine::FORMAT, &bytes).unwrap();
            engine
        });
}
