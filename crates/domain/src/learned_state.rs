//! Snapshots of what was learned, so that a start need not replay every row.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::InvocationId;

/// What was learned, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What the state is of: the name of a predictor and its scope.
    pub model: String,
    /// The number of the snapshot, from 1.
    pub version: u64,
    /// The format of the bytes, by which a later version of riglm tells whether it can read them.
    pub format: u32,
    /// The newest call that was learned from; later ones follow.
    pub learned_to: Option<InvocationId>,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// The state.
    pub bytes: Vec<u8>,
}
