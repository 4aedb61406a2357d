//! Work sessions of recent keys, in memory.

use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use riglm_domain::id::WorkSessionId;
use riglm_domain::usage::work_session::{IdleGap, WorkSession, WorkSessionKey};

use super::RequestKind;

/// The most keys in memory.
const MAX_LANES: usize = 10_000;
/// Interval of updates of the store while a work session continues.
pub(super) const UPDATE_INTERVAL: Duration = Duration::from_secs(30);

/// The newest work session of one key.
#[derive(Debug)]
pub(super) struct ActiveSession {
    session: WorkSession,
    is_stored: bool,
    is_telling: bool,
    told_at: Timestamp,
}

impl ActiveSession {
    /// Creates the entry of a stored work session, with a request at this time.
    pub(super) fn from_store(mut session: WorkSession, now: Timestamp) -> Self {
        session.last_active_at = session.last_active_at.max(now);
        Self {
            is_stored: true,
            ..Self::new_unstored(session, now)
        }
    }

    /// Creates the entry of a work session that is not stored.
    pub(super) fn new_unstored(session: WorkSession, now: Timestamp) -> Self {
        Self {
            session,
            is_stored: false,
            is_telling: false,
            told_at: now,
        }
    }

    /// Records a request. Returns the work session, and whether to update the store.
    pub(super) fn active(&mut self, now: Timestamp, kind: RequestKind) -> (WorkSessionId, bool) {
        self.session.last_active_at = self.session.last_active_at.max(now);
        let since = Duration::try_from(now.duration_since(self.told_at));
        let is_late = since.is_ok_and(|since| since >= UPDATE_INTERVAL);
        // The store may have another work session for a key that is not stored from here.
        let is_urgent = !self.is_stored || kind == RequestKind::Search;
        let is_due = !self.is_telling && (is_late || is_urgent);
        (self.session.id, is_due)
    }
}

#[derive(Debug)]
pub(super) struct ActiveSessions(LruCache<WorkSessionKey, ActiveSession>);

impl Default for ActiveSessions {
    fn default() -> Self {
        let n = NonZeroUsize::new(MAX_LANES).unwrap_or(NonZeroUsize::MIN);
        Self(LruCache::new(n))
    }
}

impl ActiveSessions {
    /// Returns whether the work session of a key continues with a request at this time.
    pub(super) fn goes_on(&self, key: WorkSessionKey, now: Timestamp, idle_gap: IdleGap) -> bool {
        let lane = self.0.peek(&key);
        lane.is_some_and(|lane| lane.session.continues_at(now, idle_gap))
    }

    /// Returns the entry of a key whose work session continues with a request at this time.
    pub(super) fn going_on(
        &mut self,
        key: WorkSessionKey,
        now: Timestamp,
        idle_gap: IdleGap,
    ) -> Option<&mut ActiveSession> {
        let lane = self.0.get_mut(&key);
        lane.filter(|lane| lane.session.continues_at(now, idle_gap))
    }

    /// Replaces the entry of a key. Returns its work session.
    pub(super) fn put(&mut self, lane: ActiveSession) -> WorkSessionId {
        let id = lane.session.id;
        self.0.put(lane.session.key, lane);
        id
    }

    /// Returns the update for the store with the last request of a key; `None` while one is
    /// running.
    pub(super) fn begin_update(&mut self, key: WorkSessionKey) -> Option<WorkSession> {
        let lane = self.0.peek_mut(&key).filter(|lane| !lane.is_telling)?;
        lane.is_telling = true;
        lane.told_at = lane.session.last_active_at;
        let mut candidate = lane.session.clone();
        if lane.is_stored {
            // If the store begins another work session, that one begins with this request.
            candidate.started_at = candidate.last_active_at;
        }
        Some(candidate)
    }

    /// Records the answer of the store for a work session; `None` if it failed. If another process
    /// stored one first, that work session continues.
    pub(super) fn finish_update(
        &mut self,
        key: WorkSessionKey,
        told_of: WorkSessionId,
        known: Option<WorkSession>,
    ) {
        let lane = self.0.peek_mut(&key);
        let Some(lane) = lane.filter(|lane| lane.session.id == told_of) else {
            return;
        };
        lane.is_telling = false;
        if let Some(known) = known {
            let last_active_at = lane.session.last_active_at.max(known.last_active_at);
            lane.session = WorkSession {
                last_active_at,
                ..known
            };
            lane.is_stored = true;
        }
    }
}
