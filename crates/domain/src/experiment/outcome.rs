//! What units did, as one value for each of them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::plan::{Metric, Unit};
use crate::id::{SessionId, WorkSessionId};
use crate::principal::Principal;

/// What became of a recommendation that was made in an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecommendationOutcome {
    /// The name of the arm.
    pub arm: String,
    /// Who asked.
    pub principal: Principal,
    /// The session that asked.
    pub session: Option<SessionId>,
    /// The work session that it belongs to, where one was derived.
    pub work_session: Option<WorkSessionId>,
    /// When it was shown.
    pub shown_at: Timestamp,
    /// When one of its tools was selected first.
    pub selected_at: Option<Timestamp>,
    /// When a call of a tool that was selected was answered with a result that is no error.
    pub succeeded_at: Option<Timestamp>,
}

impl RecommendationOutcome {
    /// Returns the trial that the recommendation is for a metric; `None` of one that belongs to no
    /// such unit. Where no work session was derived, a session is one.
    #[must_use]
    pub fn trial(&self, unit: Unit, metric: Metric) -> Option<Trial> {
        let name = match unit {
            Unit::Principal => self.principal.to_string(),
            Unit::WorkSession => {
                let derived = self.work_session.map(|id| id.to_string());
                derived.or_else(|| self.session.map(|id| id.to_string()))?
            }
        };
        Some(Trial {
            arm: self.arm.clone(),
            unit: name,
            at: self.shown_at,
            succeeded_at: match metric {
                Metric::ClickThrough => self.selected_at,
                Metric::Success | Metric::CallSuccess | Metric::Coverage => self.succeeded_at,
            },
        })
    }
}

/// One thing that went well or not: a recommendation, or a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The name of the arm.
    pub arm: String,
    /// Whose it is: a principal or a work session, by the text that identifies it.
    pub unit: String,
    /// When it began.
    pub at: Timestamp,
    /// When it went well; `None` where it did not, or not yet.
    pub succeeded_at: Option<Timestamp>,
}

/// What the units of an arm came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// The values of the units whose window is over, from 0 to 1, in the order in which it ended.
    pub values: Vec<f64>,
    /// How many units are still in their window.
    pub n_open: usize,
    /// How many trials there were, of all units and at any time.
    pub n_trials: usize,
    /// How many of them went well, at any time.
    pub n_succeeded: usize,
}

impl Settled {
    /// Returns the mean of the values; `None` where there is none.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of units are far below 2^52"
    )]
    pub fn mean(&self) -> Option<f64> {
        let n = self.values.len();
        (n > 0).then(|| self.values.iter().sum::<f64>() / n as f64)
    }
}

/// What a unit did so far.
#[derive(Debug)]
struct Progress<'a> {
    arm: &'a str,
    began_at: Timestamp,
    n: u32,
    n_succeeded: u32,
}

/// Returns what the units came to at a moment, by the names of their arms.
///
/// What a unit does again and again is not independent, so each counts once: with the share of what
/// it began within `window` of its first trial that went well within the same time. That share is
/// known when the window is over and does not change any more, whenever it is looked at. A unit
/// belongs to the arm of its first trial; what it did in another one is left out.
#[must_use]
pub fn settled(trials: &[Trial], window: Duration, now: Timestamp) -> BTreeMap<String, Settled> {
    let mut trials: Vec<&Trial> = trials.iter().collect();
    trials.sort_by(|one, other| (one.at, &one.unit).cmp(&(other.at, &other.unit)));
    let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
    let end_of = |began_at: Timestamp| began_at.checked_add(window).unwrap_or(Timestamp::MAX);
    let mut units: BTreeMap<&str, Progress<'_>> = BTreeMap::new();
    let mut arms: BTreeMap<String, Settled> = BTreeMap::new();
    for trial in trials {
        let unit = units.entry(&trial.unit).or_insert_with(|| Progress {
            arm: &trial.arm,
            began_at: trial.at,
            n: 0,
            n_succeeded: 0,
        });
        if unit.arm != trial.arm {
            continue;
        }
        let arm = arms.entry(trial.arm.clone()).or_default();
        arm.n_trials += 1;
        arm.n_succeeded += usize::from(trial.succeeded_at.is_some());
        let end = end_of(unit.began_at);
        if trial.at < end {
            unit.n = unit.n.saturating_add(1);
            let succeeded = trial.succeeded_at.is_some_and(|at| at < end);
            unit.n_succeeded = unit.n_succeeded.saturating_add(u32::from(succeeded));
        }
    }
    // By the end of the window, which all have at the same distance from their beginning.
    let mut units: Vec<(&str, Progress<'_>)> = units.into_iter().collect();
    units.sort_by_key(|(name, unit)| (unit.began_at, *name));
    for (_, unit) in units {
        let arm = arms.entry(unit.arm.to_owned()).or_default();
        if end_of(unit.began_at) <= now {
            let value = f64::from(unit.n_succeeded) / f64::from(unit.n.max(1));
            arm.values.push(value);
        } else {
            arm.n_open += 1;
        }
    }
    arms
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(100);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn trial(arm: &str, unit: &str, began: i64, succeeded: Option<i64>) -> Trial {
        Trial {
            arm: arm.into(),
            unit: unit.into(),
            at: at(began),
            succeeded_at: succeeded.map(at),
        }
    }

    #[test]
    fn a_unit_counts_once_with_what_it_did_in_its_window() {
        let trials = [
            trial("a", "x", 0, Some(10)),
            trial("a", "x", 50, None),
            // Too late to count, and a trial all the same.
            trial("a", "x", 60, Some(101)),
            trial("a", "x", 100, Some(100)),
            trial("a", "y", 20, Some(30)),
            trial("b", "z", 300, None),
        ];
        let arms = settled(&trials, WINDOW, at(250));
        let a = &arms["a"];
        assert_eq!((a.n_trials, a.n_succeeded, a.n_open), (5, 4, 0));
        assert_eq!(a.values.len(), 2);
        assert!((a.values[0] - 1.0 / 3.0).abs() < 1e-12, "{a:?}");
        assert!((a.values[1] - 1.0).abs() < 1e-12, "{a:?}");
        assert_eq!((arms["b"].values.len(), arms["b"].n_open), (0, 1));
        assert_eq!(arms["b"].mean(), None);
        // The moment at which the window ends is the first at which the value is known.
        assert_eq!(settled(&trials, WINDOW, at(399))["b"].n_open, 1);
        assert_eq!(settled(&trials, WINDOW, at(400))["b"].values, [0.0]);
    }

    #[test]
    fn a_unit_stays_in_the_arm_of_its_first_trial() {
        let trials = [trial("b", "x", 5, Some(6)), trial("a", "x", 1, None)];
        let arms = settled(&trials, WINDOW, at(500));
        assert_eq!(arms["a"].values, [0.0]);
        assert!(!arms.contains_key("b"));
    }

    proptest! {
        #[test]
        fn what_is_settled_stays_as_it_is(
            said in proptest::collection::vec((0..5_u8, 0..1_000_i64, proptest::option::of(0..300_i64)), 1..60),
            (early, late) in (0..2_000_i64, 0..2_000_i64),
        ) {
            let all: Vec<Trial> = (said.iter())
                .map(|(unit, began, after)| {
                    trial("a", &unit.to_string(), *began, after.map(|after| began + after))
                })
                .collect();
            let (early, late) = (early.min(late), early.max(late));
            // What is known at a moment: neither trials nor successes of later ones.
            let known = |now: i64| -> Vec<Trial> {
                let known = all.iter().filter(|trial| trial.at <= at(now)).cloned();
                known
                    .map(|mut trial| {
                        trial.succeeded_at = trial.succeeded_at.filter(|then| *then <= at(now));
                        trial
                    })
                    .collect()
            };
            let values = |now: i64| {
                let arms = settled(&known(now), WINDOW, at(now));
                arms.get("a").map(|arm| arm.values.clone()).unwrap_or_default()
            };
            let (before, after) = (values(early), values(late));
            prop_assert!(after.starts_with(&before), "{before:?} {after:?}");
            prop_assert!(after.iter().all(|value| (0.0..=1.0).contains(value)));
        }
    }
}
