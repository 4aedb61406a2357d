//! The connection of one session to its upstream. It is opened at the first message and reopened
//! after a loss, with a replay of the client's handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio::sync::watch;

use crate::proxy::connection_permits::ConnectionPermit;

/// The lifetime after which a connection counts as sound. Its loss restarts the back-off.
const SOUND_AFTER: Duration = Duration::from_secs(10);
/// The back-off before the second retry. It doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The maximum back-off between two attempts.
const LAST_DELAY: Duration = Duration::from_secs(30);
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

/// The upstream connection of a session, with its back-off.
#[derive(Debug)]
pub(crate) struct Connection {
    connector: Arc<dyn UpstreamConnector>,
    principal: Principal,
    current: ArcSwapOption<LiveConnection>,
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
    fn record_failure(&mut self, now: Instant) {
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

/// Returns the back-off after that many consecutive failures: none after the first, then doubling.
fn delay_after(n_failures: u32) -> Duration {
    match n_failures {
        0 | 1 => Duration::ZERO,
        n => FIRST_DELAY
            // The shift is limited to avoid an overflow.
            .saturating_mul(1 << (n - 2).min(16))
            .min(LAST_DELAY),
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
            backoff: Mutex::default(),
        }
    }

    pub(crate) fn current(&self) -> Option<Arc<LiveConnection>> {
        self.current.load_full()
    }

    /// Registers the loss of a connection, also if it was never the current one.
    pub(crate) fn note_lost(&self, generation: u64) {
        self.newest_dead
            .send_modify(|dead| *dead = generation.max(*dead));
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
            let backoff = self.backoff.lock();
            backoff
                .retry
                .map(|retry| retry.saturating_duration_since(Instant::now()))
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
                let mut backoff = self.backoff.lock();
                backoff.opened = Some(Instant::now());
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
        let mut backoff = self.backoff.lock();
        backoff.record_failure(Instant::now());
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
        backoff.record_failure(start);
        backoff.record_failure(start);
        assert_eq!(backoff.n_failures, 2);
        backoff.opened = Some(start);
        backoff.record_failure(start + SOUND_AFTER);
        assert_eq!(backoff.n_failures, 1);
    }
}
