//! Metrics of the grouping of calls into work sessions, measured on calls with known sessions.

use std::collections::HashMap;
use std::hash::Hash;

use jiff::Timestamp;

use riglm_domain::num::ratio;
use riglm_domain::usage::work_session::IdleGap;

/// A call with a known session. Numbers of sessions and clients are arbitrary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedCall {
    /// Time of the call.
    pub at: Timestamp,
    /// The session that it belongs to.
    pub session: usize,
    /// The client that made it.
    pub client: usize,
}

/// Numbers of pairs of calls that were grouped together, correctly or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairMetrics {
    /// Pairs of calls of one actual session.
    pub actual: u64,
    /// Pairs of calls that were grouped together.
    pub derived: u64,
    /// Pairs of calls of one actual session that were grouped together.
    pub both: u64,
    /// Number of work sessions that were derived.
    pub n_derived: usize,
}

impl PairMetrics {
    /// Returns the share of the grouped pairs that are of one actual session; 1 without grouped
    /// pairs.
    #[must_use]
    pub fn precision(&self) -> f64 {
        share(self.both, self.derived)
    }

    /// Returns the share of the pairs of one actual session that were grouped together; 1 without
    /// such pairs.
    #[must_use]
    pub fn recall(&self) -> f64 {
        share(self.both, self.actual)
    }

    /// Returns the harmonic mean of precision and recall, `2 * both / (actual + derived)`.
    #[must_use]
    pub fn f1(&self) -> f64 {
        share(2 * self.both, self.actual + self.derived)
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        return 1.0;
    }
    ratio(part, all)
}

/// Groups calls into work sessions, and measures the result by pairs of calls. Like a proxy, it
/// sees only the client and the time of each call, one after the other.
#[must_use]
pub fn evaluate_work_sessions(calls: &[TimedCall], idle_gap: IdleGap) -> PairMetrics {
    let mut in_order: Vec<&TimedCall> = calls.iter().collect();
    in_order.sort_by_key(|call| call.at);
    // The number, the first and the last call of the current work session of each client.
    let mut going_on: HashMap<usize, (usize, Timestamp, Timestamp)> = HashMap::new();
    let mut n_derived = 0;
    let parted: Vec<(usize, usize)> = (in_order.into_iter())
        .map(|call| {
            let known = going_on.get(&call.client).copied();
            let known = known.filter(|(_, first, last)| {
                let elapsed =
                    |from: Timestamp, to: Timestamp| to.duration_since(from).unsigned_abs();
                elapsed(*last, call.at) <= idle_gap.after(elapsed(*first, *last))
            });
            let (number, first) = known.map_or_else(
                || {
                    n_derived += 1;
                    (n_derived, call.at)
                },
                |(number, first, _)| (number, first),
            );
            going_on.insert(call.client, (number, first, call.at));
            (call.session, number)
        })
        .collect();
    PairMetrics {
        actual: count_equal_pairs(parted.iter().map(|(session, _)| session)),
        derived: count_equal_pairs(parted.iter().map(|(_, number)| number)),
        both: count_equal_pairs(parted.iter()),
        n_derived,
    }
}

/// Returns the number of pairs of equal labels.
fn count_equal_pairs<T: Hash + Eq>(labels: impl Iterator<Item = T>) -> u64 {
    let mut counts: HashMap<T, u64> = HashMap::new();
    for label in labels {
        *counts.entry(label).or_default() += 1;
    }
    counts.into_values().map(|n| n * (n - 1) / 2).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    fn call(minutes: i64, session: usize, client: usize) -> TimedCall {
        let start = Timestamp::constant(1_800_000_000, 0);
        TimedCall {
            at: start + SignedDuration::from_mins(minutes),
            session,
            client,
        }
    }

    fn fixed_gap(minutes: u64) -> IdleGap {
        Duration::from_mins(minutes).into()
    }

    #[test]
    fn pair_metrics_agree_with_a_manual_count() {
        // Three calls of one session, the last one late, and one call of another client.
        let calls = [call(0, 1, 1), call(5, 1, 1), call(40, 1, 1), call(6, 2, 2)];
        let metrics = evaluate_work_sessions(&calls, fixed_gap(10));
        let expected = PairMetrics {
            actual: 3,
            derived: 1,
            both: 1,
            n_derived: 3,
        };
        assert_eq!(metrics, expected);
        assert!((metrics.f1() - 0.5).abs() < 1e-12);
        // A session that has lasted 20 minutes may be idle for 40.
        let calls = [0, 10, 20, 60].map(|minutes| call(minutes, 1, 1));
        let grown = evaluate_work_sessions(&calls, IdleGap::default());
        assert_eq!((grown.both, grown.n_derived), (6, 1));
        assert_eq!(evaluate_work_sessions(&calls, fixed_gap(10)).both, 3);
    }

    #[test]
    fn metrics_without_calls_are_perfect() {
        let metrics = evaluate_work_sessions(&[], fixed_gap(1));
        assert!((metrics.f1() - 1.0).abs() < f64::EPSILON);
        assert_eq!(metrics.n_derived, 0);
    }

    proptest! {
        #[test]
        fn metrics_are_shares_and_a_longer_gap_joins_more_calls(
            calls in proptest::collection::vec((0_i64..300, 0_usize..3, 0_usize..2), 0..40),
            (shorter, longer) in (0_u64..60, 0_u64..60),
        ) {
            let calls: Vec<_> = calls.into_iter().map(|(at, s, c)| call(at, s, c)).collect();
            let less = evaluate_work_sessions(&calls, fixed_gap(shorter.min(longer)));
            let more = evaluate_work_sessions(&calls, fixed_gap(shorter.max(longer)));
            prop_assert!(less.derived <= more.derived && less.both <= more.both);
            for metrics in [less, more] {
                prop_assert!(metrics.both <= metrics.actual.min(metrics.derived));
                for value in [metrics.precision(), metrics.recall(), metrics.f1()] {
                    prop_assert!((0.0..=1.0).contains(&value));
                }
            }
        }
    }
}
