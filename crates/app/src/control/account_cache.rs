//! A cache of the accounts of sessions. Each account needs up to thousands of rows: that of an ended
//! session no longer changes, and that of an open one is kept for a while if reading it takes long.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::id::SessionId;
use riglm_domain::selection::economics::CostModel;
use riglm_domain::usage::session::SessionSummary;
use riglm_ports::analytics::{ListRepository, StoreError};
use tokio::time::Instant;

use super::list_accounts::{SessionLists, accounts_of};

/// Maximum number of kept accounts. The least recently used one is dropped.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_999);

/// The time since the end of a session after which its records count as complete.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// The time for which the account of an ended session is kept. A process that comes back after a
/// crash may bring more records of it.
const KEEP_ENDED: Duration = Duration::from_mins(10);

/// The account of an open session is kept this many times as long as reading took, so that it costs at
/// most a fiftieth of the time of one processor.
const AGE_PER_READ: u32 = 49;

/// The kept accounts.
#[derive(Debug)]
pub(super) struct AccountCache(Mutex<LruCache<SessionId, KeptAccount>>);

#[derive(Clone, Debug)]
struct KeptAccount {
    prices: CostModel,
    /// `None` for a session without lists.
    lists: Option<SessionLists>,
    valid_until: Instant,
}

impl Default for AccountCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_KEPT)))
    }
}

impl AccountCache {
    /// Returns the accounts of the sessions with lists at these prices. Only those that are not kept
    /// are read from the store.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub(super) async fn of(
        &self,
        store: &dyn ListRepository,
        sessions: &[&SessionSummary],
        prices: &CostModel,
        now: Timestamp,
    ) -> Result<BTreeMap<SessionId, SessionLists>, StoreError> {
        let kept = self.cached_accounts(sessions, prices);
        let is_missing = |session: &&&SessionSummary| !kept.contains_key(&session.session.id);
        let missing: Vec<&SessionSummary> = sessions.iter().filter(is_missing).copied().collect();
        let ids: Vec<SessionId> = missing.iter().map(|one| one.session.id).collect();
        let began_at = Instant::now();
        let mut accounts = accounts_of(store, &ids, prices).await?;
        let read_at = Instant::now();
        let reading = read_at.duration_since(began_at);
        {
            let mut all = self.0.lock();
            for session in missing {
                let id = session.session.id;
                let account = KeptAccount {
                    prices: *prices,
                    lists: accounts.get(&id).cloned(),
                    valid_until: read_at + kept_for(session.ended_at, now, reading),
                };
                all.put(id, account);
            }
        }
        let kept = kept.into_iter();
        accounts.extend(kept.filter_map(|(id, lists)| Some((id, lists?))));
        Ok(accounts)
    }

    fn cached_accounts(
        &self,
        sessions: &[&SessionSummary],
        prices: &CostModel,
    ) -> BTreeMap<SessionId, Option<SessionLists>> {
        let now = Instant::now();
        let mut all = self.0.lock();
        let kept = sessions.iter().filter_map(|session| {
            let id = session.session.id;
            let account = all.get(&id)?;
            let is_valid = account.prices == *prices && now < account.valid_until;
            is_valid.then(|| (id, account.lists.clone()))
        });
        kept.collect()
    }
}

/// Returns the time for which an account is kept that was read within `reading`.
fn kept_for(ended_at: Option<Timestamp>, now: Timestamp, reading: Duration) -> Duration {
    if ended_at.is_some_and(|at| now.duration_since(at) >= SETTLED_AFTER) {
        KEEP_ENDED
    } else {
        reading.saturating_mul(AGE_PER_READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_open_sessions_are_kept_as_long_as_reading_them_is_expensive() {
        let now = Timestamp::constant(1_800_000_000, 0);
        let kept = |ended_at, millis| kept_for(ended_at, now, Duration::from_millis(millis));
        assert_eq!(kept(None, 0), Duration::ZERO);
        assert_eq!(kept(None, 20), Duration::from_millis(980));
        // Its last records may still be on their way.
        let just_now = Some(now - SignedDuration::from_secs(1));
        assert_eq!(kept(just_now, 20), Duration::from_millis(980));
        assert_eq!(kept(Some(now - SETTLED_AFTER), 20), KEEP_ENDED);
    }
}
