//! Snapshots of the learned state, so that a start need not replay every row.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::InvocationId;

/// The learned state at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The model of the state: the name of a predictor and its scope.
    pub model: String,
    /// The number of the snapshot, from 1.
    pub version: u64,
    /// The format of the bytes. A later version of riglm tells by it whether it can read them.
    pub format: u32,
    /// The newest learned call. Later calls are learned after the snapshot is restored.
    pub learned_to: Option<InvocationId>,
    /// The time of the snapshot.
    pub taken_at: Timestamp,
    /// The serialised state.
    pub bytes: Vec<u8>,
}
