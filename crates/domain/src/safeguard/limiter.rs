//! How often something may be done: token buckets whose bound is exact.
//!
//! A bucket that is refilled steadily lets almost twice its size through in one period: all of it, and
//! what comes back meanwhile. Here each token comes back exactly one period after it was taken, which
//! bounds the calls of every window of that length by the size of the bucket. The price is to remember
//! when each token was taken.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How many calls may be made in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    calls: usize,
    per: Duration,
}

/// Why numbers are no rate.
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
    /// The most calls of a period: what is remembered of a bucket is bounded by it.
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

    /// Returns how many calls may be made in a period.
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

/// A bucket of as many tokens as its rate has calls. Each call takes one, which is back exactly one
/// period later.
///
/// With times that do not go backwards, no window `[t, t + period)` has more calls than the rate. Times
/// that do go backwards give no token back, and hold none for longer than one period from then on:
/// tokens that were taken later than now count as taken now.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// When the tokens that may be out were taken, ascending; at most as many as the rate has calls.
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

    /// Returns how many tokens are out.
    pub fn n_out(&mut self, now: Instant) -> usize {
        self.settle(now);
        self.taken.len()
    }

    /// Returns how long to wait for a token, at most one period; `None` where there is one. After that
    /// wait there is one, unless somebody else takes it.
    pub fn peek(&mut self, now: Instant) -> Option<Duration> {
        self.settle(now);
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
    /// Returns how long to wait where there is none; see [`Self::peek`].
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(wait) = self.peek(now) {
            return Err(wait);
        }
        self.taken.push_back(now);
        Ok(())
    }

    /// Takes back the tokens whose period is over. Those that were taken later than `now` were taken
    /// before time went backwards.
    fn settle(&mut self, now: Instant) {
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

/// Why no tokens were taken from several buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The place of the bucket that is waited for longest; of several the first.
    pub bucket: usize,
    /// How long to wait until each has a token.
    pub wait: Duration,
}

/// Returns the bucket that is waited for longest; `None` where each has a token.
pub fn peek_all(buckets: &mut [&mut TokenBucket], now: Instant) -> Option<Blocked> {
    let mut blocked: Option<Blocked> = None;
    for (place, bucket) in buckets.iter_mut().enumerate() {
        let Some(wait) = bucket.peek(now) else {
            continue;
        };
        if blocked.is_none_or(|longest| wait > longest.wait) {
            blocked = Some(Blocked {
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
/// Returns which bucket is waited for longest where one has no token.
pub fn take_all(buckets: &mut [&mut TokenBucket], now: Instant) -> Result<(), Blocked> {
    if let Some(blocked) = peek_all(buckets, now) {
        return Err(blocked);
    }
    for bucket in buckets {
        // Each was just seen to have one.
        let _ = bucket.take(now);
    }
    Ok(())
}

/// Who shares a limit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Each work session has it for itself.
    #[default]
    Session,
    /// All sessions of a principal share it.
    Principal,
    /// All share it.
    Global,
}

impl LimitScope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Session, Self::Principal, Self::Global];

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Principal => "principal",
            Self::Global => "global",
        }
    }
}

#[cfg(test)]
mod tests;
