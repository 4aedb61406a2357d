mod external;
mod laws;
mod poisoning;

use super::*;
use crate::id::UpstreamName;
use crate::prediction::ScoreTerm;
use crate::prediction::session_history::ClientKey;
use crate::privacy::principal::Principal;

fn tool(server: usize, name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse(&format!("s{server}")).unwrap(),
        tool: name.into(),
    }
}

fn party(principal: &str) -> ClientKey {
    ClientKey::new(&Principal::from_name(principal), "client")
}

/// An engine that knows `n_tools` tools on three servers.
fn engine(n_tools: usize) -> (Engine, Vec<ToolIx>) {
    let mut engine = Engine::new(PredictionMethod::Mix, 30.0);
    let slots = (0..n_tools)
        .map(|n| engine.intern(&tool(n % 3, &format!("tool_{n}"))).unwrap())
        .collect();
    (engine, slots)
}

fn play(engine: &mut Engine, slots: &[ToolIx], who: &str, calls: &[usize]) {
    let mut history = SessionHistory::new(party(who));
    for call in calls {
        engine.learn(&mut history, slots, slots[*call], LearningScope::Everything);
    }
    engine.end_session(&history);
}

fn history(slots: &[ToolIx], who: &str, calls: &[usize]) -> SessionHistory {
    let mut history = SessionHistory::new(party(who));
    for call in calls {
        history.push(slots[*call]);
    }
    history
}

fn best(engine: &Engine, history: &SessionHistory, slots: &[ToolIx]) -> usize {
    engine.predict(history, slots).ranking()[0].0.index()
}

#[test]
fn a_learned_workflow_is_predicted() {
    let (mut engine, slots) = engine(12);
    for _ in 0..8 {
        play(&mut engine, &slots, "a", &[3, 4, 4, 5, 9]);
        play(&mut engine, &slots, "a", &[7, 1, 2]);
    }
    assert!([3, 7].contains(&best(&engine, &history(&slots, "a", &[]), &slots)));
    assert_eq!(best(&engine, &history(&slots, "a", &[3]), &slots), 4);
    assert_eq!(best(&engine, &history(&slots, "a", &[3, 4, 4]), &slots), 5);
    assert_eq!(best(&engine, &history(&slots, "a", &[7, 1]), &slots), 2);
    let after = history(&slots, "a", &[3]);
    assert!(engine.predict(&after, &slots).mass(3) > 0.8);
}

#[test]
fn predictions_for_new_clients_follow_calls_of_others() {
    let (mut engine, slots) = engine(12);
    for who in ["a", "b", "c"] {
        for _ in 0..4 {
            play(&mut engine, &slots, who, &[3, 4, 5]);
        }
    }
    assert_eq!(best(&engine, &history(&slots, "new", &[3]), &slots), 4);
    for _ in 0..4 {
        play(&mut engine, &slots, "other", &[3, 8, 5]);
    }
    assert_eq!(best(&engine, &history(&slots, "other", &[3]), &slots), 8);
    assert_eq!(best(&engine, &history(&slots, "a", &[3]), &slots), 4);
}

#[test]
fn a_removed_tool_is_no_candidate_and_keeps_its_history() {
    let (mut engine, slots) = engine(6);
    for _ in 0..5 {
        play(&mut engine, &slots, "a", &[1, 2]);
    }
    let after = history(&slots, "a", &[1]);
    let without: Vec<ToolIx> = slots
        .iter()
        .copied()
        .filter(|slot| slot.index() != 2)
        .collect();
    let forecast = engine.predict(&after, &without);
    assert_eq!(forecast.rank(slots[2]), None);
    assert!(forecast.probability(slots[2]).abs() < 1e-12);
    play(&mut engine, &without, "a", &[1, 0]);
    assert_eq!(best(&engine, &after, &slots), 2);
}

#[test]
fn earlier_texts_and_scores_raise_the_probability_of_tools() {
    let (mut engine, slots) = engine(9);
    let said = |text: &str| {
        let mut history = SessionHistory::new(party("a"));
        history.set_text(TextEvidence::new(text));
        history
    };
    for _ in 0..4 {
        for (text, calls) in [
            ("send the weekly report", [6, 7]),
            ("book a flight", [1, 2]),
        ] {
            let mut history = said(text);
            for call in calls {
                engine.learn(&mut history, &slots, slots[call], LearningScope::Everything);
            }
            engine.end_session(&history);
        }
    }
    assert_eq!(
        best(&engine, &said("the report of the week, send it"), &slots),
        6
    );
    assert_eq!(best(&engine, &said("a flight"), &slots), 1);
    assert!(engine.similarities(&said(""), &TextEvidence::new("a flight"))[0] > 0.9);
    let (fresh, slots) = self::engine(9);
    let mut scored = SessionHistory::new(party("a"));
    let fits = [(slots[5], 0.9), (slots[6], f64::NAN), (slots[7], 0.1)];
    scored.set_text(TextEvidence::new("x").with_scores(fits));
    assert_eq!(best(&fresh, &scored, &slots), 5);
}

#[test]
fn old_calls_count_less_than_recent_ones() {
    let at = |day: i64| Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap();
    let (mut engine, slots) = engine(6);
    for (day, calls) in [(0, [1, 2]), (0, [1, 2]), (0, [1, 2]), (150, [1, 3])] {
        let mut history = SessionHistory::new(party("a"));
        history.set_time(at(day));
        for call in calls {
            engine.learn(&mut history, &slots, slots[call], LearningScope::Everything);
        }
    }
    assert_eq!(best(&engine, &history(&slots, "a", &[1]), &slots), 3);
    let before = engine.maintain(at(150)).n_contexts();
    assert!(engine.maintain(at(2_000)).n_contexts() < before);
}

#[test]
fn learning_only_weights_does_not_change_the_counts() {
    let (mut engine, slots) = engine(6);
    play(&mut engine, &slots, "a", &[1, 2, 3]);
    let mut weights = engine.clone();
    let (mut kept, mut left) = (history(&slots, "a", &[1]), history(&slots, "a", &[1]));
    weights.learn(&mut kept, &slots, slots[5], LearningScope::Weights);
    engine.learn(&mut left, &slots, slots[5], LearningScope::Nothing);
    assert_eq!(kept, left);
    let frequency = |engine: &Engine| {
        let mut single = engine.clone();
        single.method = PredictionMethod::Expert(Expert::Frequency);
        single.predict(&kept, &slots)
    };
    assert_eq!(frequency(&weights), frequency(&engine));
    assert_ne!(
        weights.predict(&kept, &slots),
        engine.predict(&left, &slots)
    );
}

#[test]
fn an_explanation_has_a_sentence_with_counts() {
    let (mut engine, slots) = engine(9);
    for _ in 0..6 {
        play(&mut engine, &slots, "a", &[3, 4, 5]);
    }
    let after = history(&slots, "a", &[3]);
    let explained = engine.explain(&after, &slots, slots[4]).unwrap();
    assert!(
        explained.sentence().contains("`tool_3` in 6 of 6 cases"),
        "{}",
        explained.sentence()
    );
    assert!(engine.explain(&after, &slots[..3], slots[4]).is_none());
}

#[test]
fn an_explanation_names_an_earlier_call_of_the_session() {
    let (engine, slots) = engine(9);
    let after = history(&slots, "a", &[3]);
    let explained = engine.explain(&after, &slots, slots[3]).unwrap();
    assert_eq!(explained.score().parts()[0].name(), "used_again");
    assert_eq!(explained.sentence(), "the session called it before");
    let other = engine.explain(&after, &slots, slots[4]).unwrap();
    assert_eq!(other.sentence(), "no evidence for this tool");
}

#[test]
fn a_damaged_or_incompatible_snapshot_changes_nothing() {
    let (mut engine, slots) = engine(6);
    play(&mut engine, &slots, "a", &[1, 2, 3, 1]);
    let bytes = engine.snapshot().unwrap();
    let (mut other, _) = self::engine(2);
    let before = other.snapshot().unwrap();
    assert!(matches!(
        other.restore(Engine::FORMAT + 1, &bytes),
        Err(SnapshotError::Format { .. })
    ));
    assert!(matches!(
        other.restore(Engine::FORMAT, &bytes[..bytes.len() - 9]),
        Err(SnapshotError::Damaged(_))
    ));
    engine.state.memories.entry(0).or_default().learn_invalid();
    let unsound = engine.snapshot().unwrap();
    assert!(matches!(
        other.restore(Engine::FORMAT, &unsound),
        Err(SnapshotError::Unsound)
    ));
    assert_eq!(other.snapshot().unwrap(), before);
    assert!(other.restore(Engine::FORMAT, &bytes).is_ok());
}

#[test]
fn markov_predictions_depend_on_the_fifth_last_call() {
    let (mut engine, slots) = engine(12);
    engine.method = PredictionMethod::Expert(Expert::Markov);
    for _ in 0..3 {
        play(&mut engine, &slots, "a", &[9, 0, 1, 2, 3, 4, 5]);
        play(&mut engine, &slots, "a", &[9, 6, 1, 2, 3, 4, 7]);
    }
    let after = |first: usize| history(&slots, "a", &[9, first, 1, 2, 3, 4]);
    assert_eq!(best(&engine, &after(0), &slots), 5);
    assert_eq!(best(&engine, &after(6), &slots), 7);
}

#[test]
fn a_text_matching_a_tool_favours_its_server() {
    let (engine, slots) = engine(9);
    let mut said = SessionHistory::new(party("a"));
    said.set_text(TextEvidence::new("x").with_scores([(slots[5], 0.9)]));
    let forecast = engine.predict(&said, &slots);
    // The tools 2, 5 and 8 are on one server.
    assert_eq!(forecast.rank(slots[5]), Some(1));
    let least = f64::min(
        forecast.probability(slots[2]),
        forecast.probability(slots[8]),
    );
    assert!(forecast.probability(slots[0]) < 0.8 * least);
}

#[test]
fn a_mix_uses_only_its_configured_experts() {
    let party = ClientKey::new(&Principal::local(), "client");
    let of = |experts: &[Expert]| {
        let mut engine =
            Engine::new(PredictionMethod::Mix, 30.0).with_experts(ExpertSet::of(experts));
        let slots: Vec<ToolIx> = (0..4)
            .map(|n| engine.intern(&tool(0, &format!("t{n}"))).unwrap())
            .collect();
        for _ in 0..30 {
            let mut history = SessionHistory::new(party);
            for called in [3, 3, 3, 0, 1] {
                engine.learn(
                    &mut history,
                    &slots,
                    slots[called],
                    LearningScope::Everything,
                );
            }
            engine.end_session(&history);
        }
        let mut history = SessionHistory::new(party);
        history.push(slots[0]);
        let explained = engine.explain(&history, &slots, slots[1]).unwrap();
        let experts = explained
            .score()
            .parts()
            .iter()
            .find(|it| it.name() == "experts");
        let heard = experts.unwrap().parts().iter();
        let heard: Vec<&str> = heard
            .filter(|it| it.value().abs() > 1e-12)
            .map(ScoreTerm::name)
            .collect();
        (
            engine.predict(&history, &slots).rank(slots[1]),
            heard.join(" "),
        )
    };
    // The second tool follows the first one, although another one has more calls.
    assert_eq!(of(&[Expert::Markov]), (Some(1), "markov".into()));
    let (rank, heard) = of(&[Expert::Frequency]);
    assert!(rank > Some(1) && heard == "frequency", "{rank:?} {heard}");
    let (_, heard) = of(Expert::ALL);
    assert!(heard.contains("markov") && heard.contains("frequency"));
}
