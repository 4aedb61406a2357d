//! Rate limits: token buckets with an exact bound.
//!
//! A bucket that is refilled steadily allows almost twice its size in one period: all of its
//! tokens, and the refill meanwhile. Here each token comes back exactly one period after it was
//! taken. This bounds the calls of every window of that length by the size of the bucket. The price
//! is memory for the time at which each token was taken.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// The maximum number of calls in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    calls: usize,
    per: Duration,
}

/// The reason for which numbers are no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The number of calls is out of its bounds.
    #[error("expected a number of calls from 1 to {}", Rate::MAX_CALLS)]
    Calls,
    /// The period is out of its bounds.
    #[error("expected a period from 1s to 1day")]
    Period,
}

impl Rate {
    /// The maximum number of calls in a period. It bounds the memory of a bucket.
    pub const MAX_CALLS: u32 = 1_000;
    /// The shortest period.
    pub const MIN_PERIOD: Duration = Duration::from_secs(1);
    /// The longest period.
    pub const MAX_PERIOD: Duration = Duration::from_hours(24);

    /// Returns the rate of `calls`, from 1 to 1,000, in a period of 1 second to 1 day.
    ///
    /// # Errors
    ///
    /// Returns [`RateError`] for anything else.
    pub fn new(calls: u32, per: Duration) -> Result<Self, RateError> {
        if !(1..=Self::MAX_CALLS).contains(&calls) {
            return Err(RateError::Calls);
        }
        if !(Self::MIN_PERIOD..=Self::MAX_PERIOD).contains(&per) {
            return Err(RateError::Period);
        }
        let calls = usize::try_from(calls).map_err(|_| RateError::Calls)?;
        Ok(Self { calls, per })
    }

    /// Returns the maximum number of calls in a period.
    #[must_use]
    pub fn calls(self) -> usize {
        self.calls
    }

    /// Returns the length of the period.
    #[must_use]
    pub fn per(self) -> Duration {
        self.per
    }
}

/// A token bucket with one token for each call of its rate. A call takes a token, which comes back
/// exactly one period later.
///
/// If time does not go backwards, no window `[t, t + period)` has more calls than the rate. If time
/// goes backwards, no token comes back early, and none is held for longer than one period from then
/// on: a token that was taken later than now counts as taken now.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// The times at which the missing tokens were taken, ascending; at most as many as the rate has
    /// calls.
    taken: VecDeque<Instant>,
}

impl TokenBucket {
    /// Returns a full bucket.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            taken: VecDeque::new(),
        }
    }

    /// Returns the rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the number of taken tokens.
    pub fn n_taken(&mut self, now: Instant) -> usize {
        self.return_tokens(now);
        self.taken.len()
    }

    /// Returns the wait for a token, at most one period; `None` if there is a token. After the wait
    /// there is a token, unless another caller takes it.
    pub fn wait_time(&mut self, now: Instant) -> Option<Duration> {
        self.return_tokens(now);
        if self.taken.len() < self.rate.calls {
            return None;
        }
        let oldest = self.taken.front()?;
        let elapsed = now.saturating_duration_since(*oldest);
        Some(self.rate.per.saturating_sub(elapsed))
    }

    /// Takes a token.
    ///
    /// # Errors
    ///
    /// Returns the wait if there is no token; see [`Self::wait_time`].
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(wait) = self.wait_time(now) {
            return Err(wait);
        }
        self.taken.push_back(now);
        Ok(())
    }

    /// Returns tokens whose period is over to the bucket. Tokens with a later time than `now` were
    /// taken before time went backwards.
    fn return_tokens(&mut self, now: Instant) {
        // The times ascend, so the later ones are at the end.
        for taken in self.taken.iter_mut().rev() {
            if *taken <= now {
                break;
            }
            *taken = now;
        }
        while let Some(oldest) = self.taken.front()
            && now.saturating_duration_since(*oldest) >= self.rate.per
        {
            self.taken.pop_front();
        }
    }
}

/// The bucket with the longest wait, if no tokens were taken from several buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketWait {
    /// The position of the bucket; of several with the same wait, the first one.
    pub bucket: usize,
    /// The wait until each bucket has a token.
    pub wait: Duration,
}

/// Returns the bucket with the longest wait; `None` if each has a token.
pub fn longest_wait(buckets: &mut [&mut TokenBucket], now: Instant) -> Option<BucketWait> {
    let mut blocked: Option<BucketWait> = None;
    for (place, bucket) in buckets.iter_mut().enumerate() {
        let Some(wait) = bucket.wait_time(now) else {
            continue;
        };
        if blocked.is_none_or(|longest| wait > longest.wait) {
            blocked = Some(BucketWait {
                bucket: place,
                wait,
            });
        }
    }
    blocked
}

/// Takes a token from each bucket, or from none.
///
/// # Errors
///
/// Returns the bucket with the longest wait if a bucket has no token.
pub fn take_all(buckets: &mut [&mut TokenBucket], now: Instant) -> Result<(), BucketWait> {
    if let Some(blocked) = longest_wait(buckets, now) {
        return Err(blocked);
    }
    for bucket in buckets {
        // The check above found a token in each bucket.
        let _ = bucket.take(now);
    }
    Ok(())
}

/// The scope of a limit.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LimitScope {
    /// Each work session has its own limit.
    #[default]
    Session,
    /// All sessions of a principal share the limit.
    Principal,
    /// All sessions share the limit.
    Global,
}

impl LimitScope {
    /// All scopes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the scope.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns a wait in whole seconds, rounded up, at least 1.
#[must_use]
pub fn whole_seconds(wait: Duration) -> u64 {
    let rounded = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    rounded.max(1)
}

#[cfg(test)]
mod tests;
