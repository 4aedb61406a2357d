//! How long a member is waited for, and what happens when it comes after all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::catalog::MemberList;
use super::list_kind::ListKind;
use crate::proxy::member::Member;
use crate::proxy::session::ClientSession;

/// The wait for an upstream of which the answer to the same request is known. If its new answer
/// differs, clients are told when it comes.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same for one that the session has waited for in vain before.
const PATIENCE_WITH_SLOW: Duration = Duration::from_millis(10);
/// The wait for an upstream that could not be reached the last time. Somebody looks whether it is
/// back.
const PATIENCE_WITH_FAILING: Duration = Duration::from_millis(50);
/// The wait before a member that failed is asked again; it doubles up to the longest.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(30);

/// What came of asking for a list; nothing yet.
pub(super) type Fetched = Option<Result<Arc<MemberList>, String>>;

/// What is known of an upstream that is going to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The last attempt to reach it failed.
    Failing,
    /// An earlier answer to the request is known.
    Known,
    /// None is known.
    Unknown,
}

/// What a session remembers of a member's slowness.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Waiting {
    /// It was not there when it was waited for.
    was_late: AtomicBool,
    /// The session waits until then for an upstream of which nothing is known.
    deadline: OnceLock<Instant>,
    /// Somebody looks whether it comes back.
    is_watched: AtomicBool,
    /// What it is being asked for.
    fetches: Mutex<HashMap<ListKind, watch::Receiver<Fetched>>>,
}

impl Waiting {
    /// Returns how long to wait at `now` for an answer of which an earlier one is known or not. For
    /// an upstream of which nothing is known the session waits `in_full`, in all its requests
    /// together.
    pub(super) fn patience(&self, standing: Standing, in_full: Duration, now: Instant) -> Duration {
        let short = match standing {
            Standing::Failing => PATIENCE_WITH_FAILING,
            Standing::Known if self.was_late.load(Ordering::Relaxed) => PATIENCE_WITH_SLOW,
            Standing::Known | Standing::Unknown => PATIENCE,
        };
        let short = short.min(in_full);
        if standing != Standing::Unknown {
            return short;
        }
        let deadline = *self.deadline.get_or_init(|| now + in_full);
        deadline.saturating_duration_since(now).max(short)
    }

    /// Notes whether the member was there in time.
    pub(super) fn note(&self, was_late: bool) {
        self.was_late.store(was_late, Ordering::Relaxed);
    }

    /// Returns the question for a list that is on its way, or begins one with `begin`. Only to a
    /// member that is not connected nobody asks twice: of one that is, an older answer could be from
    /// before a change.
    pub(super) fn ask_once(
        &self,
        kind: ListKind,
        is_connected: bool,
        begin: impl FnOnce(watch::Sender<Fetched>),
    ) -> watch::Receiver<Fetched> {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_connected
            && let Some(asked) = fetches.get(&kind)
            && asked.borrow().is_none()
            && asked.has_changed().is_ok()
        {
            return asked.clone();
        }
        let (answer, asked) = watch::channel(None);
        begin(answer);
        fetches.insert(kind, asked.clone());
        asked
    }

    /// Forgets the answers to questions; who waits for them has them.
    pub(super) fn forget(&self, kind: ListKind) {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        let is_answered = |asked: &watch::Receiver<Fetched>| asked.borrow().is_some();
        if fetches.get(&kind).is_some_and(is_answered) {
            fetches.remove(&kind);
        }
    }
}

impl ClientSession {
    /// Asks a member that failed again and again, as long as the client is there, and tells the
    /// client when the member is back.
    pub(super) fn watch_for_return<F>(
        self: &Arc<Self>,
        member: &Arc<Member>,
        ask: impl Fn(Arc<Self>) -> F + Send + 'static,
    ) where
        F: Future<Output = bool> + Send,
    {
        if member.waiting.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = Arc::downgrade(self);
        let member = Arc::clone(member);
        tokio::spawn(async move {
            let mut delay = FIRST_DELAY;
            loop {
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LAST_DELAY);
                let Some(session) = session.upgrade() else {
                    return;
                };
                if session.is_closed() || member.relay.is_closed() {
                    return;
                }
                // A client that is gone must not keep a process running by this.
                let silent_for = session.caller.silent_for(Instant::now());
                let idle_timeout = member.relay.entry.upstream.options.idle_timeout;
                let is_gone = silent_for.is_some_and(|silent| silent >= idle_timeout);
                let is_back = !is_gone && ask(Arc::clone(&session)).await;
                if is_back || is_gone {
                    member.waiting.is_watched.store(false, Ordering::Release);
                }
                if is_back {
                    session.all_changed_at(&member);
                }
                if is_back || is_gone {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_upstream_is_waited_for_in_full_and_once() {
        let waiting = Waiting::default();
        let (full, start) = (Duration::from_secs(10), Instant::now());
        let at = |after: u64| {
            let now = start + Duration::from_secs(after);
            waiting.patience(Standing::Unknown, full, now)
        };
        assert_eq!(at(0), full);
        // A handshake that was waited for does not shorten the wait for the list behind it to less
        // than what is left.
        waiting.note(true);
        assert_eq!(at(4), Duration::from_secs(6));
        assert_eq!(at(20), PATIENCE);
    }

    #[test]
    fn what_is_known_or_failing_is_hardly_waited_for() {
        let waiting = Waiting::default();
        let full = Duration::from_secs(10);
        let wait = |standing, full| waiting.patience(standing, full, Instant::now());
        assert_eq!(wait(Standing::Known, full), PATIENCE);
        assert_eq!(wait(Standing::Failing, full), PATIENCE_WITH_FAILING);
        assert_eq!(wait(Standing::Known, Duration::ZERO), Duration::ZERO);
        waiting.note(true);
        assert_eq!(wait(Standing::Known, full), PATIENCE_WITH_SLOW);
    }
}
