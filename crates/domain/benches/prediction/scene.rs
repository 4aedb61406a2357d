//! Made-up sessions: a few servers each, with their tools in habitual orders and some at random.

use jiff::Timestamp;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{
    Engine, Forecast, Lesson, Method, Party, Slot, TextEvidence, Trail,
};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

const TOOLS_OF_A_SERVER: usize = 15;
const CALLS_OF_A_SESSION: usize = 30;
const SECONDS_OF_A_CALL: i64 = 30;
const WORDS: [&str; 8] = [
    "send", "report", "week", "flight", "issue", "merge", "table", "chart",
];

/// Numbers that look random and are the same every time.
#[derive(Debug)]
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

/// An engine with sessions that go on for ever: of each principal in turn, every second one with
/// a text, and every fourth round with another client.
#[derive(Debug)]
pub struct Scene {
    /// What predicts and learns.
    pub engine: Engine,
    /// The tools.
    pub slots: Vec<Slot>,
    n_principals: usize,
    n_clients: usize,
    n_sessions: usize,
    trail: Trail,
    numbers: Numbers,
    last: usize,
    at: Timestamp,
}

impl Scene {
    /// Returns a scene without calls.
    pub fn new(method: Method, n_tools: usize, n_principals: usize, n_clients: usize) -> Self {
        let mut engine = Engine::new(method, 30.0);
        let tool = |number: usize| ToolRef {
            upstream: UpstreamName::parse(&format!("s{}", number / TOOLS_OF_A_SERVER)).unwrap(),
            tool: format!("tool_{number}").as_str().into(),
        };
        let slots = (0..n_tools).map(|at| engine.intern(&tool(at)).unwrap());
        let mut scene = Self {
            slots: slots.collect(),
            engine,
            n_principals,
            n_clients,
            n_sessions: 0,
            trail: Trail::new(Party::new(&Principal::local(), "")),
            numbers: Numbers(7),
            last: 0,
            at: Timestamp::from_second(1_800_000_000).unwrap(),
        };
        scene.begin();
        scene
    }

    /// Returns a scene after so many calls that were predicted and learned.
    pub fn after(n_tools: usize, n_calls: usize) -> Self {
        let mut scene = Self::new(Method::Mix, n_tools, 1, 1);
        for _ in 0..n_calls {
            scene.step();
        }
        scene
    }

    /// Predicts a call and learns from it.
    pub fn step(&mut self) -> Forecast {
        let called = self.next();
        let forecast = self.engine.predict(&self.trail, &self.slots);
        let lesson = Lesson::Everything;
        (self.engine).learn(&mut self.trail, &self.slots, called, lesson);
        self.end_if_over();
        forecast
    }

    /// Learns from a call without predicting it, as if only the tools of its server had been
    /// candidates.
    pub fn learn(&mut self) {
        let called = self.next();
        let first = called.index() / TOOLS_OF_A_SERVER * TOOLS_OF_A_SERVER;
        let candidates = (self.slots.iter().skip(first)).take(TOOLS_OF_A_SERVER);
        let candidates: Vec<Slot> = candidates.copied().collect();
        let lesson = Lesson::Everything;
        (self.engine).learn(&mut self.trail, &candidates, called, lesson);
        self.end_if_over();
    }

    /// Learns from a call without predicting it, with all tools as candidates.
    pub fn learn_among_all(&mut self) {
        let called = self.next();
        let lesson = Lesson::Everything;
        (self.engine).learn(&mut self.trail, &self.slots, called, lesson);
        self.end_if_over();
    }

    fn next(&mut self) -> Slot {
        self.at += jiff::SignedDuration::from_secs(SECONDS_OF_A_CALL);
        self.trail.set_time(self.at);
        let n_tools = self.slots.len();
        self.last = match self.numbers.below(10) {
            0..5 => self.last,
            5..8 => (self.last / TOOLS_OF_A_SERVER * TOOLS_OF_A_SERVER
                + (self.last * 7 + 3) % TOOLS_OF_A_SERVER)
                .min(n_tools - 1),
            8 => self.numbers.below(n_tools.min(60)),
            _ => self.numbers.below(n_tools),
        };
        self.slots[self.last]
    }

    fn end_if_over(&mut self) {
        if self.trail.n_calls() >= CALLS_OF_A_SESSION {
            self.engine.end_session(&self.trail);
            self.n_sessions += 1;
            self.begin();
        }
    }

    fn begin(&mut self) {
        let principal = Principal::named(&format!("p{}", self.n_sessions % self.n_principals));
        let round = self.n_sessions / self.n_principals;
        let client = if round % 4 == 3 {
            self.n_clients - 1
        } else {
            0
        };
        self.trail = Trail::new(Party::new(&principal, &format!("client {client}")));
        if self.n_sessions % 2 == 1 {
            let words = (0..4).map(|_| WORDS[self.numbers.below(WORDS.len())]);
            let text: Vec<&str> = words.collect();
            let scores = (0..20).map(|at| {
                let fit = 1.0 / f64::from(1 + at);
                (self.slots[self.numbers.below(self.slots.len())], fit)
            });
            let scores: Vec<(Slot, f64)> = scores.collect();
            let text = TextEvidence::new(&text.join(" ")).with_scores(scores);
            self.trail.set_text(text);
        }
    }
}
