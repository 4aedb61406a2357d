//! The stored knowledge about the era of an upstream.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
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
}

impl EraMemory {
    /// Returns whether the upstream answered like a modern server.
    pub(super) fn speaks_modern(&self) -> bool {
        self.modern.load(Ordering::Acquire) == YES
    }

    /// Returns whether it refused a modern request within `REFUSAL_HOLDS`.
    pub(super) fn refuses_modern(&self) -> bool {
        let refused = || *self.refused.lock();
        self.modern.load(Ordering::Acquire) == NO
            && refused().is_some_and(|at| at.elapsed() < REFUSAL_HOLDS)
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
        self.modern.store(YES, Ordering::Release);
    }

    /// Stores that it refused a modern request.
    pub(super) fn found_unmodern(&self) {
        let mut refused = self.refused.lock();
        *refused = Some(Instant::now());
        self.modern.store(NO, Ordering::Release);
    }

    /// Stores that it answered a handshake.
    pub(super) fn found_legacy(&self) {
        self.legacy.store(YES, Ordering::Release);
    }

    /// Stores that it is a modern server that refused a handshake.
    pub(super) fn found_modern_only(&self) {
        self.found_modern();
        self.legacy.store(NO, Ordering::Release);
    }

    /// Drops all knowledge, because a part of it proved wrong.
    pub(super) fn forget(&self) {
        self.modern.store(UNKNOWN, Ordering::Release);
        self.legacy.store(UNKNOWN, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}
