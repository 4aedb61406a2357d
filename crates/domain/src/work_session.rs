//! Work sessions: what one client does in one go, however it is connected.

mod windows;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::id::WorkSessionId;
use crate::principal::Principal;

pub use windows::Windows;

/// What requests of the same work session have in common: principal, client, and workspace,
/// profile or a key that the client chose, as a keyed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkSessionKey(pub KeyedHash);

/// A work session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkSession {
    /// Identifies the work session.
    pub id: WorkSessionId,
    /// What its requests have in common.
    pub key: WorkSessionKey,
    /// Whose it is.
    pub principal: Principal,
    /// Keyed hash of the client, as in its sessions.
    pub client: KeyedHash,
    /// When its first request came.
    pub started_at: Timestamp,
    /// When its last request came.
    pub last_active_at: Timestamp,
}

impl WorkSession {
    /// Returns for how long the work session has gone on: from its first request to its last one.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        let lasted = self.last_active_at.duration_since(self.started_at);
        Duration::try_from(lasted).unwrap_or_default()
    }

    /// Returns whether a request at a moment still belongs to the work session: it came no later
    /// after the last one than `idle_gap` allows. A moment before the last request, of a clock
    /// that was set back or of another machine, belongs to it too.
    #[must_use]
    pub fn continues_at(&self, at: Timestamp, idle_gap: IdleGap) -> bool {
        let silent_us = at.as_microsecond() - self.last_active_at.as_microsecond();
        let allowed = idle_gap.after(self.lasted());
        u128::try_from(silent_us).map_or(true, |silent| silent <= allowed.as_micros())
    }
}

/// How long a work session may be silent and still go on: the longer, the longer it has gone on.
///
/// Somebody who has worked on something for a few moments and is silent for a quarter of an hour
/// has mostly turned to something else; who has worked on it for an hour is mostly at lunch. The
/// silence that is allowed is [`Self::GROWTH`] times as long as the work session has lasted, within
/// bounds. Where the bounds are the same it is a fixed gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleGap {
    least: Duration,
    most: Duration,
}

impl IdleGap {
    /// How many times as long as a work session has lasted it may be silent. How long a thing goes
    /// on is about how long it has gone on before (the estimate that is as often too long as too
    /// short, for lifetimes without a scale of their own); twice that loses few work sessions.
    pub const GROWTH: u32 = 2;
    /// The least that is allowed by default. Of the fixed gaps it is the best one.
    pub const LEAST: Duration = Duration::from_mins(10);
    /// The most that is allowed by default.
    pub const MOST: Duration = Duration::from_hours(1);

    /// Returns a gap between two bounds; where the second is smaller, it counts as the first.
    #[must_use]
    pub fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most: most.max(least),
        }
    }

    /// Returns how long a work session may be silent that has gone on for so long.
    #[must_use]
    pub fn after(self, lasted: Duration) -> Duration {
        let grown = lasted.saturating_mul(Self::GROWTH);
        grown.clamp(self.least, self.most)
    }

    /// Returns the most that is allowed.
    #[must_use]
    pub fn most(self) -> Duration {
        self.most
    }
}

impl Default for IdleGap {
    fn default() -> Self {
        Self::new(Self::LEAST, Self::MOST)
    }
}

impl From<Duration> for IdleGap {
    /// Returns a fixed gap.
    fn from(gap: Duration) -> Self {
        Self::new(gap, gap)
    }
}

#[cfg(test)]
mod tests;
