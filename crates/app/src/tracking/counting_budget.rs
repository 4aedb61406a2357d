//! Budget of processor time for counting tokens.

use std::time::{Duration, Instant};

/// A token bucket of processor time. It fills at a share of one core up to a burst. Work is charged
/// afterwards, so one piece of work can overdraw it.
#[derive(Debug)]
pub(crate) struct CountingBudget {
    /// Nanoseconds that may be spent; negative if overdrawn.
    balance: i64,
    filled_at: Instant,
}

impl CountingBudget {
    /// One part in this many of the time of one core: 2 %.
    const SHARE: u32 = 50;

    /// The time that can be spent at once after a pause of 5 s.
    const BURST: Duration = Duration::from_millis(100);

    /// The time to save before an exhausted budget is used again. Without it, every microsecond
    /// would be spent as soon as it is there.
    const RESERVE: Duration = Duration::from_millis(20);

    /// Creates a full budget.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            balance: nanos(Self::BURST),
            filled_at: now,
        }
    }

    /// Charges the time of a piece of work.
    pub(crate) fn charge(&mut self, now: Instant, spent: Duration) {
        self.fill(now);
        self.balance = self.balance.saturating_sub(nanos(spent));
    }

    /// Returns the time to wait: zero while the balance is positive.
    pub(crate) fn pause(&mut self, now: Instant) -> Duration {
        self.fill(now);
        if self.balance > 0 {
            return Duration::ZERO;
        }
        let missing = nanos(Self::RESERVE).saturating_sub(self.balance);
        Duration::from_nanos(missing.unsigned_abs()) * Self::SHARE
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at);
        self.filled_at = now;
        let filled = self.balance.saturating_add(nanos(passed / Self::SHARE));
        self.balance = filled.min(nanos(Self::BURST));
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn bursts_are_free_and_excess_requires_a_pause() {
        let start = Instant::now();
        let mut budget = CountingBudget::new(start);
        budget.charge(start, ms(99));
        assert_eq!(budget.pause(start), Duration::ZERO);
        budget.charge(start, ms(6));
        // 5 ms are missing and 20 ms are the reserve, at 1 ms in 50.
        assert_eq!(budget.pause(start), ms(25 * 50));
        assert_eq!(budget.pause(start + ms(250)), ms(20 * 50));
        assert_eq!(budget.pause(start + ms(25 * 50)), Duration::ZERO);
    }

    #[test]
    fn counting_uses_two_percent_of_a_core() {
        let start = Instant::now();
        let mut budget = CountingBudget::new(start);
        let (mut now, mut spent) = (start, Duration::ZERO);
        while now < start + ms(100_000) {
            let pause = budget.pause(now);
            if pause.is_zero() {
                budget.charge(now, ms(1));
                spent += ms(1);
                now += ms(1);
            }
            now += pause;
        }
        assert!(spent > ms(1_900) && spent < ms(2_200), "{spent:?}");
    }

    #[test]
    fn unused_budget_accumulates_only_up_to_a_burst() {
        let start = Instant::now();
        let mut budget = CountingBudget::new(start);
        let later = start + ms(3_600_000);
        budget.charge(later, ms(100));
        assert!(budget.pause(later) > Duration::ZERO);
    }
}
