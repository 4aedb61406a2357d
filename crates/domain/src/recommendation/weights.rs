//! Versions of ranking weights.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The weights of a ranking at one version. Versions are immutable; a change makes a new one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightVersion {
    /// The ranking that the weights belong to.
    pub ranking: String,
    /// The number of the version, from 1.
    pub version: u64,
    /// The weights by the names of their factors; finite numbers.
    pub weights: BTreeMap<String, f64>,
    /// The reason for this version.
    pub reason: String,
    /// The time of creation.
    pub created_at: Timestamp,
}
