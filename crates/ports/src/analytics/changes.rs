//! Change feed: notification of changes that other processes made.

use std::fmt;

use async_trait::async_trait;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::StoreError;

/// Data that seldom changes and that readers cache in memory.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    IntoStaticStr,
    EnumString,
    VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Topic {
    /// Overrides.
    Overrides,
    /// Weights of rankings.
    Weights,
    /// Epochs of lists.
    ListEpochs,
    /// Snapshots of learned state.
    Snapshots,
    /// Erasures: everything learned must be forgotten, because clients were removed or past calls
    /// were imported. Learners learn again from the calls that are recorded.
    Erasures,
    /// Stops of experiments.
    Experiments,
}

impl Topic {
    /// All topics.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name under which the topic is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the revision of this topic from the revisions of all topics, which are in the order
    /// of [`Self::ALL`].
    #[must_use]
    pub fn revision(self, all: &[u64; Self::ALL.len()]) -> u64 {
        // `ALL` has the topics in the order of their declaration.
        all[self as usize]
    }
}

/// Reports a revision for each topic, which counts the changes by all processes.
///
/// A reader polls it, and reloads a topic when its revision differs from the one before. A revision
/// never decreases. After each change it is higher than before, as soon as the change can be read.
#[async_trait]
pub trait ChangeFeed: Send + Sync + fmt::Debug {
    /// Returns the revision of each topic, in the order of [`Topic::ALL`]; 0 for a topic that was
    /// never changed.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn revisions(&self) -> Result<[u64; Topic::ALL.len()], StoreError>;
}
