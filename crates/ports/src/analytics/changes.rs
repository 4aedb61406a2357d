//! Notice of what other processes changed.

use std::fmt;

use async_trait::async_trait;

use super::StoreError;

/// Something that is changed seldom and kept in memory by those who read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Overrides.
    Overrides,
    /// Weights of rankings.
    Weights,
    /// Epochs of lists.
    ListEpochs,
    /// Snapshots of what was learned.
    Snapshots,
    /// Clients were removed: what was learned from them is to be forgotten.
    Erasures,
    /// Experiments were stopped.
    Experiments,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 6] = [
        Self::Overrides,
        Self::Weights,
        Self::ListEpochs,
        Self::Snapshots,
        Self::Erasures,
        Self::Experiments,
    ];

    /// Returns the name under which the topic is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overrides => "overrides",
            Self::Weights => "weights",
            Self::ListEpochs => "list_epochs",
            Self::Snapshots => "snapshots",
            Self::Erasures => "erasures",
            Self::Experiments => "experiments",
        }
    }

    /// Returns the topic with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == name)
    }

    /// Returns the number of the topic among those of all, which are in the order of [`Self::ALL`].
    #[must_use]
    pub fn revision(self, all: &[u64; Self::ALL.len()]) -> u64 {
        let mut topics = Self::ALL.iter().zip(all);
        let own = topics.find(|(topic, _)| **topic == self);
        own.map_or(0, |(_, revision)| *revision)
    }
}

/// Tells how often each topic was changed, by whatever process.
///
/// A reader asks from time to time and reads a topic anew when its number is another one than
/// before. A number never goes down, and is higher after each change than before it, as soon as
/// the change can be read.
#[async_trait]
pub trait ChangeFeed: Send + Sync + fmt::Debug {
    /// Returns the number of each topic, in the order of [`Topic::ALL`]; 0 for one that was never
    /// changed.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn revisions(&self) -> Result<[u64; Topic::ALL.len()], StoreError>;
}
