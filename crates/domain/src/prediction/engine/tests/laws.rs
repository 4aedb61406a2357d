//! Properties that hold for any history.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum HistoryEvent {
    Call(usize),
    End,
    Text(String),
    Wait(u32),
    NewTool,
    Other,
}

fn event() -> impl Strategy<Value = HistoryEvent> {
    prop_oneof![
        12 => (0..8_usize).prop_map(HistoryEvent::Call),
        2 => Just(HistoryEvent::End),
        1 => "[a-c]{1,2}( [a-c]{1,2}){0,3}".prop_map(HistoryEvent::Text),
        1 => (0..40_000_000_u32).prop_map(HistoryEvent::Wait),
        1 => Just(HistoryEvent::NewTool),
        1 => Just(HistoryEvent::Other),
    ]
}

/// Alternating sessions of two principals.
struct SimulatedHistory {
    engine: Engine,
    slots: Vec<ToolIx>,
    trails: [SessionHistory; 2],
    at: i64,
}

impl SimulatedHistory {
    fn new(method: PredictionMethod) -> Self {
        let (mut engine, slots) = engine(4);
        engine.method = method;
        Self {
            engine,
            slots,
            trails: [
                SessionHistory::new(party("a")),
                SessionHistory::new(party("b")),
            ],
            at: 1_800_000_000,
        }
    }

    fn step(&mut self, event: &HistoryEvent) {
        match event {
            HistoryEvent::Call(call) => {
                let slot = self.slots[call % self.slots.len()];
                let history = &mut self.trails[0];
                self.engine
                    .learn(history, &self.slots, slot, LearningScope::Everything);
            }
            HistoryEvent::End => {
                self.engine.end_session(&self.trails[0]);
                self.trails[0] = SessionHistory::new(self.trails[0].party);
            }
            HistoryEvent::Text(text) => {
                let scores = [(self.slots[text.len() % self.slots.len()], 0.5)];
                self.trails[0].set_text(TextEvidence::new(text).with_scores(scores));
            }
            HistoryEvent::Wait(seconds) => {
                self.at += i64::from(*seconds);
                self.trails[0].set_time(Timestamp::from_second(self.at).unwrap());
            }
            HistoryEvent::NewTool => {
                let n = self.slots.len();
                let slot = self
                    .engine
                    .intern(&tool(n % 4, &format!("tool_{n}")))
                    .unwrap();
                self.slots.push(slot);
            }
            HistoryEvent::Other => self.trails.swap(0, 1),
        }
    }

    fn forecast(&self) -> Forecast {
        self.engine.predict(&self.trails[0], &self.slots)
    }
}

fn method() -> impl Strategy<Value = PredictionMethod> {
    prop_oneof![
        3 => Just(PredictionMethod::Mix),
        1 => Just(PredictionMethod::CooccurrenceWithFallback),
        2 => (0..Expert::ALL.len()).prop_map(|at| PredictionMethod::Expert(Expert::ALL[at])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn probabilities_sum_to_one_and_explanations_to_their_logarithm(
        events in proptest::collection::vec(event(), 0..60),
        method in method(),
    ) {
        let mut life = SimulatedHistory::new(method);
        for event in &events {
            life.step(event);
        }
        let forecast = life.forecast();
        let p = |(_, p): &(ToolIx, f64)| *p;
        prop_assert_eq!(forecast.ranking().len(), life.slots.len());
        prop_assert!(forecast.ranking().iter().all(|it| p(it).is_finite() && p(it) >= 0.0));
        let sum: f64 = forecast.ranking().iter().map(p).sum();
        prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
        for (slot, p) in forecast.ranking().iter().take(3) {
            let explained = life.engine.explain(&life.trails[0], &life.slots, *slot).unwrap();
            let parts: f64 = explained.score().parts().iter().map(leaves).sum();
            prop_assert!((explained.probability() - p).abs() < 1e-12);
            prop_assert!((explained.score().value() - p.ln()).abs() < 1e-9);
            prop_assert!((parts - explained.score().value()).abs() < 1e-9);
            prop_assert!(!explained.sentence().is_empty());
        }
    }

    #[test]
    fn restoring_a_snapshot_changes_no_later_prediction(
        events in proptest::collection::vec(event(), 0..60),
        half in 0..60_usize,
    ) {
        let mut whole = SimulatedHistory::new(PredictionMethod::Mix);
        let mut halves = SimulatedHistory::new(PredictionMethod::Mix);
        for (at, event) in events.iter().enumerate() {
            whole.step(event);
            halves.step(event);
            if at == half {
                let bytes = halves.engine.snapshot().unwrap();
                halves.engine = Engine::new(PredictionMethod::Mix, 1.0);
                halves.engine.restore(Engine::FORMAT, &bytes).unwrap();
            }
            prop_assert_eq!(whole.forecast(), halves.forecast());
        }
        prop_assert_eq!(whole.engine.snapshot().unwrap(), halves.engine.snapshot().unwrap());
    }

    #[test]
    fn predictions_do_not_influence_learning(
        events in proptest::collection::vec((event(), 0..4_usize), 0..40),
    ) {
        let mut silent = SimulatedHistory::new(PredictionMethod::Mix);
        let mut asked = SimulatedHistory::new(PredictionMethod::Mix);
        for (event, about) in &events {
            let n_tools = asked.slots.len();
            let candidates = if *about == 1 { &asked.slots[1..] } else { &asked.slots[..n_tools] };
            if *about > 0 {
                let _forecast = asked.engine.predict(&asked.trails[usize::from(*about == 2)], candidates);
            }
            silent.step(event);
            asked.step(event);
        }
        prop_assert_eq!(silent.engine.snapshot().unwrap(), asked.engine.snapshot().unwrap());
    }

    #[test]
    fn predictions_change_no_state_and_ignore_candidate_order(
        events in proptest::collection::vec(event(), 0..40),
        method in method(),
    ) {
        let mut life = SimulatedHistory::new(method);
        for event in &events {
            life.step(event);
        }
        let before = life.engine.snapshot().unwrap();
        let forecast = life.forecast();
        let mut candidates = life.slots.clone();
        candidates.reverse();
        candidates.push(life.slots[0]);
        candidates.push(ToolIx(u32::MAX));
        prop_assert_eq!(&forecast, &life.engine.predict(&life.trails[0], &candidates));
        prop_assert_eq!(before, life.engine.snapshot().unwrap());
        let equal = forecast.ranking().windows(2).filter(|pair| pair[0].1 <= pair[1].1);
        for pair in equal {
            prop_assert!(pair[0].0 < pair[1].0);
        }
    }
}

fn leaves(term: &crate::prediction::ScoreTerm) -> f64 {
    if term.parts().is_empty() {
        term.value()
    } else {
        term.parts().iter().map(leaves).sum()
    }
}

#[test]
fn a_trail_of_another_vocabulary_does_no_harm() {
    let (engine, slots) = engine(3);
    let mut foreign = SessionHistory::new(party("a"));
    for number in [70, 71, 70] {
        foreign.push(ToolIx(number));
    }
    let forecast = engine.predict(&foreign, &slots);
    assert_eq!(forecast.ranking().len(), 3);
    assert!((forecast.mass(3) - 1.0).abs() < 1e-9);
    assert_eq!(engine.predict(&foreign, &[]).ranking(), []);
}
