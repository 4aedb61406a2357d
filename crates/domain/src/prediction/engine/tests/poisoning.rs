//! The influence of one principal on the predictions for others.

use super::*;

const N_TOOLS: usize = 24;
const N_ATTACKS: usize = 100_000;

/// Principals with different habits on the same tools, with `n_sessions` sessions each.
fn honest_engine(n_people: u64, n_sessions: u64) -> (Engine, Vec<ToolIx>) {
    let (mut engine, slots) = engine(N_TOOLS);
    let mut random = 1_u64;
    for round in 0..n_sessions {
        for who in 0..n_people {
            let calls: Vec<usize> = (0..12)
                .map(|_| {
                    random = crate::prediction::numeric::mix_hash(random, round + who);
                    let (a, b) = (random % 14, (random >> 32) % 14);
                    usize::try_from(a.min(b) + who % 3).unwrap()
                })
                .collect();
            play(&mut engine, &slots, &format!("p{who}"), &calls);
        }
    }
    (engine, slots)
}

fn top(engine: &Engine, history: &SessionHistory, slots: &[ToolIx], n: usize) -> Vec<ToolIx> {
    let forecast = engine.predict(history, slots);
    forecast
        .ranking()
        .iter()
        .take(n)
        .map(|(slot, _)| *slot)
        .collect()
}

/// Calls two tools in turn, in one session and in many.
fn attack(engine: &mut Engine, slots: &[ToolIx], lesson: LearningScope) {
    let mut history = SessionHistory::new(party("attacker"));
    for call in 0..N_ATTACKS {
        if call % 1_000 == 999 && call < N_ATTACKS / 2 {
            engine.end_session(&history);
            history = SessionHistory::new(party("attacker"));
        }
        let slot = slots[N_TOOLS - 1 - call % 2];
        // The mixers of a principal learn from its own calls only; some calls are enough to show
        // that.
        if call < 1_000 {
            engine.learn(&mut history, slots, slot, lesson);
        } else {
            let state = &mut engine.state;
            (state.scopes).learn(&history, slot, &state.vocabulary, state.aging.weight());
            history.push(slot);
        }
    }
    engine.end_session(&history);
}

const STARTS: [&[usize]; 4] = [&[], &[1], &[4, 2], &[3, 3, 7, 1]];

#[test]
fn a_principal_cannot_change_the_top_ten_of_others() {
    let (mut engine, slots) = honest_engine(3, 45);
    let tops = |engine: &Engine| -> Vec<Vec<ToolIx>> {
        let people = (0..3).flat_map(|who| STARTS.map(|start| (format!("p{who}"), start)));
        people
            .map(|(who, start)| top(engine, &history(&slots, &who, start), &slots, 10))
            .collect()
    };
    let before = tops(&engine);
    attack(&mut engine, &slots, LearningScope::Everything);
    assert_eq!(before, tops(&engine));
}

#[test]
fn a_principal_moves_shared_ranks_by_at_most_one() {
    let (mut engine, slots) = honest_engine(10, 6);
    let strangers = STARTS.map(|start| history(&slots, "stranger", start));
    let shared: Vec<Vec<ToolIx>> = (strangers.iter())
        .map(|history| top(&engine, history, &slots, 5))
        .collect();
    attack(&mut engine, &slots, LearningScope::Everything);
    for (history, best) in strangers.iter().zip(shared) {
        let forecast = engine.predict(history, &slots);
        for (place, slot) in (1..).zip(best) {
            let now = forecast.rank(slot).unwrap();
            assert!(now.abs_diff(place) <= 1, "{history:?}: {place} -> {now}");
        }
    }
}
