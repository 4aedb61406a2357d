//! Work sessions: what one client does in one go, however it is connected.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::canonical::KeyedHash;
use crate::id::WorkSessionId;
use crate::principal::Principal;

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
    /// Returns whether a request at a moment still belongs to the work session: it came at most
    /// `idle_gap` after the last one. A moment before the last request, of a clock that was set
    /// back or of another machine, belongs to it too.
    #[must_use]
    pub fn continues_at(&self, at: Timestamp, idle_gap: Duration) -> bool {
        let silent_us = at.as_microsecond() - self.last_active_at.as_microsecond();
        u128::try_from(silent_us).map_or(true, |silent| silent <= idle_gap.as_micros())
    }
}
