//! Exponential back-off with jitter.

use std::time::Duration;

/// The largest exponent: with it every wait of at least a nanosecond has reached its maximum.
const MAX_DOUBLINGS: u32 = 62;

/// A wait between attempts that doubles with each failure, up to a maximum.
///
/// The wait after `n` failures in a row is `min(max, min * 2^(n - 1)) * (1 - jitter * r)`, where `r`
/// is a random number from 0 to 1. Jitter keeps clients that failed together from coming back
/// together (Brooker 2015, "Exponential Backoff and Jitter", "equal jitter" with `jitter = 0.5`).
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
    jitter: f64,
}

impl Backoff {
    /// The share of a wait that chance may take away, if nothing else is chosen.
    pub const JITTER: f64 = 0.2;

    /// Returns a back-off from `min` to `max` with a jitter of [`Self::JITTER`].
    #[must_use]
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            jitter: Self::JITTER,
        }
    }

    /// Returns the same back-off with another jitter: the share of a wait, from 0 to 1, that chance
    /// may take away. A value outside is brought to the nearest bound; one that is no number, to 0.
    #[must_use]
    pub fn with_jitter(self, jitter: f64) -> Self {
        let jitter = if jitter.is_nan() { 0.0 } else { jitter };
        Self {
            jitter: jitter.clamp(0.0, 1.0),
            ..self
        }
    }

    /// Returns the wait after so many failures in a row; none after no failure.
    ///
    /// `random` is a number from 0 (the whole wait) to 1 (the wait less its jitter); values outside
    /// are brought to the nearest bound.
    #[must_use]
    pub fn delay(&self, n_failures: u32, random: f64) -> Duration {
        let Some(n_doublings) = n_failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u64 << n_doublings.min(MAX_DOUBLINGS);
        let factor = u32::try_from(factor).unwrap_or(u32::MAX);
        let whole = self.min.saturating_mul(factor).min(self.max);
        let random = if random.is_nan() { 0.0 } else { random };
        whole.mul_f64(1.0 - self.jitter * random.clamp(0.0, 1.0))
    }

    /// Returns the longest wait.
    #[must_use]
    pub const fn max(&self) -> Duration {
        self.max
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
    }
}
