//! The clauses of [`Predictor`](crate::predictor::Predictor) and
//! [`Learner`](crate::predictor::Learner).

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{
    ClientKey, LearningScope, SessionHistory, SnapshotError, TextEvidence, ToolIx,
};
use riglm_domain::privacy::principal::Principal;

use crate::predictor::Learner;

const NAMES: [&str; 5] = ["read", "write", "list", "drop", "\u{0}\u{202e}"];

fn tools(predictor: &mut dyn Learner) -> Vec<ToolIx> {
    let slots = NAMES.map(|name| {
        let tool = ToolRef {
            upstream: UpstreamName::parse("notes").unwrap(),
            tool: name.into(),
        };
        predictor.intern(&tool).unwrap()
    });
    slots.to_vec()
}

fn session_history() -> SessionHistory {
    let mut trail = SessionHistory::new(ClientKey::new(&Principal::local(), "client"));
    trail.set_time(Timestamp::constant(1_800_000_000, 0));
    trail.set_text(TextEvidence::new("read the list"));
    trail
}

// Trains the predictor with a few sessions.
fn train(mut predictor: Box<dyn Learner>) -> (Box<dyn Learner>, Vec<ToolIx>) {
    let tools = tools(&mut *predictor);
    for n in 0..6 {
        let mut trail = session_history();
        for called in [2, 0, 0, n % 5] {
            predictor.learn(&mut trail, &tools, tools[called], LearningScope::Everything);
        }
        predictor.end_session(&trail);
    }
    (predictor, tools)
}

/// Probabilities are finite, not negative and sum to one over the candidates, the most likely
/// first. A repeated candidate counts once, and without candidates the prediction is empty.
pub fn probabilities_sum_to_one(make: &dyn Fn() -> Box<dyn Learner>) {
    let (predictor, tools) = train(make());
    for trail in [
        session_history(),
        SessionHistory::new(ClientKey::new(&Principal::local(), "")),
    ] {
        for n in 1..=tools.len() {
            let next = predictor.predict(&trail, &tools[..n]);
            let later = predictor.predict_later(&trail, &tools[..n], &next);
            for forecast in [next, later] {
                let ranked = forecast.ranking();
                assert_eq!(ranked.len(), n);
                let sum: f64 = ranked.iter().map(|(_, p)| p).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{}: {sum}", predictor.name());
                assert!(ranked.iter().all(|(_, p)| p.is_finite() && *p >= 0.0));
                assert!(ranked.is_sorted_by(|a, b| a.1 > b.1 || (a.1 >= b.1 && a.0 < b.0)));
            }
        }
        let twice = [tools.as_slice(), tools.as_slice()].concat();
        assert_eq!(
            predictor.predict(&trail, &twice),
            predictor.predict(&trail, &tools)
        );
        assert!(predictor.predict(&trail, &[]).ranking().is_empty());
    }
}

/// Predicting and explaining change nothing, and an explanation has the probability of the
/// prediction.
pub fn predicting_changes_nothing(make: &dyn Fn() -> Box<dyn Learner>) {
    let (predictor, tools) = train(make());
    let before = predictor.snapshot().unwrap();
    let forecast = predictor.predict(&session_history(), &tools);
    let explained = predictor.explain(&session_history(), &tools, &tools);
    assert_eq!(explained.len(), tools.len());
    for (tool, explained) in tools.iter().zip(explained) {
        let explained = explained.unwrap();
        assert!((explained.probability() - forecast.probability(*tool)).abs() < 1e-9);
        assert!((explained.score().value() - explained.probability().ln()).abs() < 1e-6);
        assert!(!explained.sentence().is_empty());
    }
    let none = predictor.explain(&session_history(), &tools[1..], &tools[..1]);
    assert_eq!(none, [None]);
    assert_eq!(predictor.predict(&session_history(), &tools), forecast);
    assert_eq!(predictor.snapshot().unwrap(), before);
}

/// After a snapshot and a restart, predictions continue as if there had been no pause.
pub fn learning_goes_on_after_a_restart(make: &dyn Fn() -> Box<dyn Learner>) {
    let (mut one, tools) = train(make());
    let mut other = make();
    other
        .restore(one.format(), &one.snapshot().unwrap())
        .unwrap();
    assert_eq!(other.vocabulary(), one.vocabulary());
    let (mut trail_of_one, mut trail_of_other) = (session_history(), session_history());
    for called in [3, 1, 4] {
        one.learn(
            &mut trail_of_one,
            &tools,
            tools[called],
            LearningScope::Everything,
        );
        other.learn(
            &mut trail_of_other,
            &tools,
            tools[called],
            LearningScope::Everything,
        );
        assert_eq!(
            other.predict(&trail_of_other, &tools),
            one.predict(&trail_of_one, &tools)
        );
    }
    let later = Timestamp::constant(1_803_000_000, 0);
    assert_eq!(one.maintain(later), other.maintain(later));
    assert_eq!(one.snapshot().unwrap(), other.snapshot().unwrap());
}

/// A snapshot in another format, or a damaged one, is refused and changes nothing.
pub fn a_bad_snapshot_is_refused(make: &dyn Fn() -> Box<dyn Learner>) {
    let (mut predictor, _) = train(make());
    let good = predictor.snapshot().unwrap();
    let refused = predictor.restore(predictor.format() + 1, &good);
    assert!(matches!(refused, Err(SnapshotError::Format { .. })));
    for length in [0, good.len() / 2, good.len() - 1] {
        let refused = predictor.restore(predictor.format(), &good[..length]);
        assert!(refused.is_err(), "{length} of {} bytes", good.len());
    }
    assert_eq!(predictor.snapshot().unwrap(), good);
}
