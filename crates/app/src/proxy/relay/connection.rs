//! The connection of one session to its upstream: made at the first message, made again after a
//! loss, with the client's own handshake played back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::watch;

use crate::proxy::slots::Slot;

/// A connection that lived this long was sound: the next loss starts the back-off anew.
const SOUND_AFTER: Duration = Duration::from_secs(10);
/// The wait before the second attempt; each further one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest wait between two attempts.
const LAST_DELAY: Duration = Duration::from_secs(30);
/// A message waits this long for the next attempt; with more to go it is refused at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why nothing is tried now. Why that is so was said when it was tried.
pub(crate) const LATER: &str = "it failed repeatedly and is tried again later";

/// How much later than a failed message the loss of a connection may be reported.
const REPORT_WITHIN: Duration = Duration::from_millis(250);

/// One connection that is up, and which one it is.
#[derive(Debug)]
pub(crate) struct Live {
    /// The sending half.
    pub(crate) link: Arc<dyn UpstreamLink>,
    /// Its number, from 1.
    pub(crate) generation: u64,
    /// Who makes the handshake on it.
    set_up: SetUp,
    /// Whether it was told that the handshake which the proxy made is complete.
    is_told: AtomicBool,
    /// Its place among the connections of the upstream.
    _slot: Slot,
}

/// Who makes the handshake on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetUp {
    /// The client, whose messages pass.
    ByClient,
    /// The proxy, which plays back what the client said before.
    ByProxy,
}

impl Live {
    /// Notes that the client makes a handshake on it itself, whose completion is to be told.
    pub(crate) fn begin_handshake(&self) {
        self.is_told.store(false, Ordering::Release);
    }

    /// Returns whether the completion of the handshake has still to be told, and counts as telling
    /// it: once only where the proxy made the handshake, always where the client does.
    pub(crate) fn takes_completion(&self) -> bool {
        self.set_up == SetUp::ByClient || !self.is_told.swap(true, Ordering::AcqRel)
    }
}

/// The place of a session's upstream connection.
#[derive(Debug)]
pub(crate) struct Connection {
    connector: Arc<dyn UpstreamConnector>,
    principal: Principal,
    current: ArcSwapOption<Live>,
    newest: AtomicU64,
    newest_dead: watch::Sender<u64>,
    connecting: tokio::sync::Mutex<()>,
    backoff: Mutex<Backoff>,
}

#[derive(Debug, Default)]
struct Backoff {
    n_failures: u32,
    opened: Option<Instant>,
    retry: Option<Instant>,
}

impl Backoff {
    fn failed(&mut self, now: Instant) {
        let was_sound = self
            .opened
            .take()
            .is_some_and(|opened| now.saturating_duration_since(opened) >= SOUND_AFTER);
        self.n_failures = if was_sound {
            1
        } else {
            self.n_failures.saturating_add(1)
        };
        self.retry = Some(now + delay_after(self.n_failures));
    }
}

/// Returns the wait after that many failures in a row: none after the first, then doubling.
fn delay_after(n_failures: u32) -> Duration {
    match n_failures {
        0 | 1 => Duration::ZERO,
        n => FIRST_DELAY
            .saturating_mul(1 << (n - 2).min(16))
            .min(LAST_DELAY),
    }
}

impl Connection {
    /// Returns a place with no connection in it.
    pub(crate) fn new(connector: Arc<dyn UpstreamConnector>, principal: Principal) -> Self {
        Self {
            connector,
            principal,
            current: ArcSwapOption::empty(),
            newest: AtomicU64::new(0),
            newest_dead: watch::Sender::new(0),
            connecting: tokio::sync::Mutex::new(()),
            backoff: Mutex::default(),
        }
    }

    /// Returns the connection that is up.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        self.current.load_full()
    }

    /// Notes that a connection was lost, also before it became the current one.
    pub(crate) fn lost(&self, generation: u64) {
        self.newest_dead
            .send_modify(|dead| *dead = generation.max(*dead));
        self.drop_if(generation);
        self.failed();
    }

    /// Returns whether that connection was lost.
    pub(crate) fn is_dead(&self, generation: u64) -> bool {
        *self.newest_dead.borrow() >= generation
    }

    /// Returns whether another connection took its place, or none did.
    pub(crate) fn is_replaced(&self, generation: u64) -> bool {
        self.current()
            .is_none_or(|current| current.generation != generation)
    }

    /// Waits a moment for the report that a connection was lost, and returns whether it was: a
    /// message may find the way closed a little before that is reported.
    pub(crate) async fn is_dying(&self, generation: u64) -> bool {
        let mut dead = self.newest_dead.subscribe();
        let died = dead.wait_for(|dead| *dead >= generation);
        matches!(tokio::time::timeout(REPORT_WITHIN, died).await, Ok(Ok(_)))
    }

    /// Waits for the right to connect; who holds it is the only one.
    pub(crate) async fn lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// Opens a connection whose events go to what `events` returns for its number. It does not
    /// become the current one before [`Self::publish`].
    pub(crate) async fn open(
        &self,
        slot: Slot,
        set_up: SetUp,
        events: impl FnOnce(u64) -> Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<Live>, UpstreamError> {
        let wait = {
            let backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
            backoff
                .retry
                .map(|retry| retry.saturating_duration_since(Instant::now()))
        };
        match wait {
            Some(wait) if wait > PATIENCE => {
                return Err(UpstreamError::Unreachable { reason: LATER });
            }
            Some(wait) if !wait.is_zero() => tokio::time::sleep(wait).await,
            _ => {}
        }
        let generation = self.newest.fetch_add(1, Ordering::AcqRel) + 1;
        let opened = self.connector.connect(&self.principal, events(generation));
        match opened.await {
            Ok(link) => {
                let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
                backoff.opened = Some(Instant::now());
                Ok(Arc::new(Live {
                    link,
                    generation,
                    set_up,
                    is_told: AtomicBool::new(false),
                    _slot: slot,
                }))
            }
            Err(error) => {
                self.failed();
                Err(error)
            }
        }
    }

    /// Makes an opened connection the current one.
    pub(crate) fn publish(&self, live: Arc<Live>) {
        self.current.store(Some(live));
    }

    /// Takes the connection away if it is still that one.
    pub(crate) fn drop_if(&self, generation: u64) -> Option<Arc<Live>> {
        let current = self.current.load_full()?;
        if current.generation != generation {
            return None;
        }
        self.current.store(None);
        Some(current)
    }

    /// Takes the connection away for good.
    pub(crate) fn take(&self) -> Option<Arc<Live>> {
        self.current.swap(None)
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&self) {
        let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
        backoff.failed(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_at_once_and_later_ones_wait_longer() {
        let delays: Vec<_> = (1..=4).map(|n| delay_after(n).as_millis()).collect();
        assert_eq!(delays, [0, 100, 200, 400]);
        assert_eq!(delay_after(u32::MAX), LAST_DELAY);
    }

    #[test]
    fn a_loss_after_a_sound_connection_starts_anew() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.failed(start);
        backoff.failed(start);
        assert_eq!(backoff.n_failures, 2);
        backoff.opened = Some(start);
        backoff.failed(start + SOUND_AFTER);
        assert_eq!(backoff.n_failures, 1);
    }
}
