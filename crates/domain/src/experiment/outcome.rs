//! Outcomes of experiments: the trials of each unit, reduced to one value.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::plan::{AssignmentUnit, ExperimentMetric};
use crate::id::{SessionId, WorkSessionId};
use crate::num::to_f64;
use crate::privacy::principal::Principal;

/// The outcome of a recommendation that was made in an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecommendationOutcome {
    /// The name of the arm.
    pub arm: String,
    /// The principal that requested it.
    pub principal: Principal,
    /// The session that requested it.
    pub session: Option<SessionId>,
    /// The work session of the session, if one was derived.
    pub work_session: Option<WorkSessionId>,
    /// Time at which it was shown.
    pub shown_at: Timestamp,
    /// Time of the first selection of one of its tools.
    pub selected_at: Option<Timestamp>,
    /// Time of the first answer without error to a call of a selected tool.
    pub succeeded_at: Option<Timestamp>,
}

impl RecommendationOutcome {
    /// Returns the trial of this recommendation for a metric; `None` if it belongs to no unit of
    /// this kind. Without a derived work session, the session is the unit.
    #[must_use]
    pub fn trial(&self, unit: AssignmentUnit, metric: ExperimentMetric) -> Option<UnitTrial> {
        let name = match unit {
            AssignmentUnit::Principal => self.principal.to_string(),
            AssignmentUnit::WorkSession => {
                let derived = self.work_session.map(|id| id.to_string());
                derived.or_else(|| self.session.map(|id| id.to_string()))?
            }
        };
        Some(UnitTrial {
            arm: self.arm.clone(),
            unit: name,
            at: self.shown_at,
            succeeded_at: match metric {
                ExperimentMetric::ClickThrough => self.selected_at,
                ExperimentMetric::Success
                | ExperimentMetric::CallSuccess
                | ExperimentMetric::Coverage => self.succeeded_at,
            },
        })
    }
}

/// One event that succeeded or failed: a recommendation, or a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTrial {
    /// The name of the arm.
    pub arm: String,
    /// The unit, a principal or a work session, by the text that identifies it.
    pub unit: String,
    /// Start of the trial.
    pub at: Timestamp,
    /// Time of the success; `None` if it failed or is still open.
    pub succeeded_at: Option<Timestamp>,
}

/// The results of the units of an arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmOutcome {
    /// The values of the units whose window has ended, from 0 to 1, in the order of these ends.
    pub values: Vec<f64>,
    /// Number of units whose window has not ended.
    pub n_open: usize,
    /// Number of trials of all units, in and after their windows.
    pub n_trials: usize,
    /// Number of these trials that succeeded, at any time.
    pub n_succeeded: usize,
}

impl ArmOutcome {
    /// Returns the mean of the values; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let n = self.values.len();
        (n > 0).then(|| self.values.iter().sum::<f64>() / to_f64(n))
    }
}

/// The trials of a unit so far.
#[derive(Debug)]
struct UnitProgress<'a> {
    arm: &'a str,
    began_at: Timestamp,
    n: u32,
    n_succeeded: u32,
}

/// Returns the results of the units at the time `now`, by names of arms.
///
/// Repeated trials of one unit are not independent, so each unit counts once. Its value is the
/// share of successes among the trials that began within `window` of its first trial; the success
/// must be in the same window. The value is final when the window ends. A unit belongs to the arm
/// of its first trial; its trials in other arms are ignored.
#[must_use]
pub fn arm_outcomes(
    trials: &[UnitTrial],
    window: Duration,
    now: Timestamp,
) -> BTreeMap<String, ArmOutcome> {
    let mut trials: Vec<&UnitTrial> = trials.iter().collect();
    trials.sort_by(|one, other| (one.at, &one.unit).cmp(&(other.at, &other.unit)));
    let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
    let end_of = |began_at: Timestamp| began_at.checked_add(window).unwrap_or(Timestamp::MAX);
    let mut units: BTreeMap<&str, UnitProgress<'_>> = BTreeMap::new();
    let mut arms: BTreeMap<String, ArmOutcome> = BTreeMap::new();
    for trial in trials {
        let unit = units.entry(&trial.unit).or_insert_with(|| UnitProgress {
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
    // Windows have equal lengths, so the order by beginning is the order by end.
    let mut units: Vec<(&str, UnitProgress<'_>)> = units.into_iter().collect();
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

    fn trial(arm: &str, unit: &str, began: i64, succeeded: Option<i64>) -> UnitTrial {
        UnitTrial {
            arm: arm.into(),
            unit: unit.into(),
            at: at(began),
            succeeded_at: succeeded.map(at),
        }
    }

    #[test]
    fn a_unit_counts_once_with_the_trials_of_its_window() {
        let trials = [
            trial("a", "x", 0, Some(10)),
            trial("a", "x", 50, None),
            // Succeeds after the window: not in the value, but in the number of trials.
            trial("a", "x", 60, Some(101)),
            trial("a", "x", 100, Some(100)),
            trial("a", "y", 20, Some(30)),
            trial("b", "z", 300, None),
        ];
        let arms = arm_outcomes(&trials, WINDOW, at(250));
        let a = &arms["a"];
        assert_eq!((a.n_trials, a.n_succeeded, a.n_open), (5, 4, 0));
        assert_eq!(a.values.len(), 2);
        assert!((a.values[0] - 1.0 / 3.0).abs() < 1e-12, "{a:?}");
        assert!((a.values[1] - 1.0).abs() < 1e-12, "{a:?}");
        assert_eq!((arms["b"].values.len(), arms["b"].n_open), (0, 1));
        assert_eq!(arms["b"].mean(), None);
        // The value is known from the end of the window on, inclusive.
        assert_eq!(arm_outcomes(&trials, WINDOW, at(399))["b"].n_open, 1);
        assert_eq!(arm_outcomes(&trials, WINDOW, at(400))["b"].values, [0.0]);
    }

    #[test]
    fn a_unit_stays_in_the_arm_of_its_first_trial() {
        let trials = [trial("b", "x", 5, Some(6)), trial("a", "x", 1, None)];
        let arms = arm_outcomes(&trials, WINDOW, at(500));
        assert_eq!(arms["a"].values, [0.0]);
        assert!(!arms.contains_key("b"));
    }

    proptest! {
        #[test]
        fn settled_values_are_not_changed_by_later_trials(
            said in proptest::collection::vec((0..5_u8, 0..1_000_i64, proptest::option::of(0..300_i64)), 1..60),
            (early, late) in (0..2_000_i64, 0..2_000_i64),
        ) {
            let all: Vec<UnitTrial> = (said.iter())
                .map(|(unit, began, after)| {
                    trial("a", &unit.to_string(), *began, after.map(|after| began + after))
                })
                .collect();
            let (early, late) = (early.min(late), early.max(late));
            // Trials and successes known at a time, without later ones.
            let known = |now: i64| -> Vec<UnitTrial> {
                let known = all.iter().filter(|trial| trial.at <= at(now)).cloned();
                known
                    .map(|mut trial| {
                        trial.succeeded_at = trial.succeeded_at.filter(|then| *then <= at(now));
                        trial
                    })
                    .collect()
            };
            let values = |now: i64| {
                let arms = arm_outcomes(&known(now), WINDOW, at(now));
                arms.get("a").map(|arm| arm.values.clone()).unwrap_or_default()
            };
            let (before, after) = (values(early), values(late));
            prop_assert!(after.starts_with(&before), "{before:?} {after:?}");
            prop_assert!(after.iter().all(|value| (0.0..=1.0).contains(value)));
        }
    }
}
