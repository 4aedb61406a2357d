//! The connection of one session to its upstream. It is opened at the first message and reopened
//! after a loss, with a replay of the client's handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::watch;

use crate::proxy::connection_permits::ConnectionPermit;

/// The lifetime after which a connection counts as sound. Its loss restarts the back-off.
const SOUND_AFTER: Duration = Duration::from_secs(10);
/// The back-off between two attempts. The first retry does not wait.
const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(30)).with_immediate_retry();
/// The maximum time that a message waits for the next attempt. If more is left, it is refused at
/// once.
const RETRY_WAIT_LIMIT: Duration = Duration::from_secs(2);

/// The reason of a refusal during the back-off. The failed attempt itself was reported before.
pub(crate) const RETRY_LATER: &str = "repeated failures; next attempt after a back-off";

/// The time within which the loss of a connection is reported after a failed message.
const REPORT_WITHIN: Duration = Duration::from_millis(250);

/// An open connection and its generation.
#[derive(Debug)]
pub(crate) struct LiveConnection {
    pub(crate) link: Arc<dyn UpstreamLink>,
    /// Its number, from 1.
    pub(crate) generation: u64,
    /// The side that makes the handshake.
    set_up: SetUp,
    /// Whether `notifications/initialized` was sent for the handshake of the proxy.
    is_told: AtomicBool,
    _slot: ConnectionPermit,
}

/// The side that makes the handshake on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetUp {
    /// The client, whose messages are forwarded.
    ByClient,
    /// The proxy, which replays the earlier messages of the client.
    ByProxy,
}

impl LiveConnection {
    /// Marks that the client makes a handshake itself, whose completion must be sent.
    pub(crate) fn begin_handshake(&self) {
        self.is_told.store(false, Ordering::Release);
    }

    /// Returns whether `notifications/initialized` must be sent, and counts it as sent. Returns
    /// true once if the proxy makes the handshake, and always if the client does.
    pub(crate) fn takes_completion(&self) -> bool {
        self.set_up == SetUp::ByClient || !self.is_told.swap(true, Ordering::AcqRel)
    }
}

/// Waits for work that needs an answer of a server. `limit` does not count while the server is still
/// starting. Returns `None` after the limit.
pub(in crate::proxy) async fn answered_within<T>(
    link: &dyn UpstreamLink,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(limit, &mut work).await {
            return Some(done);
        }
        let left = link.time_to_start().filter(|left| !left.is_zero())?;
        if let Ok(done) = tokio::time::timeout(left, &mut work).await {
            return Some(done);
        }
    }
}

/// The upstream connection of a session, with its back-off.
#[derive(Debug)]
pub(crate) struct Connection {
    connector: Arc<dyn UpstreamConnector>,
    principal: Principal,
    current: ArcSwapOption<LiveConnection>,
    newest: AtomicU64,
    newest_dead: watch::Sender<u64>,
    connecting: tokio::sync::Mutex<()>,
    attempts: Mutex<Attempts>,
}

/// The attempts to connect.
#[derive(Debug)]
struct Attempts {
    failures: FailureStreak,
    /// The time when the last connection was opened, if it is not lost yet.
    opened: Option<Instant>,
    /// The time of the next attempt after a failure.
    retry: Option<Instant>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            failures: FailureStreak::new(BACKOFF).with_sound_lifetime(SOUND_AFTER),
            opened: None,
            retry: None,
        }
    }
}

impl Attempts {
    /// Registers a failed attempt, or the loss of the open connection.
    fn record_failure(&mut self, now: Instant, random: f64) {
        let opened = self.opened.take();
        let lifetime = opened.map(|opened| now.saturating_duration_since(opened));
        let wait = (self.failures).record_loss(lifetime.unwrap_or_default(), random);
        self.retry = Some(now + wait);
    }
}

impl Connection {
    /// Returns the state without a connection.
    pub(crate) fn new(connector: Arc<dyn UpstreamConnector>, principal: Principal) -> Self {
        Self {
            connector,
            principal,
            current: ArcSwapOption::empty(),
            newest: AtomicU64::new(0),
            newest_dead: watch::Sender::new(0),
            connecting: tokio::sync::Mutex::new(()),
            attempts: Mutex::default(),
        }
    }

    pub(crate) fn current(&self) -> Option<Arc<LiveConnection>> {
        self.current.load_full()
    }

    /// Registers the loss of a connection, also if it was never the current one.
    pub(crate) fn note_lost(&self, generation: u64) {
        (self.newest_dead).send_modify(|dead| *dead = generation.max(*dead));
        self.drop_if(generation);
        self.count_failure();
    }

    /// Returns whether the connection of this generation was lost.
    pub(crate) fn is_dead(&self, generation: u64) -> bool {
        *self.newest_dead.borrow() >= generation
    }

    /// Returns whether the connection of this generation is no longer the current one.
    pub(crate) fn is_replaced(&self, generation: u64) -> bool {
        self.current()
            .is_none_or(|current| current.generation != generation)
    }

    /// Waits briefly for the report of a lost connection and returns whether it came. Sending may
    /// fail shortly before the loss is reported.
    pub(crate) async fn is_dying(&self, generation: u64) -> bool {
        let mut dead = self.newest_dead.subscribe();
        let died = dead.wait_for(|dead| *dead >= generation);
        matches!(tokio::time::timeout(REPORT_WITHIN, died).await, Ok(Ok(_)))
    }

    /// Acquires the lock for connecting, so that only one attempt runs at a time.
    pub(crate) async fn lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// Opens a connection. `events` returns the event receiver for its generation. The connection
    /// becomes the current one only with [`Self::publish`].
    pub(crate) async fn open(
        &self,
        slot: ConnectionPermit,
        set_up: SetUp,
        events: impl FnOnce(u64) -> Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<LiveConnection>, UpstreamError> {
        let wait = {
            let attempts = self.attempts.lock();
            (attempts.retry).map(|retry| retry.saturating_duration_since(Instant::now()))
        };
        match wait {
            Some(wait) if wait > RETRY_WAIT_LIMIT => {
                return Err(UpstreamError::Unreachable {
                    reason: RETRY_LATER,
                });
            }
            Some(wait) if !wait.is_zero() => tokio::time::sleep(wait).await,
            _ => {}
        }
        // Events may arrive before the connector returns, so the generation is assigned first.
        let generation = self.newest.fetch_add(1, Ordering::AcqRel) + 1;
        let opened = self.connector.connect(&self.principal, events(generation));
        match opened.await {
            Ok(link) => {
                let mut attempts = self.attempts.lock();
                attempts.opened = Some(Instant::now());
                Ok(Arc::new(LiveConnection {
                    link,
                    generation,
                    set_up,
                    is_told: AtomicBool::new(false),
                    _slot: slot,
                }))
            }
            Err(error) => {
                self.count_failure();
                Err(error)
            }
        }
    }

    /// Makes an opened connection the current one.
    pub(crate) fn publish(&self, live: Arc<LiveConnection>) {
        self.current.store(Some(live));
    }

    /// Removes the connection if it still has this generation.
    pub(crate) fn drop_if(&self, generation: u64) -> Option<Arc<LiveConnection>> {
        let current = self.current.load_full()?;
        if current.generation != generation {
            return None;
        }
        self.current.store(None);
        Some(current)
    }

    /// Removes the connection permanently.
    pub(crate) fn take(&self) -> Option<Arc<LiveConnection>> {
        self.current.swap(None)
    }

    /// Counts a failed attempt for the back-off.
    pub(crate) fn count_failure(&self) {
        let mut attempts = self.attempts.lock();
        attempts.record_failure(Instant::now(), fastrand::f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_is_at_once_and_later_ones_wait_longer() {
        let delays: Vec<_> = (1..=4).map(|n| BACKOFF.delay(n, 0.0).as_millis()).collect();
        assert_eq!(delays, [0, 100, 200, 400]);
        assert_eq!(BACKOFF.delay(u32::MAX, 0.0), Duration::from_secs(30));
    }

    #[test]
    fn a_stable_connection_resets_the_failure_count() {
        let start = Instant::now();
        let mut attempts = Attempts::default();
        attempts.record_failure(start, 0.0);
        attempts.record_failure(start, 0.0);
        assert_eq!(attempts.failures.n_failures(), 2);
        attempts.opened = Some(start);
        attempts.record_failure(start + SOUND_AFTER, 0.0);
        assert_eq!(attempts.failures.n_failures(), 1);
    }
}
