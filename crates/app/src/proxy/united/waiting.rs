//! How long a member is waited for, and what happens when it comes after all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

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

/// The outcome of asking for a list.
pub(super) type Fetched = Result<Arc<MemberList>, String>;

/// The state of a question for a list.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// The member is asked when it has answered the question before.
    Queued,
    /// It is being asked.
    Asked,
    Answered(Fetched),
}

impl Question {
    pub(super) fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

/// The identity of a question: a kind of list, and the digest of the capabilities it is asked with.
type Questioned = (ListKind, [u8; 8]);
/// The most different questions to a member at a time in one session, each of which may be in
/// progress once and queued once.
const MAX_QUESTIONS: usize = 16;

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

/// The request whose answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Awaited {
    /// A handshake, or discovery in its place.
    Handshake,
    List(ListKind),
}

/// What a session remembers of a member's slowness.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Waiting {
    /// It was not there when it was waited for.
    was_late: AtomicBool,
    /// For how long it was waited for while nothing was known of it.
    spent: Mutex<HashMap<Awaited, Spent>>,
    /// Somebody looks whether it comes back.
    is_watched: AtomicBool,
    /// What it is being asked for.
    questions: Mutex<HashMap<Questioned, watch::Receiver<Question>>>,
}

/// The time that was spent on waiting.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    before: Duration,
    /// Since when somebody waits now.
    since: Option<Instant>,
    n_waiting: usize,
}

impl Spent {
    fn at(self, now: Instant) -> Duration {
        let current = self.since.map(|since| now.saturating_duration_since(since));
        self.before + current.unwrap_or_default()
    }
}

/// Somebody who waits for a member, as long as it lives.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    waiting: &'a Waiting,
    /// The request for which the time is counted, if it is.
    counted: Option<Awaited>,
    /// The longest time to wait.
    pub(super) limit: Duration,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut spent = self.waiting.spent();
        let Some(spent) = self.counted.and_then(|of| spent.get_mut(&of)) else {
            return;
        };
        spent.n_waiting = spent.n_waiting.saturating_sub(1);
        if spent.n_waiting == 0 {
            spent.before = spent.at(Instant::now());
            spent.since = None;
        }
    }
}

impl Waiting {
    /// Begins to wait for an answer of which an earlier one is known or not. For an upstream of which
    /// nothing is known the session waits `in_full`: for all handshakes and one kind of list together,
    /// and only the time counts for which it waited.
    pub(super) fn begin(&self, of: Awaited, standing: Standing, in_full: Duration) -> Wait<'_> {
        let short = match standing {
            Standing::Failing => PATIENCE_WITH_FAILING,
            Standing::Known if self.was_late.load(Ordering::Relaxed) => PATIENCE_WITH_SLOW,
            Standing::Known | Standing::Unknown => PATIENCE,
        };
        let short = short.min(in_full);
        if standing != Standing::Unknown {
            return Wait {
                waiting: self,
                counted: None,
                limit: short,
            };
        }
        let now = Instant::now();
        let mut spent = self.spent();
        let own = spent.entry(of).or_default();
        let so_far = own.at(now);
        own.n_waiting += 1;
        own.since.get_or_insert(now);
        let handshake = spent
            .get(&Awaited::Handshake)
            .filter(|_| of != Awaited::Handshake);
        let handshake = handshake.map_or(Duration::ZERO, |spent| spent.at(now));
        Wait {
            waiting: self,
            counted: Some(of),
            limit: in_full.saturating_sub(so_far + handshake).max(short),
        }
    }

    fn spent(&self) -> MutexGuard<'_, HashMap<Awaited, Spent>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the member was there in time.
    pub(super) fn note(&self, was_late: bool) {
        self.was_late.store(was_late, Ordering::Relaxed);
    }

    /// Returns a question for a list that stands for one that is asked now, or begins one with `begin`.
    /// One that is in progress stands for it only at a member that is not connected: of one that is,
    /// the answer could be from before a change. `begin` is given the question before, which has to be
    /// answered first. `None` is returned where too many different questions are in progress.
    pub(super) fn ask_once(
        &self,
        questioned: Questioned,
        is_connected: bool,
        begin: impl FnOnce(watch::Sender<Question>, Option<watch::Receiver<Question>>),
    ) -> Option<watch::Receiver<Question>> {
        let mut questions = self.questions();
        questions.retain(|_, asked| !is_over(asked));
        let before = questions.get(&questioned);
        if let Some(asked) = before
            && (!is_connected || matches!(*asked.borrow(), Question::Queued))
        {
            return Some(asked.clone());
        }
        if before.is_none() && questions.len() >= MAX_QUESTIONS {
            return None;
        }
        let (answer, asked) = watch::channel(Question::Queued);
        begin(answer, before.cloned());
        questions.insert(questioned, asked.clone());
        Some(asked)
    }

    /// Forgets the answers to questions; who waits for them has them.
    pub(super) fn forget(&self) {
        self.questions().retain(|_, asked| !is_over(asked));
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<Questioned, watch::Receiver<Question>>> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether nothing comes of a question any more.
fn is_over(asked: &watch::Receiver<Question>) -> bool {
    asked.borrow().is_answered() || asked.has_changed().is_err()
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
                let silent_for = session.caller.silent_for(std::time::Instant::now());
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

    const FULL: Duration = Duration::from_secs(10);
    const TOOLS: Awaited = Awaited::List(ListKind::Tools);
    const PROMPTS: Awaited = Awaited::List(ListKind::Prompts);

    /// Waits for an unknown upstream for so many seconds, and returns how long it might have been.
    async fn waited(waiting: &Waiting, of: Awaited, seconds: u64) -> Duration {
        let wait = waiting.begin(of, Standing::Unknown, FULL);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        wait.limit
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_upstream_is_waited_for_in_full_for_each_kind_of_list() {
        let waiting = Waiting::default();
        assert_eq!(waited(&waiting, Awaited::Handshake, 4).await, FULL);
        waiting.note(true);
        // A handshake that was waited for shortens the wait for the list behind it.
        assert_eq!(waited(&waiting, TOOLS, 2).await, Duration::from_secs(6));
        // Time in which nobody waits does not count.
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(waited(&waiting, TOOLS, 4).await, Duration::from_secs(4));
        assert_eq!(waited(&waiting, TOOLS, 1).await, PATIENCE);
        assert_eq!(waited(&waiting, PROMPTS, 1).await, Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_at_the_same_time_waits_once() {
        let waiting = Waiting::default();
        tokio::join!(
            waited(&waiting, TOOLS, 3),
            waited(&waiting, TOOLS, 2),
            waited(&waiting, TOOLS, 1),
        );
        assert_eq!(waited(&waiting, TOOLS, 0).await, Duration::from_secs(7));
    }

    #[test]
    fn what_is_known_or_failing_is_hardly_waited_for() {
        let waiting = Waiting::default();
        let wait = |standing, full| waiting.begin(TOOLS, standing, full).limit;
        assert_eq!(wait(Standing::Known, FULL), PATIENCE);
        assert_eq!(wait(Standing::Failing, FULL), PATIENCE_WITH_FAILING);
        assert_eq!(wait(Standing::Known, Duration::ZERO), Duration::ZERO);
        waiting.note(true);
        assert_eq!(wait(Standing::Known, FULL), PATIENCE_WITH_SLOW);
    }

    #[test]
    fn a_member_is_not_asked_any_number_of_different_questions() {
        let waiting = Waiting::default();
        let mut answers = Vec::new();
        let mut ask = |number: u8| {
            let questioned = (ListKind::Tools, [number; 8]);
            let begin = |answer, _| answers.push(answer);
            waiting.ask_once(questioned, true, begin).is_some()
        };
        assert_eq!(
            (0..100).filter(|number| ask(*number)).count(),
            MAX_QUESTIONS
        );
        answers.clear();
        assert!(
            waiting
                .ask_once((ListKind::Tools, [200; 8]), true, |_, _| {})
                .is_some()
        );
    }
}
