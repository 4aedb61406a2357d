//! Snapshots: the learned state as bytes.

use super::{Engine, EngineState};
use crate::prediction::memory::PrincipalMemory;
use crate::prediction::mixers::Mixers;

/// A snapshot is refused, or cannot be written. The causes are errors of the serialization that the
/// predictor uses.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The snapshot has another format.
    #[error("snapshot has format {found}; this version reads format {expected}")]
    Format {
        /// The format that this version reads.
        expected: u32,
        /// The format of the snapshot.
        found: u32,
    },
    /// The snapshot is damaged.
    #[error("failed to read the snapshot: {0}")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The snapshot is readable, but has values that learning cannot produce.
    #[error("snapshot has invalid numbers (not finite, or out of range)")]
    Unsound,
    /// The learned state cannot be written.
    #[error("failed to write the snapshot: {0}")]
    Unwritable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Engine {
    /// The version of the format. It also changes with the initial weights, because they are part
    /// of the learned state.
    pub const FORMAT: u32 = 6;

    /// Returns the learned state as bytes.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError::Unwritable`] if it cannot be written.
    pub fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        postcard::to_allocvec(&self.state).map_err(|error| SnapshotError::Unwritable(error.into()))
    }

    /// Replaces the learned state by a snapshot. Afterwards the engine behaves as if it had learned
    /// the calls of the snapshot itself. A refused snapshot changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError`] for another format, for damaged bytes, and for numbers that are
    /// not finite or out of range.
    pub fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        if format != Self::FORMAT {
            return Err(SnapshotError::Format {
                expected: Self::FORMAT,
                found: format,
            });
        }
        let state: EngineState =
            postcard::from_bytes(bytes).map_err(|error| SnapshotError::Damaged(error.into()))?;
        if !state.is_sound() {
            return Err(SnapshotError::Unsound);
        }
        *self.state_mut() = state;
        Ok(())
    }
}

impl EngineState {
    fn is_sound(&self) -> bool {
        self.aging.is_sound()
            && self.scopes.is_sound()
            && self.memories.values().all(PrincipalMemory::is_sound)
            && self.start.is_sound()
            && self.mixers.values().all(Mixers::is_sound)
    }
}
