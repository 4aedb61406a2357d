//! The clauses of [`Predictor`](crate::predictor::Predictor).

use jiff::Timestamp;
use riglm_domain::id::UpstreamName;
use riglm_domain::prediction::{Lesson, Party, Slot, SnapshotError, TextEvidence, Trail};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

use crate::predictor::Predictor;

const NAMES: [&str; 5] = ["read", "write", "list", "drop", "\u{0}\u{202e}"];

fn tools(predictor: &mut dyn Predictor) -> Vec<Slot> {
    let slots = NAMES.map(|name| {
        let tool = ToolRef {
            upstream: UpstreamName::parse("notes").unwrap(),
            tool: name.into(),
        };
        predictor.intern(&tool).unwrap()
    });
    slots.to_vec()
}

fn trail() -> Trail {
    let mut trail = Trail::new(Party::new(&Principal::local(), "client"));
    trail.set_time(Timestamp::constant(1_800_000_000, 0));
    trail.set_text(TextEvidence::new("read the list"));
    trail
}

/// Plays a few sessions.
fn taught(mut predictor: Box<dyn Predictor>) -> (Box<dyn Predictor>, Vec<Slot>) {
    let tools = tools(&mut *predictor);
    for n in 0..6 {
        let mut trail = trail();
        for called in [2, 0, 0, n % 5] {
            predictor.learn(&mut trail, &tools, tools[called], Lesson::Everything);
        }
        predictor.end_session(&trail);
    }
    (predictor, tools)
}

/// Probabilities are finite, not negative and sum to one over the candidates, the most likely
/// first; a candidate that stands there twice counts once, and without any there is nothing.
pub fn probabilities_sum_to_one(make: &dyn Fn() -> Box<dyn Predictor>) {
    let (predictor, tools) = taught(make());
    for trail in [trail(), Trail::new(Party::new(&Principal::local(), ""))] {
        for n in 1..=tools.len() {
            let forecast = predictor.predict(&trail, &tools[..n]);
            let ranked = forecast.ranked();
            assert_eq!(ranked.len(), n);
            let sum: f64 = ranked.iter().map(|(_, p)| p).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{}: {sum}", predictor.name());
            assert!(ranked.iter().all(|(_, p)| p.is_finite() && *p >= 0.0));
            assert!(ranked.is_sorted_by(|a, b| a.1 > b.1 || (a.1 >= b.1 && a.0 < b.0)));
        }
        let twice = [tools.as_slice(), tools.as_slice()].concat();
        assert_eq!(
            predictor.predict(&trail, &twice),
            predictor.predict(&trail, &tools)
        );
        assert!(predictor.predict(&trail, &[]).ranked().is_empty());
    }
}

/// Predicting and explaining change nothing, and an explanation has the probability of the
/// forecast.
pub fn predicting_changes_nothing(make: &dyn Fn() -> Box<dyn Predictor>) {
    let (predictor, tools) = taught(make());
    let before = predictor.snapshot().unwrap();
    let forecast = predictor.predict(&trail(), &tools);
    let explained = predictor.explain(&trail(), &tools, &tools);
    assert_eq!(explained.len(), tools.len());
    for (tool, explained) in tools.iter().zip(explained) {
        let explained = explained.unwrap();
        assert!((explained.probability - forecast.probability(*tool)).abs() < 1e-9);
        assert!((explained.score.value - explained.probability.ln()).abs() < 1e-6);
        assert!(!explained.sentence.is_empty());
    }
    let none = predictor.explain(&trail(), &tools[1..], &tools[..1]);
    assert_eq!(none, [None]);
    assert_eq!(predictor.predict(&trail(), &tools), forecast);
    assert_eq!(predictor.snapshot().unwrap(), before);
}

/// After a snapshot and a restart everything goes on as if there had been no pause.
pub fn learning_goes_on_after_a_restart(make: &dyn Fn() -> Box<dyn Predictor>) {
    let (mut one, tools) = taught(make());
    let mut other = make();
    other
        .restore(one.format(), &one.snapshot().unwrap())
        .unwrap();
    assert_eq!(other.vocabulary(), one.vocabulary());
    let (mut trail_of_one, mut trail_of_other) = (trail(), trail());
    for called in [3, 1, 4] {
        one.learn(&mut trail_of_one, &tools, tools[called], Lesson::Everything);
        other.learn(
            &mut trail_of_other,
            &tools,
            tools[called],
            Lesson::Everything,
        );
        assert_eq!(
            other.predict(&trail_of_other, &tools),
            one.predict(&trail_of_one, &tools)
        );
    }
    let later = Timestamp::constant(1_803_000_000, 0);
    assert_eq!(one.upkeep(later), other.upkeep(later));
    assert_eq!(one.snapshot().unwrap(), other.snapshot().unwrap());
}

/// A snapshot in another format, or one that is damaged, is refused and changes nothing.
pub fn a_bad_snapshot_is_refused(make: &dyn Fn() -> Box<dyn Predictor>) {
    let (mut predictor, _) = taught(make());
    let good = predictor.snapshot().unwrap();
    let refused = predictor.restore(predictor.format() + 1, &good);
    assert!(matches!(refused, Err(SnapshotError::Format { .. })));
    for length in [0, good.len() / 2, good.len() - 1] {
        let refused = predictor.restore(predictor.format(), &good[..length]);
        assert!(refused.is_err(), "{length} of {} bytes", good.len());
    }
    assert_eq!(predictor.snapshot().unwrap(), good);
}
