//! How many calls of one principal are learned from.

use std::collections::HashMap;

use jiff::Timestamp;
use riglm_domain::principal::Principal;

/// The most calls of one principal in a minute that are learned from: a hundred in a second. Learning
/// from so many takes a few seconds, with thousands of tools; calls of others wait no longer for it.
const MAX_OF_ONE: u32 = 6_000;
/// How many principals are counted for at once. Beyond that all are counted anew.
const MAX_PRINCIPALS: usize = 10_000;

/// Counts the calls of principals in the order in which they are read. What counts is when they were
/// received, and not when they are read, so that everything can be learned anew with the same result.
#[derive(Debug, Default)]
pub(super) struct Allowance(HashMap<Principal, Minute>);

/// The calls of one principal in the newest minute of which there are any.
#[derive(Clone, Copy, Debug)]
struct Minute {
    number: i64,
    n_calls: u32,
}

impl Allowance {
    /// Returns whether a call that was received at this time is to be learned from, and counts it.
    pub(super) fn admits(&mut self, principal: &Principal, at: Timestamp) -> bool {
        let number = at.as_second().div_euclid(60);
        let fresh = Minute { number, n_calls: 1 };
        let Some(minute) = self.0.get_mut(principal) else {
            if self.0.len() >= MAX_PRINCIPALS {
                self.0.clear();
            }
            self.0.insert(principal.clone(), fresh);
            return true;
        };
        if number > minute.number {
            *minute = fresh;
            return true;
        }
        minute.n_calls = minute.n_calls.saturating_add(1);
        minute.n_calls <= MAX_OF_ONE
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn of_a_flood_of_one_principal_as_many_calls_count_as_may_in_a_minute() {
        let mut allowance = Allowance::default();
        let [one, other] = ["one", "other"].map(Principal::named);
        let mut n_admitted = 0;
        for n in 0..180_000_i64 {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(n);
            n_admitted += u32::from(allowance.admits(&one, at));
            if n % 100 == 0 {
                assert!(allowance.admits(&other, at), "{n}");
            }
        }
        assert_eq!(n_admitted, 3 * MAX_OF_ONE);
        // One that comes late counts to the minute that is newest.
        assert!(!allowance.admits(&one, Timestamp::UNIX_EPOCH));
    }
}
