//! What predicting the next tool and learning from a call cost, and what snapshots do.
//!
//! `cargo bench -p riglm-domain --bench prediction`
//!
//! The calls are those of made-up sessions: a few servers each, with their tools in habitual orders
//! and some at random.
#![expect(clippy::unwrap_used, reason = "a measurement may fail")]

use divan::Bencher;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{Engine, Lesson, Method, Party, Slot, Trail};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

const N_TOOLS: [usize; 3] = [50, 500, 2_000];
const TOOLS_OF_A_SERVER: usize = 15;
const CALLS_OF_A_SESSION: usize = 30;

fn main() {
    divan::main();
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// An engine with sessions that go on for ever.
struct Scene {
    engine: Engine,
    slots: Vec<Slot>,
    trail: Trail,
    numbers: Numbers,
    last: usize,
}

fn trail() -> Trail {
    Trail::new(Party::new(&Principal::local(), "bench"))
}

impl Scene {
    fn new(n_tools: usize) -> Self {
        let mut engine = Engine::new(Method::Mix, 30.0);
        let tool = |number: usize| ToolRef {
            upstream: UpstreamName::parse(&format!("s{}", number / TOOLS_OF_A_SERVER)).unwrap(),
            tool: format!("tool_{number}").as_str().into(),
        };
        let slots = (0..n_tools).map(|at| engine.intern(&tool(at)).unwrap());
        let slots: Vec<Slot> = slots.collect();
        Self {
            engine,
            slots,
            trail: trail(),
            numbers: Numbers(7),
            last: 0,
        }
    }

    /// Returns the position of the tool that is called next.
    fn next(&mut self) -> usize {
        let n_tools = self.slots.len();
        self.last = match self.numbers.below(10) {
            0..5 => self.last,
            5..8 => (self.last / TOOLS_OF_A_SERVER * TOOLS_OF_A_SERVER
                + (self.last * 7 + 3) % TOOLS_OF_A_SERVER)
                .min(n_tools - 1),
            8 => self.numbers.below(n_tools.min(60)),
            _ => self.numbers.below(n_tools),
        };
        self.last
    }

    /// Predicts a call and learns from it.
    fn step(&mut self) {
        let at = self.next();
        let called = self.slots[at];
        divan::black_box(self.engine.predict(&self.trail, &self.slots));
        let lesson = Lesson::Everything;
        self.engine
            .learn(&mut self.trail, &self.slots, called, lesson);
        if self.trail.n_calls() >= CALLS_OF_A_SESSION {
            self.engine.end_session(&self.trail);
            self.trail = trail();
        }
    }

    fn after(n_tools: usize, n_calls: usize) -> Self {
        let mut scene = Self::new(n_tools);
        for _ in 0..n_calls {
            scene.step();
        }
        scene
    }
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
