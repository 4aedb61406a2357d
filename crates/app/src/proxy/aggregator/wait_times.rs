//! The timeouts for upstreams that a session asks for a list or a handshake, and the retries after
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::resilience::{Backoff, FailureStreak};
use tokio::sync::watch;

use crate::proxy::aggregator::changes::all_changed_at;
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::ListFetchError;
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_cache::CachedList;
use crate::proxy::upstream_session::UpstreamSession;

/// The timeout for an upstream with a cached answer. If its new answer differs, the client is
/// notified later.
const KNOWN_TIMEOUT: Duration = Duration::from_millis(150);
/// The timeout for an upstream with a cached answer that was late before in this session.
const SLOW_TIMEOUT: Duration = Duration::from_millis(10);
/// The timeout for an upstream whose last connection attempt failed. A background task retries it.
const FAILING_TIMEOUT: Duration = Duration::from_millis(50);
/// The back-off before a failed upstream is asked again.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The outcome of fetching a list.
pub(super) type FetchResult = Result<Arc<CachedList>, ListFetchError>;

/// The state of a question for a list.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Waits until the upstream has answered the previous question.
    Queued,
    /// Sent to the upstream.
    Asked,
    Answered(FetchResult),
}

impl Question {
    pub(super) fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

/// The identity of a question: the kind of list, and the digest of the client's capabilities.
type QuestionKey = (ListKind, [u8; 8]);
/// The maximum number of different questions to an upstream in one session. Each may be in progress
/// once and queued once.
const MAX_QUESTIONS: usize = 16;

/// The state of an upstream before waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamStanding {
    /// The last attempt to connect failed.
    Failing,
    /// An earlier answer to the request is cached.
    Known,
    /// No answer is cached.
    Unknown,
}

/// The waiting times of one upstream in a session.
#[derive(Debug, Default)]
pub(in crate::proxy) struct WaitTimes {
    /// Whether it was late the last time.
    was_late: AtomicBool,
    /// Whether a background task retries it.
    is_watched: AtomicBool,
    /// The questions in progress.
    questions: Mutex<HashMap<QuestionKey, watch::Receiver<Question>>>,
}

impl WaitTimes {
    /// Returns the time to wait for an answer. `in_full` is the time for an answer that is not known.
    pub(super) fn limit(&self, standing: UpstreamStanding, in_full: Duration) -> Duration {
        match standing {
            UpstreamStanding::Failing => FAILING_TIMEOUT,
            UpstreamStanding::Known if self.was_late.load(Ordering::Relaxed) => SLOW_TIMEOUT,
            UpstreamStanding::Known => KNOWN_TIMEOUT,
            UpstreamStanding::Unknown => in_full.max(KNOWN_TIMEOUT),
        }
    }

    /// Registers whether the upstream was late.
    pub(super) fn note_late(&self, was_late: bool) {
        self.was_late.store(was_late, Ordering::Relaxed);
    }

    /// Returns the receiver of a question for a list. Shares a queued question, or starts a new one
    /// with `begin`. A question in progress is shared only while the upstream is not connected,
    /// because the answer of a connected one may be older than a change. `begin` gets the previous
    /// question, which has to be answered first. Returns `None` if too many different questions are
    /// in progress.
    pub(super) fn ask_once(
        &self,
        questioned: QuestionKey,
        is_connected: bool,
        begin: impl FnOnce(watch::Sender<Question>, Option<watch::Receiver<Question>>),
    ) -> Option<watch::Receiver<Question>> {
        let mut questions = self.questions.lock();
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

    /// Removes answered questions. Their receivers keep the answers.
    pub(super) fn forget(&self) {
        self.questions.lock().retain(|_, asked| !is_over(asked));
    }
}

/// Returns whether a question is answered or abandoned.
fn is_over(asked: &watch::Receiver<Question>) -> bool {
    asked.borrow().is_answered() || asked.has_changed().is_err()
}

/// Retries a failed upstream while the client is present, and notifies the client when the
/// upstream is back.
pub(super) fn watch_for_return<F>(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    ask: impl Fn(Arc<ClientSession>) -> F + Send + 'static,
) where
    F: Future<Output = bool> + Send,
{
    if member.waiting.is_watched.swap(true, Ordering::AcqRel) {
        return;
    }
    let session = Arc::downgrade(session);
    let member = Arc::clone(member);
    crate::proxy::log_spans::spawn(async move {
        let mut failures = FailureStreak::new(BACKOFF);
        loop {
            tokio::time::sleep(failures.record_failure(fastrand::f64())).await;
            let Some(session) = session.upgrade() else {
                return;
            };
            if session.is_closed() || member.is_closed() {
                return;
            }
            // The retries must not keep a process alive for a client that is gone.
            let silent_for = session.client_context.silent_for(std::time::Instant::now());
            let idle_timeout = member.scope.entry.upstream.options.idle_timeout;
            let is_gone = silent_for.is_some_and(|silent| silent >= idle_timeout);
            let is_back = !is_gone && ask(Arc::clone(&session)).await;
            if is_back || is_gone {
                member.waiting.is_watched.store(false, Ordering::Release);
            }
            if is_back {
                all_changed_at(&session, &member);
            }
            if is_back || is_gone {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_or_failing_upstreams_get_short_timeouts() {
        let waiting = WaitTimes::default();
        let limit = |standing| waiting.limit(standing, Duration::from_secs(10));
        assert_eq!(limit(UpstreamStanding::Known), KNOWN_TIMEOUT);
        assert_eq!(limit(UpstreamStanding::Failing), FAILING_TIMEOUT);
        assert_eq!(limit(UpstreamStanding::Unknown), Duration::from_secs(10));
        waiting.note_late(true);
        assert_eq!(limit(UpstreamStanding::Known), SLOW_TIMEOUT);
    }

    #[test]
    fn distinct_requests_to_an_upstream_are_limited_in_number() {
        let waiting = WaitTimes::default();
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
