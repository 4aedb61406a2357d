//! What each work session used of its budget, in memory.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lru::LruCache;
use riglm_domain::invocation::CallSession;
use riglm_domain::safeguard::budget::{BudgetWatch, TokenUse, UsePart};

use crate::safeguards::CONNECTION_SILENCE;

/// How many work sessions are followed at a time; beyond that the most silent one is forgotten.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// How many pages of lists are remembered of one; beyond that it begins anew.
const MAX_PAGES: usize = 64;

/// The accounts of all work sessions.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<Accounts>);

/// The accounts, for a moment.
#[derive(Debug)]
pub(super) struct Accounts(LruCache<CallSession, Account>);

/// What is known of the budget of one work session.
#[derive(Debug)]
pub(super) struct Account {
    /// What was used.
    pub(super) used: TokenUse,
    /// The budget that the client said last.
    pub(super) said: Option<NonZeroU64>,
    /// What was said of it.
    pub(super) watch: BudgetWatch,
    /// The pages of lists that it was shown, by a hash.
    pages: HashSet<u64>,
    seen_at: Instant,
}

impl Account {
    fn new(at: Instant) -> Self {
        Self {
            used: TokenUse::default(),
            said: None,
            watch: BudgetWatch::default(),
            pages: HashSet::new(),
            seen_at: at,
        }
    }

    /// Returns whether the work session was not shown these tools, the text of a page, before.
    pub(super) fn is_news(&mut self, page: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        page.hash(&mut hasher);
        if self.pages.len() >= MAX_PAGES {
            self.pages.clear();
        }
        self.pages.insert(hasher.finish())
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self(Mutex::new(Accounts(LruCache::new(MAX_SESSIONS))))
    }
}

impl Ledger {
    pub(super) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what was counted in the place of an estimate, if the work session is still known.
    pub(super) fn correct(
        &self,
        together: CallSession,
        part: UsePart,
        (estimated, counted): (u64, u64),
    ) {
        if let Some(account) = self.accounts().0.peek_mut(&together) {
            account.used.correct(part, estimated, counted);
        }
    }
}

impl Accounts {
    /// Returns the account of a work session that is active at a moment.
    pub(super) fn of(&mut self, together: CallSession, at: Instant) -> &mut Account {
        let account = self.0.get_or_insert_mut(together, || Account::new(at));
        let silence = at.saturating_duration_since(account.seen_at);
        if matches!(together, CallSession::Connection(_)) && silence > CONNECTION_SILENCE {
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

    fn session(n: i64) -> CallSession {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(n);
        CallSession::Connection(SessionId::new(at, [1; 10]))
    }

    fn results(n: u64) -> TokenUse {
        TokenUse {
            results: n,
            ..TokenUse::default()
        }
    }

    #[test]
    fn the_most_silent_work_session_is_forgotten_and_no_count_comes_back_to_it() {
        let ledger = Ledger::default();
        let at = Instant::now();
        for n in 0..=4_096 {
            let mut accounts = ledger.accounts();
            accounts.of(session(n), at).used.add(UsePart::Results, 10);
        }
        assert_eq!(ledger.accounts().0.len(), 4_096);
        ledger.correct(session(0), UsePart::Results, (10, 20));
        ledger.correct(session(1), UsePart::Results, (10, 20));
        assert_eq!(ledger.accounts().of(session(1), at).used, results(20));
        assert_eq!(ledger.accounts().of(session(0), at).used, results(0));
    }

    #[test]
    fn a_connection_begins_anew_after_a_silence_and_a_work_session_does_not() {
        let (ledger, start) = (Ledger::default(), Instant::now());
        let work = CallSession::Work(WorkSessionId::new(Timestamp::UNIX_EPOCH, [1; 10]));
        let silent = start + CONNECTION_SILENCE;
        let later = silent + CONNECTION_SILENCE + Duration::from_nanos(1);
        for (together, n_later) in [(session(1), 0), (work, 7)] {
            let used = |at| ledger.accounts().of(together, at).used.total();
            ledger.accounts().of(together, start).used = results(7);
            assert_eq!((used(silent), used(later)), (7, n_later));
        }
        // A clock that goes back changes nothing.
        ledger.accounts().of(work, start);
        assert_eq!(ledger.accounts().of(work, later).used.total(), 7);
    }
}
