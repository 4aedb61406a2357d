//! The token use of work sessions, in memory.

use std::collections::HashSet;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Instant;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use riglm_domain::safeguards::budget::{BudgetTracker, TokenUse, TokenUseKind};
use riglm_domain::usage::invocation::SessionKey;

use crate::safeguards::CONNECTION_SILENCE;

/// The most work sessions in memory; the least recently used is dropped.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
// The most pages of lists for each session. A full set is cleared, so that a page may count twice.
const MAX_PAGES: usize = 64;

/// The accounts of all work sessions.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<Accounts>);

#[derive(Debug)]
pub(super) struct Accounts(LruCache<SessionKey, Account>);

/// The token account of one work session.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) used: TokenUse,
    /// The last budget that the client declared.
    pub(super) said: Option<NonZeroU64>,
    /// The notices so far.
    pub(super) watch: BudgetTracker,
    /// Hashes of the list pages that the session was shown.
    pages: HashSet<u64>,
    seen_at: Instant,
}

impl Account {
    fn new(at: Instant) -> Self {
        Self {
            used: TokenUse::default(),
            said: None,
            watch: BudgetTracker::default(),
            pages: HashSet::new(),
            seen_at: at,
        }
    }

    /// Returns whether a page of tools with this digest is new for the work session.
    pub(super) fn is_new_page(&mut self, digest: u64) -> bool {
        if self.pages.len() >= MAX_PAGES {
            self.pages.clear();
        }
        self.pages.insert(digest)
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self(Mutex::new(Accounts(LruCache::new(MAX_SESSIONS))))
    }
}

impl Ledger {
    pub(super) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock()
    }

    /// Replaces an estimate by a count, if the work session is still known.
    pub(super) fn correct(
        &self,
        session_key: SessionKey,
        part: TokenUseKind,
        estimated: u64,
        counted: u64,
    ) {
        if let Some(account) = self.accounts().0.peek_mut(&session_key) {
            account.used.correct(part, estimated, counted);
        }
    }
}

impl Accounts {
    /// Returns the account of a work session that is active at this time.
    pub(super) fn of(&mut self, session_key: SessionKey, at: Instant) -> &mut Account {
        let account = self.0.get_or_insert_mut(session_key, || Account::new(at));
        let silence = at.saturating_duration_since(account.seen_at);
        if matches!(session_key, SessionKey::Connection(_)) && silence > CONNECTION_SILENCE {
            *account = Account::new(at);
        }
        account.seen_at = account.seen_at.max(at);
        account
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::{SignedDuration, Timestamp};
    use riglm_domain::id::{SessionId, WorkSessionId};

    use super::*;

    fn session(n: i64) -> SessionKey {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(n);
        SessionKey::Connection(SessionId::new(at, [1; 10]))
    }

    fn results(n: u64) -> TokenUse {
        TokenUse {
            results: n,
            ..TokenUse::default()
        }
    }

    #[test]
    fn idle_work_sessions_are_evicted_and_late_corrections_ignored() {
        let ledger = Ledger::default();
        let at = Instant::now();
        for n in 0..=4_096 {
            let mut accounts = ledger.accounts();
            accounts
                .of(session(n), at)
                .used
                .add(TokenUseKind::Results, 10);
        }
        assert_eq!(ledger.accounts().0.len(), 4_096);
        ledger.correct(session(0), TokenUseKind::Results, 10, 20);
        ledger.correct(session(1), TokenUseKind::Results, 10, 20);
        assert_eq!(ledger.accounts().of(session(1), at).used, results(20));
        assert_eq!(ledger.accounts().of(session(0), at).used, results(0));
    }

    #[test]
    fn silence_resets_the_token_use_of_connections_only() {
        let (ledger, start) = (Ledger::default(), Instant::now());
        let work = SessionKey::Work(WorkSessionId::new(Timestamp::UNIX_EPOCH, [1; 10]));
        let silent = start + CONNECTION_SILENCE;
        let later = silent + CONNECTION_SILENCE + Duration::from_nanos(1);
        for (session_key, n_later) in [(session(1), 0), (work, 7)] {
            let used = |at| ledger.accounts().of(session_key, at).used.total();
            ledger.accounts().of(session_key, start).used = results(7);
            assert_eq!((used(silent), used(later)), (7, n_later));
        }
        // A clock that goes back changes nothing.
        ledger.accounts().of(work, start);
        assert_eq!(ledger.accounts().of(work, later).used.total(), 7);
    }
}
