//! A cache of the accounts of sessions. Each account needs up to thousands of rows: that of an ended
//! session no longer changes, and that of an open one is kept for a while if reading it takes long.
//! All reports share it, so that they agree.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex;
use riglm_discovery::activity_units::ActivityUnits;
use riglm_domain::id::SessionId;
use riglm_domain::selection::economics::CostModel;
use riglm_domain::usage::invocation::SessionKey;
use riglm_domain::usage::session::SessionSummary;
use riglm_ports::analytics::{ListRepository, StoreError};
use tokio::time::Instant;

use super::list_accounts::{RecentSession, SessionLists, sessions_of};

/// Maximum number of kept accounts: those of the largest report, and some more. The least recently used
/// one is dropped.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_999);

/// The time since the end of a session after which its records count as complete.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// The time without calls and searches after which a work session counts as ended. Its client may go on
/// with it all the same, and its account is then too old for a while.
const UNUSED_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The time for which the account of an ended session is kept. A process that comes back after a
/// crash may bring more records of it.
const KEEP_ENDED: Duration = Duration::from_mins(10);

/// The accounts of open sessions are kept this many times as long as reading them took, so that they
/// cost at most a fiftieth of the time of one processor.
const AGE_PER_READ: u32 = 49;

/// The longest time for which the account of an open session is kept. The first report after the start
/// may read thousands of accounts at once.
const KEEP_OPEN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct AccountCache(Mutex<LruCache<SessionKey, KeptAccount>>);

#[derive(Clone, Debug)]
struct KeptAccount {
    prices: CostModel,
    /// `None` for a session without lists.
    session: Option<RecentSession>,
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
        let ends = sessions.iter().map(|one| (one.session.id, one.ended_at));
        let ends: BTreeMap<SessionId, Option<Timestamp>> = ends.collect();
        let units = ActivityUnits {
            connections: ends.keys().copied().collect(),
            ..ActivityUnits::default()
        };
        let is_over = |key: SessionKey, _: Option<&RecentSession>| {
            let SessionKey::Connection(id) = key else {
                return false;
            };
            let ended_at = ends.get(&id).copied().flatten();
            ended_at.is_some_and(|at| is_settled(at, now))
        };
        let read = self.kept_or_read(store, &units, prices, is_over).await?;
        let accounts = read.into_iter().map(|one| (one.connection, one.lists));
        Ok(accounts.collect())
    }

    /// Returns the sessions with lists among some units, in any order. Only those that are not kept are
    /// read from the store.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub(super) async fn of_units(
        &self,
        store: &dyn ListRepository,
        units: &ActivityUnits,
        prices: &CostModel,
        now: Timestamp,
    ) -> Result<Vec<RecentSession>, StoreError> {
        let is_over = |key: SessionKey, session: Option<&RecentSession>| {
            matches!(key, SessionKey::Work(_))
                && session.is_some_and(|one| now.duration_since(one.last_active_at) >= UNUSED_AFTER)
        };
        self.kept_or_read(store, units, prices, is_over).await
    }

    async fn kept_or_read(
        &self,
        store: &dyn ListRepository,
        units: &ActivityUnits,
        prices: &CostModel,
        is_over: impl Fn(SessionKey, Option<&RecentSession>) -> bool,
    ) -> Result<Vec<RecentSession>, StoreError> {
        let (mut sessions, missing) = self.find_kept(units, prices);
        let began_at = Instant::now();
        let read = sessions_of(store, &missing, prices).await?;
        let read_at = Instant::now();
        let keep_open = time_to_keep(read_at.duration_since(began_at));
        let read = read.into_iter().map(|one| (one.key, one));
        let mut read: BTreeMap<SessionKey, RecentSession> = read.collect();
        let connections = missing.connections.into_iter().map(SessionKey::Connection);
        let work_sessions = missing.work_sessions.into_keys().map(SessionKey::Work);
        let mut all = self.0.lock();
        for key in connections.chain(work_sessions) {
            let session = read.remove(&key);
            let keep = if is_over(key, session.as_ref()) {
                KEEP_ENDED
            } else {
                keep_open
            };
            let account = KeptAccount {
                prices: *prices,
                session: session.clone(),
                valid_until: read_at + keep,
            };
            all.put(key, account);
            sessions.extend(session);
        }
        Ok(sessions)
    }

    /// Returns the kept sessions with lists, and the units that are not kept.
    fn find_kept(
        &self,
        units: &ActivityUnits,
        prices: &CostModel,
    ) -> (Vec<RecentSession>, ActivityUnits) {
        let now = Instant::now();
        let mut all = self.0.lock();
        let mut sessions = Vec::new();
        let mut is_missing = |key: SessionKey, connection: SessionId| {
            let kept = all.get(&key);
            let kept = kept.filter(|one| one.prices == *prices && now < one.valid_until);
            let Some(kept) = kept else {
                return true;
            };
            // The newest call of a work session may have come over another connection since.
            sessions.extend(kept.session.clone().map(|session| RecentSession {
                connection,
                ..session
            }));
            false
        };
        let connections = (units.connections.iter().copied())
            .filter(|id| is_missing(SessionKey::Connection(*id), *id))
            .collect();
        let work_sessions = (units.work_sessions.iter())
            .map(|(work, connection)| (*work, *connection))
            .filter(|(work, connection)| is_missing(SessionKey::Work(*work), *connection))
            .collect();
        let missing = ActivityUnits {
            connections,
            work_sessions,
            ..ActivityUnits::default()
        };
        (sessions, missing)
    }
}

/// Returns whether the records of a session that has ended then count as complete.
fn is_settled(ended_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(ended_at) >= SETTLED_AFTER
}

/// Returns the time for which accounts of open sessions are kept that were read within `reading`.
fn time_to_keep(reading: Duration) -> Duration {
    reading.saturating_mul(AGE_PER_READ).min(KEEP_OPEN)
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::WorkSessionId;
    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::RecordSink as _;
    use riglm_ports::contract::scene::{call, moment, run, search, session};
    use riglm_ports::fake::MemoryStore;

    use super::super::list_accounts::tests::{TestSession, use_tools};
    use super::*;

    /// Returns the searches of the work sessions and connections since the start of the scene.
    async fn n_searches(cache: &AccountCache, store: &MemoryStore, now: Timestamp) -> u64 {
        let units = ActivityUnits::read(store, moment(0), 9).await.unwrap();
        let prices = CostModel::default();
        let read = cache.of_units(store, &units, &prices, now).await;
        let sessions = read.unwrap().into_iter();
        sessions.map(|one| one.lists.account.searches).sum()
    }

    #[test]
    fn accounts_of_open_sessions_are_kept_as_long_as_reading_them_is_expensive() {
        let keep = |millis| time_to_keep(Duration::from_millis(millis));
        assert_eq!(keep(0), Duration::ZERO);
        assert_eq!(keep(20), Duration::from_millis(980));
        assert_eq!(keep(2_000), KEEP_OPEN);
        let now = Timestamp::constant(1_800_000_000, 0);
        // Its last records may still be on their way.
        assert!(!is_settled(now - SignedDuration::from_secs(1), now));
        assert!(is_settled(now - SETTLED_AFTER, now));
    }

    #[tokio::test(start_paused = true)]
    async fn accounts_of_unused_work_sessions_are_kept_for_a_while() {
        let (store, cache) = (MemoryStore::default(), AccountCache::default());
        let work = WorkSessionId::new(moment(12), [1; 10]);
        let one = TestSession {
            work_session: Some(work),
            ..TestSession::new(10)
        };
        use_tools(&store, &one).await;
        // A connection without a work session is always read again.
        use_tools(&store, &TestSession::new(30)).await;
        let soon = moment(50);
        let later = soon + UNUSED_AFTER;
        assert_eq!(n_searches(&cache, &store, soon).await, 1);
        let use_again = async |n: u8| {
            let mut call = call(session(run(1), 10).id, n + 1);
            call.work_session = Some(work);
            let of_work = Record::Searched(search(session(run(1), 10).id, n));
            let other = Record::Searched(search(session(run(1), 30).id, n + 2));
            let records = [of_work, Record::CallOpened(call), other];
            store.apply(&records).await.unwrap();
        };
        use_again(40).await;
        assert_eq!(n_searches(&cache, &store, soon).await, 3, "it is in use");
        assert_eq!(n_searches(&cache, &store, later).await, 3);
        use_again(60).await;
        assert_eq!(n_searches(&cache, &store, later).await, 4, "it is kept");
        tokio::time::advance(KEEP_ENDED).await;
        assert_eq!(n_searches(&cache, &store, later).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn other_prices_have_other_accounts() {
        let (store, cache) = (MemoryStore::default(), AccountCache::default());
        use_tools(&store, &TestSession::new(10)).await;
        let units = ActivityUnits::read(&store, moment(0), 9).await.unwrap();
        let default = CostModel::default();
        let free = CostModel {
            cached_read: 0.0,
            ..default
        };
        let mut avoided = Vec::new();
        for prices in [default, free, default] {
            let read = cache.of_units(&store, &units, &prices, moment(50)).await;
            avoided.push(read.unwrap()[0].lists.account.cost_avoided);
        }
        assert!((avoided[0] - avoided[1]).abs() > 0.0, "{avoided:?}");
        assert!(
            (avoided[0] - avoided[2]).abs() < f64::EPSILON,
            "{avoided:?}"
        );
    }
}
