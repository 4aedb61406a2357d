//! What is known of an upstream.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an upstream is taken for one that does not know modern requests. It may have failed to
/// answer one for another reason, as a slow start, and may be upgraded: it is asked again then.
const REFUSAL_HOLDS: Duration = Duration::from_mins(10);

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Which eras an upstream speaks, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Memory {
    modern: AtomicU8,
    legacy: AtomicU8,
    epoch: AtomicU64,
    refused: Mutex<Option<Instant>>,
}

impl Memory {
    /// Returns whether the upstream answered as a modern server does.
    pub(super) fn speaks_modern(&self) -> bool {
        self.modern.load(Ordering::Acquire) == YES
    }

    /// Returns whether it did not know a modern request, some time ago at most.
    pub(super) fn refuses_modern(&self) -> bool {
        let refused = || *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Returns a number that is another one once something was forgotten.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Notes that the upstream answered as a modern server does.
    pub(super) fn found_modern(&self) {
        self.modern.store(YES, Ordering::Release);
    }

    /// Notes that it did not know a modern request.
    pub(super) fn found_unmodern(&self) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused = Some(Instant::now());
        self.modern.store(NO, Ordering::Release);
    }

    /// Notes that it answered a handshake.
    pub(super) fn found_legacy(&self) {
        self.legacy.store(YES, Ordering::Release);
    }

    /// Notes that it is a modern server that refused a handshake.
    pub(super) fn found_modern_only(&self) {
        self.found_modern();
        self.legacy.store(NO, Ordering::Release);
    }

    /// Forgets everything, because something of it turned out wrong.
    pub(super) fn forget(&self) {
        self.modern.store(UNKNOWN, Ordering::Release);
        self.legacy.store(UNKNOWN, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}
