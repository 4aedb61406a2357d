//! Predictions with the advice of a predictor outside of the engine.

use super::*;
use crate::prediction::Advice;

/// Plays sessions whose calls follow no rule that the engine could learn. Before each call, an
/// adviser names the tool that is called next in `n_right` of 10 cases. Returns the engine, the
/// tools, and the mean probability of the called tools in the last half.
fn advised(method: PredictionMethod, n_right: u32) -> (Engine, Vec<ToolIx>, f64) {
    let mut engine = Engine::new(method, 30.0);
    let slots: Vec<ToolIx> = (0..12)
        .map(|n| engine.intern(&tool(n % 3, &format!("tool_{n}"))).unwrap())
        .collect();
    let mut state = 1_u64;
    let mut random = |n: u64| {
        // A linear congruential generator (Knuth).
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((state >> 33) % n).unwrap()
    };
    let mut sum = 0.0;
    let n_sessions = 60;
    for session in 0..n_sessions {
        let mut history = SessionHistory::new(party("a"));
        for _ in 0..6 {
            let called = random(12);
            let named = if random(10) < n_right as usize {
                called
            } else {
                random(12)
            };
            history.set_advice(Advice::new([(slots[named], 1.0)]));
            if session >= n_sessions / 2 {
                sum += engine.predict(&history, &slots).probability(slots[called]);
            }
            engine.learn(
                &mut history,
                &slots,
                slots[called],
                LearningScope::Everything,
            );
            assert_eq!(history.advice(), None);
        }
        engine.end_session(&history);
    }
    (engine, slots, sum / f64::from(n_sessions * 3))
}

#[test]
fn good_advice_gets_weight_and_bad_advice_loses_it() {
    let (.., good) = advised(PredictionMethod::Mix, 9);
    let (.., bad) = advised(PredictionMethod::Mix, 0);
    // One of twelve tools by chance is 0.083.
    assert!(good > 0.4, "{good}");
    assert!(bad > 0.05, "{bad}");
    // Alone, bad advice is believed.
    let (.., alone) = advised(PredictionMethod::Advice, 0);
    assert!(alone < 0.5 * bad + 0.05, "{alone}");
}

#[test]
fn advice_alone_replaces_the_mix_and_rules_no_tool_out() {
    let (engine, slots, _) = advised(PredictionMethod::Advice, 5);
    let mut history = history(&slots, "a", &[1]);
    let mix = engine.predict(&history, &slots);
    let advice = Advice::new([(slots[4], 3.0), (slots[5], 1.0)]).unwrap();
    history.set_advice(Some(advice.with_reasons([(slots[4], "said so".into())])));
    let forecast = engine.predict(&history, &slots);
    assert_ne!(forecast, mix);
    assert!((forecast.probability(slots[4]) - 0.75).abs() < 0.01);
    assert!(forecast.ranking().iter().all(|(_, p)| *p > 0.0));
    let explained = engine.explain_each(&history, &slots, &slots[4..6]);
    let sentence = |at: usize| explained[at].as_ref().unwrap().sentence().to_owned();
    assert_eq!(sentence(0), "said so");
    assert_eq!(sentence(1), "the external predictor finds it likely");
}

#[test]
fn an_engine_without_advice_predicts_as_if_the_expert_did_not_exist() {
    let without: Vec<Expert> = (Expert::ALL.iter().copied())
        .filter(|expert| *expert != Expert::External)
        .collect();
    let (mut one, slots) = engine(9);
    let mut other = one.clone().with_experts(ExpertSet::of(&without));
    for calls in [[0, 4, 4, 8], [1, 4, 7, 8], [0, 4, 8, 8]] {
        play(&mut one, &slots, "a", &calls);
        play(&mut other, &slots, "a", &calls);
    }
    let after = history(&slots, "a", &[0, 4]);
    assert_eq!(one.predict(&after, &slots), other.predict(&after, &slots));
}

#[test]
fn counts_follow_the_situation() {
    let (mut engine, slots) = engine(6);
    for _ in 0..3 {
        play(&mut engine, &slots, "a", &[0, 1, 2]);
    }
    let counts = engine.counts(&history(&slots, "a", &[0, 1]), &slots[..4]);
    let near = |count: f64, expected: f64| assert!((count - expected).abs() < 1e-3, "{count}");
    near(counts[0].calls, 3.0);
    near(counts[0].first_calls, 3.0);
    near(counts[2].after_last, 3.0);
    near(counts[2].after_last_two, 3.0);
    near(counts[1].after_last, 0.0);
    assert_eq!(counts[3], crate::prediction::ToolCounts::default());
}
