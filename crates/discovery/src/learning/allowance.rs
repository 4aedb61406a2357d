//! Limit on the calls of one principal that are learned from.

use std::collections::HashMap;

use jiff::Timestamp;
use riglm_domain::privacy::principal::Principal;

// A hundred calls in a second. Learning from so many takes a few seconds with thousands of tools;
// calls of other principals wait no longer than that.
const MAX_OF_ONE: u32 = 6_000;
// Bounds the memory; beyond it all counts start again.
const MAX_PRINCIPALS: usize = 10_000;

/// Counts calls by principal, in the order of reading. Only the time of receipt counts, so that
/// learning everything again gives the same result.
#[derive(Debug, Default)]
pub(super) struct Allowance(HashMap<Principal, Minute>);

/// The calls of one principal in its newest minute.
#[derive(Clone, Copy, Debug)]
struct Minute {
    number: i64,
    n_calls: u32,
}

impl Allowance {
    /// Counts a call by its time of receipt and returns whether to learn from it.
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
    fn calls_of_one_principal_are_capped_per_minute() {
        let mut allowance = Allowance::default();
        let [one, other] = ["one", "other"].map(Principal::from_name);
        let mut n_admitted = 0;
        for n in 0..180_000_i64 {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(n);
            n_admitted += u32::from(allowance.admits(&one, at));
            if n % 100 == 0 {
                assert!(allowance.admits(&other, at), "{n}");
            }
        }
        assert_eq!(n_admitted, 3 * MAX_OF_ONE);
        // A late call counts in the newest minute.
        assert!(!allowance.admits(&one, Timestamp::UNIX_EPOCH));
    }
}
