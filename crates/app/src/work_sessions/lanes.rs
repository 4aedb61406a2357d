//! The work sessions of the keys that were seen lately, in memory.

use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use riglm_domain::id::WorkSessionId;
use riglm_domain::work_session::{IdleGap, WorkSession, WorkSessionKey};

use super::RequestKind;

/// The most keys that are remembered.
const MAX_LANES: usize = 10_000;
/// How often the store is told that a work session goes on.
pub(super) const TELL_EVERY: Duration = Duration::from_secs(30);

/// The work sessions of one key, one after the other: the newest one.
#[derive(Debug)]
pub(super) struct Lane {
    session: WorkSession,
    is_stored: bool,
    is_telling: bool,
    told_at: Timestamp,
}

impl Lane {
    /// Returns the lane of a work session that the store has, with a request at that moment.
    pub(super) fn known(mut session: WorkSession, now: Timestamp) -> Self {
        session.last_active_at = session.last_active_at.max(now);
        Self {
            is_stored: true,
            ..Self::unknown(session, now)
        }
    }

    /// Returns the lane of a work session that the store does not have.
    pub(super) fn unknown(session: WorkSession, now: Timestamp) -> Self {
        Self {
            session,
            is_stored: false,
            is_telling: false,
            told_at: now,
        }
    }

    /// Notes a request. Returns the work session, and whether the store is to be told.
    pub(super) fn active(&mut self, now: Timestamp, kind: RequestKind) -> (WorkSessionId, bool) {
        self.session.last_active_at = self.session.last_active_at.max(now);
        let since = Duration::try_from(now.duration_since(self.told_at));
        let is_late = since.is_ok_and(|since| since >= TELL_EVERY);
        // What the store does not know yet may be another one there.
        let is_urgent = !self.is_stored || kind == RequestKind::Search;
        let is_due = !self.is_telling && (is_late || is_urgent);
        (self.session.id, is_due)
    }
}

/// Lanes by their keys.
#[derive(Debug)]
pub(super) struct Lanes(LruCache<WorkSessionKey, Lane>);

impl Default for Lanes {
    fn default() -> Self {
        let n = NonZeroUsize::new(MAX_LANES).unwrap_or(NonZeroUsize::MIN);
        Self(LruCache::new(n))
    }
}

impl Lanes {
    /// Returns whether the work session of a key goes on with a request at a moment.
    pub(super) fn goes_on(&self, key: WorkSessionKey, now: Timestamp, idle_gap: IdleGap) -> bool {
        let lane = self.0.peek(&key);
        lane.is_some_and(|lane| lane.session.continues_at(now, idle_gap))
    }

    /// Returns the lane of a key whose work session goes on with a request at a moment.
    pub(super) fn going_on(
        &mut self,
        key: WorkSessionKey,
        now: Timestamp,
        idle_gap: IdleGap,
    ) -> Option<&mut Lane> {
        let lane = self.0.get_mut(&key);
        lane.filter(|lane| lane.session.continues_at(now, idle_gap))
    }

    /// Puts a lane in the place of the one with its key. Returns its work session.
    pub(super) fn put(&mut self, lane: Lane) -> WorkSessionId {
        let id = lane.session.id;
        self.0.put(lane.session.key, lane);
        id
    }

    /// Returns what the store is to be asked to resolve, so that it knows of the last request of a
    /// key; `None` while it is being told already.
    pub(super) fn begin_telling(&mut self, key: WorkSessionKey) -> Option<WorkSession> {
        let lane = self.0.peek_mut(&key).filter(|lane| !lane.is_telling)?;
        lane.is_telling = true;
        lane.told_at = lane.session.last_active_at;
        let mut candidate = lane.session.clone();
        if lane.is_stored {
            candidate.started_at = candidate.last_active_at;
        }
        Some(candidate)
    }

    /// Notes what the store said to a work session; `None` if it did not answer. Where another
    /// process was first, its work session is gone on with.
    pub(super) fn told(
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
