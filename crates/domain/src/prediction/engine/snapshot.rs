//! What was learned, as bytes.

use super::{Engine, State};
use crate::prediction::memory::Memory;
use crate::prediction::mixers::Mixers;

/// Why a snapshot is refused.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It was written in another format.
    #[error("snapshot has format {found}; this version reads format {expected}")]
    Format {
        /// The format that this version reads.
        expected: u32,
        /// The format of the snapshot.
        found: u32,
    },
    /// It is damaged.
    #[error("snapshot cannot be read: {0}")]
    Damaged(#[source] postcard::Error),
    /// It can be read, but holds numbers that no learning gives.
    #[error("snapshot holds numbers that are not finite or out of range")]
    Unsound,
    /// What was learned cannot be written.
    #[error("what was learned cannot be written: {0}")]
    Unwritable(#[source] postcard::Error),
}

impl Engine {
    /// The format of the bytes. It changes with the weights to begin with, too: they are among what
    /// was learned.
    pub const FORMAT: u32 = 4;

    /// Returns what was learned.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError::Unwritable`] where it cannot be written.
    pub fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        postcard::to_allocvec(&self.state).map_err(SnapshotError::Unwritable)
    }

    /// Replaces what was learned by a snapshot; from then on all is as if the calls that it was
    /// made from had been learned here. What is refused changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`SnapshotError`] for another format, for bytes that are damaged, and for numbers
    /// that are not finite or out of range.
    pub fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        if format != Self::FORMAT {
            return Err(SnapshotError::Format {
                expected: Self::FORMAT,
                found: format,
            });
        }
        let state: State = postcard::from_bytes(bytes).map_err(SnapshotError::Damaged)?;
        if !state.is_sound() {
            return Err(SnapshotError::Unsound);
        }
        *self.state_mut() = state;
        Ok(())
    }
}

impl State {
    fn is_sound(&self) -> bool {
        self.aging.is_sound()
            && self.scopes.is_sound()
            && self.memories.values().all(Memory::is_sound)
            && self.start.is_sound()
            && self.mixers.values().all(Mixers::is_sound)
    }
}
