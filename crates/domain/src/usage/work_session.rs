//! Work sessions: the calls of one client for one task, over any number of connections.

mod windows;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::WorkSessionId;
use crate::privacy::canonical::KeyedHash;
use crate::privacy::principal::Principal;

pub use windows::ClientWindows;

/// The key of a work session: the principal, the client, and a workspace, profile or key that the
/// client chose, as a keyed hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkSessionKey(pub KeyedHash);

/// A work session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkSession {
    /// Identifies the work session.
    pub id: WorkSessionId,
    /// The key that its requests have in common.
    pub key: WorkSessionKey,
    /// The principal of the client.
    pub principal: Principal,
    /// Keyed hash of the client, as in its sessions.
    pub client: KeyedHash,
    /// The time of its first request.
    pub started_at: Timestamp,
    /// The time of its last request.
    pub last_active_at: Timestamp,
}

impl WorkSession {
    /// Returns the duration of the work session: from its first request to its last one.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let lasted = self.last_active_at.duration_since(self.started_at);
        Duration::try_from(lasted).unwrap_or_default()
    }

    /// Returns whether a request at a time still belongs to the work session: the silence since the
    /// last request is not longer than `idle_gap` allows. A time before the last request, from a
    /// clock that was set back or from another machine, belongs to it too.
    #[must_use]
    pub fn continues_at(&self, at: Timestamp, idle_gap: IdleGap) -> bool {
        let silent_us = at.as_microsecond() - self.last_active_at.as_microsecond();
        let allowed = idle_gap.after(self.duration());
        // A negative silence, from another clock, is no gap.
        u128::try_from(silent_us).map_or(true, |silent| silent <= allowed.as_micros())
    }
}

/// The allowed silence of a work session. It grows with the duration of the work session.
///
/// A silence of a quarter of an hour mostly means another task after a few moments of work, and
/// mostly means a break after an hour of work. The allowed silence is [`Self::GROWTH`] times the
/// duration of the work session, within bounds. If the bounds are equal it is a fixed gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleGap {
    least: Duration,
    most: Duration,
}

impl IdleGap {
    /// The allowed silence as a multiple of the duration of the work session. The best guess for
    /// the remaining time of an activity is its duration so far (the median estimate for lifetimes
    /// without a scale of their own). Twice that loses few work sessions.
    pub const GROWTH: u32 = 2;
    /// The default minimum. Of the fixed gaps it is the best one.
    pub const LEAST: Duration = Duration::from_mins(10);
    /// The default maximum.
    pub const MOST: Duration = Duration::from_hours(1);

    /// Returns a gap between two bounds. If the second is smaller, it counts as the first.
    #[must_use]
    pub fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most: most.max(least),
        }
    }

    /// Returns the allowed silence of a work session with this duration.
    #[must_use]
    pub fn after(self, lasted: Duration) -> Duration {
        let grown = lasted.saturating_mul(Self::GROWTH);
        grown.clamp(self.least, self.most)
    }

    /// Returns the maximum.
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
