//! Exponential back-off with jitter.

use std::time::Duration;

/// A wait between attempts that grows with each failure, up to a maximum.
///
/// The wait after `n` failures in a row is `min(max, min * growth^(n - 1)) * (1 - jitter * r)`, where
/// `r` is a random number from 0 to 1, and `growth` is 2 if nothing else is chosen. Jitter keeps
/// clients that failed together from coming back together (Brooker 2015, "Exponential Backoff and
/// Jitter", "equal jitter" with `jitter = 0.5`).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use riglm_domain::resilience::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
/// assert_eq!(backoff.delay(3, 0.0), Duration::from_millis(400));
/// assert_eq!(backoff.delay(3, 1.0), Duration::from_millis(320)); // a fifth less
/// assert_eq!(backoff.delay(20, 0.0), Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    growth: u32,
    jitter: f64,
    /// The number of failures in a row that demand no wait.
    n_free: u32,
    /// The least wait after the failures that demand one. Jitter does not shorten it.
    floor: Duration,
}

impl Backoff {
    /// The share of a wait that chance may take away, if nothing else is chosen.
    pub const JITTER: f64 = 0.2;

    /// Returns a back-off from `min` to `max` that doubles, with a jitter of [`Self::JITTER`].
    #[must_use]
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            growth: 2,
            jitter: Self::JITTER,
            n_free: 0,
            floor: Duration::ZERO,
        }
    }

    /// Returns the same back-off with another jitter: the share of a wait, from 0 to 1, that chance
    /// may take away. A value outside is brought to the nearest bound; one that is no number, to 0.
    #[must_use]
    pub const fn with_jitter(self, jitter: f64) -> Self {
        let jitter = if jitter.is_nan() { 0.0 } else { jitter };
        Self {
            jitter: jitter.clamp(0.0, 1.0),
            ..self
        }
    }

    /// Returns the same back-off with another growth: the factor from one wait to the next.
    #[must_use]
    pub const fn with_growth(self, growth: u32) -> Self {
        Self { growth, ..self }
    }

    /// Returns the same back-off without a wait after the first failure in a row. The shortest wait
    /// follows the second one.
    #[must_use]
    pub const fn with_immediate_retry(self) -> Self {
        Self { n_free: 1, ..self }
    }

    /// Returns the same back-off for a server that asked for a delay: the waits begin with it, and
    /// none is shorter.
    #[must_use]
    pub fn with_server_delay(self, delay: Duration) -> Self {
        Self {
            min: delay,
            max: self.max.max(delay),
            floor: delay,
            ..self
        }
    }

    /// Returns the wait after so many failures in a row; none after no failure.
    ///
    /// `random` is a number from 0 (the whole wait) to 1 (the wait less its jitter); values outside
    /// are brought to the nearest bound.
    #[must_use]
    pub fn delay(&self, n_failures: u32, random: f64) -> Duration {
        let n_waits = n_failures.saturating_sub(self.n_free);
        let Some(n_grown) = n_waits.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = self.growth.saturating_pow(n_grown);
        let whole = self.min.saturating_mul(factor).min(self.max);
        let random = if random.is_nan() { 0.0 } else { random };
        let wait = whole.mul_f64(1.0 - self.jitter * random.clamp(0.0, 1.0));
        wait.max(self.floor)
    }

    /// Returns the longest wait.
    #[must_use]
    pub const fn max(&self) -> Duration {
        self.max
    }
}

/// The failures in a row of something that is tried again and again.
///
/// A success ends the row. So does a connection that lasts: its end is the first failure of a new
/// row.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use riglm_domain::resilience::{Backoff, FailureStreak};
///
/// let second = Duration::from_secs(1);
/// let backoff = Backoff::new(second, 60 * second);
/// let mut failures = FailureStreak::new(backoff).with_sound_lifetime(10 * second);
/// assert_eq!(failures.record_failure(0.0), second);
/// assert_eq!(failures.record_failure(0.0), 2 * second);
/// assert_eq!(failures.record_loss(9 * second, 0.0), 4 * second);
/// assert_eq!(failures.record_loss(10 * second, 0.0), second);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureStreak {
    backoff: Backoff,
    sound_lifetime: Duration,
    n_failures: u32,
}

impl FailureStreak {
    /// Returns the state without a failure. Only a success ends a row of failures.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            sound_lifetime: Duration::MAX,
            n_failures: 0,
        }
    }

    /// Returns the same state, where a connection that lasted for this time was sound: its loss
    /// begins a new row of failures.
    #[must_use]
    pub const fn with_sound_lifetime(self, sound_lifetime: Duration) -> Self {
        Self {
            sound_lifetime,
            ..self
        }
    }

    /// Notes a failed attempt. Returns the wait before the next one.
    ///
    /// `random` is the random number of [`Backoff::delay`].
    #[must_use]
    pub fn record_failure(&mut self, random: f64) -> Duration {
        self.n_failures = self.n_failures.saturating_add(1);
        self.backoff.delay(self.n_failures, random)
    }

    /// Notes the loss of a connection that lasted for this time. Returns the wait before the next
    /// attempt.
    ///
    /// `random` is the random number of [`Backoff::delay`].
    #[must_use]
    pub fn record_loss(&mut self, lifetime: Duration, random: f64) -> Duration {
        if lifetime >= self.sound_lifetime {
            self.reset();
        }
        self.record_failure(random)
    }

    /// Notes a success: no failure is left.
    pub const fn reset(&mut self) {
        self.n_failures = 0;
    }

    /// Returns the number of failures in a row.
    #[must_use]
    pub const fn n_failures(&self) -> u32 {
        self.n_failures
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

    #[test]
    fn the_wait_doubles_up_to_the_maximum() {
        let waits = [0, 1, 2, 3, 7, 8, 9, u32::MAX].map(|n| BACKOFF.delay(n, 0.0).as_millis());
        assert_eq!(waits, [0, 50, 100, 200, 3_200, 5_000, 5_000, 5_000]);
    }

    #[test]
    fn numbers_out_of_range_are_brought_to_a_bound() {
        assert_eq!(BACKOFF.delay(1, f64::NAN), BACKOFF.delay(1, 0.0));
        assert_eq!(BACKOFF.delay(1, 7.0), BACKOFF.delay(1, 1.0));
        let whole = BACKOFF.with_jitter(f64::NAN);
        assert_eq!(whole.delay(1, 1.0), Duration::from_millis(50));
        assert_eq!(BACKOFF.with_jitter(2.0).delay(1, 1.0), Duration::ZERO);
    }

    #[test]
    fn back_off_growth_is_configurable() {
        let backoff = BACKOFF.with_growth(4);
        let waits = [1, 2, 3, 4, 5, u32::MAX].map(|n| backoff.delay(n, 0.0).as_millis());
        assert_eq!(waits, [50, 200, 800, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn the_first_retry_can_be_at_once() {
        let backoff = BACKOFF.with_immediate_retry();
        let waits = [0, 1, 2, 3, u32::MAX].map(|n| backoff.delay(n, 0.0).as_millis());
        assert_eq!(waits, [0, 0, 50, 100, 5_000]);
    }

    #[test]
    fn back_off_respects_the_delay_requested_by_the_server() {
        let backoff = BACKOFF.with_server_delay(Duration::from_millis(20));
        let waits = [0, 1, 2, 3].map(|n| backoff.delay(n, 0.0).as_millis());
        assert_eq!(waits, [0, 20, 40, 80]);
        assert_eq!(backoff.delay(1, 1.0), Duration::from_millis(20));
        assert_eq!(backoff.delay(2, 1.0), Duration::from_millis(32));
        let minute = Duration::from_mins(1);
        assert_eq!(BACKOFF.with_server_delay(minute).delay(9, 1.0), minute);
    }

    proptest! {
        #[test]
        fn waits_stay_between_the_jittered_minimum_and_the_maximum(
            min in 1_u64..10_000,
            more in 0_u64..10_000_000,
            n in 1_u32..1_000,
            jitter in 0.0_f64..1.0,
            random in 0.0_f64..1.0,
        ) {
            let (least, most) = (Duration::from_millis(min), Duration::from_millis(min + more));
            let backoff = Backoff::new(least, most).with_jitter(jitter);
            let wait = backoff.delay(n, random);
            prop_assert!(wait <= most);
            let slack = Duration::from_nanos(1);
            prop_assert!(wait + slack >= least.mul_f64(1.0 - jitter));
            prop_assert!(backoff.delay(n + 1, random) >= wait);
        }

        #[test]
        fn waits_are_never_shorter_than_the_server_delay(
            wanted in 0_u64..100_000,
            n in 1_u32..1_000,
            random in 0.0_f64..1.0,
        ) {
            let wanted = Duration::from_millis(wanted);
            let backoff = BACKOFF.with_server_delay(wanted);
            let wait = backoff.delay(n, random);
            prop_assert!(wait >= wanted);
            prop_assert!(wait <= wanted.max(BACKOFF.max()));
        }

        #[test]
        fn streaks_restart_after_successes_and_sound_connections(
            lifetimes in prop::collection::vec(prop::option::of(0_u64..20), 0..50),
            random in 0.0_f64..1.0,
        ) {
            let second = Duration::from_secs(1);
            let mut streak = FailureStreak::new(BACKOFF).with_sound_lifetime(10 * second);
            let mut n_expected = 0;
            for lifetime in lifetimes {
                let Some(seconds) = lifetime else {
                    streak.reset();
                    n_expected = 0;
                    continue;
                };
                n_expected = if seconds >= 10 { 1 } else { n_expected + 1 };
                let wait = streak.record_loss(Duration::from_secs(seconds), random);
                prop_assert_eq!(wait, BACKOFF.delay(n_expected, random));
                prop_assert_eq!(streak.n_failures(), n_expected);
            }
        }
    }
}
