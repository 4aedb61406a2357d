//! How long a member is waited for, and what happens when it comes after all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::catalog::MemberList;
use super::list_kind::ListKind;
use crate::proxy::member::Member;
use crate::proxy::session::ClientSession;

/// How long an upstream is waited for whose list is known already, or that let the session wait
/// before. A change that it is too slow to tell of in this time is told when it comes.
const PATIENCE: Duration = Duration::from_millis(250);
/// The same for one of which both is true: it will hardly be faster now.
const PATIENCE_WITH_SLOW: Duration = Duration::from_millis(10);
/// The wait before a member that failed is asked again; it doubles up to the longest.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(30);

/// What came of asking for a list; nothing yet.
pub(super) type Fetched = Option<Result<Arc<MemberList>, String>>;

/// What a session remembers of a member's slowness.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Waiting {
    /// It was not there when it was waited for.
    was_late: AtomicBool,
    /// Somebody looks whether it comes back.
    is_watched: AtomicBool,
    /// What it is being asked for.
    fetches: Mutex<HashMap<ListKind, watch::Receiver<Fetched>>>,
}

impl Waiting {
    /// Returns how long to wait: in full once a session for an upstream of which nothing is known.
    pub(super) fn patience(&self, is_known: bool, in_full: Duration) -> Duration {
        let was_late = self.was_late.load(Ordering::Relaxed);
        match (is_known, was_late) {
            (false, false) => in_full,
            (true, true) => PATIENCE_WITH_SLOW,
            _ => PATIENCE.min(in_full),
        }
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
                    session.all_changed();
                }
                if is_back || is_gone {
                    return;
                }
            }
        });
    }
}
