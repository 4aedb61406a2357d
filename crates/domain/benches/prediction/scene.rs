//! Synthetic sessions. Each uses a few servers, some tools in a habitual order and some at random.

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{
    ClientKey, Engine, Forecast, LearningScope, PredictionMethod, SessionHistory, TextEvidence,
    ToolIx,
};
use riglm_domain::privacy::principal::Principal;

const TOOLS_OF_A_SERVER: usize = 15;
const CALLS_OF_A_SESSION: usize = 30;
const SECONDS_OF_A_CALL: i64 = 30;
const WORDS: [&str; 8] = [
    "send", "report", "week", "flight", "issue", "merge", "table", "chart",
];

/// Pseudo-random numbers from a linear congruential generator, the same in every run.
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

/// An engine with endless sessions. The principals take turns. Every second session has a text, and
/// every fourth round uses another client.
#[derive(Debug)]
pub struct SyntheticSessions {
    /// The engine that predicts and learns.
    pub engine: Engine,
    /// The tools of the catalog.
    pub slots: Vec<ToolIx>,
    n_principals: usize,
    n_clients: usize,
    n_sessions: usize,
    trail: SessionHistory,
    numbers: Numbers,
    last: usize,
    at: Timestamp,
}

impl SyntheticSessions {
    /// Returns a scene without calls.
    pub fn new(
        method: PredictionMethod,
        n_tools: usize,
        n_principals: usize,
        n_clients: usize,
    ) -> Self {
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
            trail: SessionHistory::new(ClientKey::new(&Principal::local(), "")),
            numbers: Numbers(7),
            last: 0,
            at: Timestamp::from_second(1_800_000_000).unwrap(),
        };
        scene.begin();
        scene
    }

    /// Returns a scene after `n_calls` predicted and learned calls.
    pub fn after_calls(n_tools: usize, n_calls: usize) -> Self {
        let mut scene = Self::new(PredictionMethod::Mix, n_tools, 1, 1);
        for _ in 0..n_calls {
            scene.step();
        }
        scene
    }

    /// Predicts a call and learns from it.
    pub fn step(&mut self) -> Forecast {
        let called = self.next();
        let forecast = self.engine.predict(&self.trail, &self.slots);
        let lesson = LearningScope::Everything;
        (self.engine).learn(&mut self.trail, &self.slots, called, lesson);
        self.end_if_over();
        forecast
    }

    /// Learns from a call without a prediction. Only the tools of its server are candidates.
    pub fn learn(&mut self) {
        let called = self.next();
        let first = called.index() / TOOLS_OF_A_SERVER * TOOLS_OF_A_SERVER;
        let candidates = (self.slots.iter().skip(first)).take(TOOLS_OF_A_SERVER);
        let candidates: Vec<ToolIx> = candidates.copied().collect();
        let lesson = LearningScope::Everything;
        (self.engine).learn(&mut self.trail, &candidates, called, lesson);
        self.end_if_over();
    }

    /// Learns from a call without a prediction. All tools are candidates.
    pub fn learn_among_all(&mut self) {
        let called = self.next();
        let lesson = LearningScope::Everything;
        (self.engine).learn(&mut self.trail, &self.slots, called, lesson);
        self.end_if_over();
    }

    fn next(&mut self) -> ToolIx {
        self.at += jiff::SignedDuration::from_secs(SECONDS_OF_A_CALL);
        self.trail.set_time(self.at);
        let n_tools = self.slots.len();
        // Half of the calls repeat the last tool, 3 of 10 take a fixed successor on its server, and
        // the others are random.
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
        let principal = Principal::from_name(&format!("p{}", self.n_sessions % self.n_principals));
        let round = self.n_sessions / self.n_principals;
        let client = if round % 4 == 3 {
            self.n_clients - 1
        } else {
            0
        };
        self.trail = SessionHistory::new(ClientKey::new(&principal, &format!("client {client}")));
        if self.n_sessions % 2 == 1 {
            let words = (0..4).map(|_| WORDS[self.numbers.below(WORDS.len())]);
            let text: Vec<&str> = words.collect();
            let scores = (0..20).map(|at| {
                let fit = 1.0 / f64::from(1 + at);
                (self.slots[self.numbers.below(self.slots.len())], fit)
            });
            let scores: Vec<(ToolIx, f64)> = scores.collect();
            let text = TextEvidence::new(&text.join(" ")).with_scores(scores);
            self.trail.set_text(text);
        }
    }
}
