//! The stored knowledge about the era of an upstream.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::mcp::protocol::Era;
use tokio::time::Instant;

/// The time for which a refusal of modern requests is trusted. The upstream may have failed for
/// another reason, such as a slow start, or may be upgraded. It is probed again afterwards.
const REFUSAL_HOLDS: Duration = Duration::from_mins(10);

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// The eras that an upstream speaks, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct EraMemory {
    modern: AtomicU8,
    legacy: AtomicU8,
    epoch: AtomicU64,
    refused: Mutex<Option<Instant>>,
    /// The configured era, which never changes.
    configured: Option<Era>,
}

impl EraMemory {
    /// Returns the knowledge that the upstream speaks this era only.
    pub(super) fn of(era: Era) -> Self {
        let (modern, legacy) = match era {
            Era::Modern => (YES, NO),
            Era::Legacy => (NO, YES),
        };
        Self {
            modern: modern.into(),
            legacy: legacy.into(),
            configured: Some(era),
            ..Self::default()
        }
    }

    /// Returns whether the era is configured, so that nothing is to be found out.
    pub(super) fn is_configured(&self) -> bool {
        self.configured.is_some()
    }

    /// Returns whether the upstream answered like a modern server.
    pub(super) fn speaks_modern(&self) -> bool {
        self.modern.load(Ordering::Acquire) == YES
    }

    /// Returns whether it refused a modern request within `REFUSAL_HOLDS`.
    pub(super) fn refuses_modern(&self) -> bool {
        let refused = || *self.refused.lock();
        self.modern.load(Ordering::Acquire) == NO
            && (self.is_configured() || refused().is_some_and(|at| at.elapsed() < REFUSAL_HOLDS))
    }

    /// Returns whether it answered a handshake.
    pub(super) fn speaks_legacy(&self) -> bool {
        self.legacy.load(Ordering::Acquire) == YES
    }

    /// Returns whether it is a modern server that refused a handshake.
    pub(super) fn is_modern_only(&self) -> bool {
        self.speaks_modern() && self.legacy.load(Ordering::Acquire) == NO
    }

    /// Returns the epoch, which changes whenever the knowledge is dropped.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Stores that the upstream answered like a modern server.
    pub(super) fn found_modern(&self) {
        self.learn(&self.modern, YES);
    }

    /// Stores that it refused a modern request.
    pub(super) fn found_unmodern(&self) {
        let mut refused = self.refused.lock();
        *refused = Some(Instant::now());
        self.learn(&self.modern, NO);
    }

    /// Stores that it answered a handshake.
    pub(super) fn found_legacy(&self) {
        self.learn(&self.legacy, YES);
    }

    /// Stores that it is a modern server that refused a handshake.
    pub(super) fn found_modern_only(&self) {
        self.found_modern();
        self.learn(&self.legacy, NO);
    }

    /// Drops all knowledge, because a part of it proved wrong.
    pub(super) fn forget(&self) {
        self.learn(&self.modern, UNKNOWN);
        self.learn(&self.legacy, UNKNOWN);
        if !self.is_configured() {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn learn(&self, era: &AtomicU8, answer: u8) {
        if !self.is_configured() {
            era.store(answer, Ordering::Release);
        }
    }
}
