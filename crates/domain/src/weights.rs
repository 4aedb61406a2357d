//! Versions of the weights of a ranking.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The weights of a ranking at one version. Versions are never changed, only followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightVersion {
    /// The ranking that they are for.
    pub ranking: String,
    /// The number of the version, from 1.
    pub version: u64,
    /// The weights by the names of their factors; finite numbers.
    pub weights: BTreeMap<String, f64>,
    /// Why this version was made.
    pub reason: String,
    /// When it was made.
    pub created_at: Timestamp,
}
