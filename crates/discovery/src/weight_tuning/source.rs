//! Source of the weights of recommendations.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_domain::recommendation::{FactorWeights, WeightsError};
use riglm_ports::analytics::{ChangeFeed, StoreError, Topic, WeightRepository};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::RANKING;

/// Interval at which changes by other processes are detected.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Weights with their version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankingWeights {
    /// The weights.
    pub weights: FactorWeights,
    /// Version in the store, or `None` for configured and default weights.
    pub version: Option<u64>,
}

/// Weights by source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WeightsBySource {
    configured: Option<FactorWeights>,
    stored: Option<RankingWeights>,
}

/// Provides the weights of recommendations. Configured weights take precedence over the stored
/// version in use, which takes precedence over the defaults.
#[derive(Debug)]
pub struct WeightSource {
    known: ArcSwap<WeightsBySource>,
}

impl WeightSource {
    /// Returns a source without stored weights.
    #[must_use]
    pub fn new(configured: Option<FactorWeights>) -> Self {
        let known = WeightsBySource {
            configured,
            stored: None,
        };
        Self {
            known: ArcSwap::from_pointee(known),
        }
    }

    /// Returns the present weights. Never waits.
    #[must_use]
    pub fn current(&self) -> RankingWeights {
        let known = self.known.load();
        let unversioned = |weights| RankingWeights {
            weights,
            version: None,
        };
        let configured = known.configured.map(unversioned);
        (configured.or(known.stored)).unwrap_or_else(|| unversioned(FactorWeights::default()))
    }

    /// Returns the configured weights, which take precedence over all others.
    #[must_use]
    pub fn configured_weights(&self) -> Option<FactorWeights> {
        self.known.load().configured
    }

    /// Replaces the configured weights.
    pub fn set_configured(&self, configured: Option<FactorWeights>) {
        self.known.rcu(|known| WeightsBySource {
            configured,
            ..**known
        });
    }

    /// Reads the version in use from the store. A version with invalid weights, such as one of
    /// another riglm version, is ignored, and the previous weights stay.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the store fails.
    pub async fn read(&self, store: &dyn WeightRepository) -> Result<(), StoreError> {
        let used = store.used_weights(RANKING).await?;
        let stored = match used.as_ref().map(weights_of).transpose() {
            Ok(stored) => stored,
            Err(error) => {
                warn!("{error}; keeping the previous weights");
                return Ok(());
            }
        };
        if self.known.load().stored != stored {
            let version = stored.map(|stored| stored.version);
            info!(?version, "recommendation weights changed");
        }
        self.known
            .rcu(|known| WeightsBySource { stored, ..**known });
        Ok(())
    }

    /// Follows changes of the weights by any process, until cancelled. While the store fails, the
    /// weights stay as they are.
    pub async fn watch_changes(
        self: Arc<Self>,
        store: Arc<dyn WeightRepository>,
        changes: Arc<dyn ChangeFeed>,
        stop: CancellationToken,
    ) {
        let mut known = None;
        loop {
            if let Ok(revisions) = changes.revisions().await {
                let revision = Some(Topic::Weights.revision(&revisions));
                // After an error, `known` stays, so that the next round tries again.
                if revision != known && self.read(&*store).await.is_ok() {
                    known = revision;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }
}

/// A stored version does not have valid weights.
#[derive(Debug, thiserror::Error)]
#[error("version {version} of the recommendation weights is invalid: {error}")]
pub struct InvalidVersion {
    version: u64,
    error: WeightsError,
}

/// Parses a stored version.
///
/// # Errors
///
/// Returns [`InvalidVersion`] for weights of other factors, and for weights out of range.
pub(super) fn weights_of(version: &WeightVersion) -> Result<RankingWeights, InvalidVersion> {
    let weights = FactorWeights::from_named(&version.weights);
    let weights = weights.map_err(|error| InvalidVersion {
        version: version.version,
        error,
    })?;
    Ok(RankingWeights {
        weights,
        version: Some(version.version),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use riglm_ports::contract::scene::{audit, moment};
    use riglm_ports::fake::MemoryStore;
    use tokio::time::advance;

    use super::*;

    fn weights(relevance: f64) -> FactorWeights {
        let rest = (1.0 - relevance) / 4.0;
        FactorWeights::new([relevance, rest, rest, rest, rest]).unwrap()
    }

    async fn add(store: &MemoryStore, version: u64, weights: BTreeMap<String, f64>) {
        let version = WeightVersion {
            ranking: RANKING.into(),
            version,
            weights,
            reason: "a test".into(),
            created_at: moment(1),
        };
        store.add_weights(&version, &audit(1)).await.unwrap();
    }

    #[tokio::test]
    async fn configured_weights_precede_stored_ones_and_the_default() {
        let store = MemoryStore::default();
        let source = WeightSource::new(None);
        source.read(&store).await.unwrap();
        let default = RankingWeights {
            weights: FactorWeights::default(),
            version: None,
        };
        assert_eq!(source.current(), default);
        add(&store, 1, weights(0.4).by_name()).await;
        source.read(&store).await.unwrap();
        let stored = RankingWeights {
            weights: weights(0.4),
            version: Some(1),
        };
        assert_eq!(source.current(), stored);
        source.set_configured(Some(weights(0.6)));
        let configured = RankingWeights {
            weights: weights(0.6),
            version: None,
        };
        assert_eq!(source.current(), configured);
        source.set_configured(None);
        assert_eq!(source.current(), stored);
    }

    #[tokio::test]
    async fn a_version_with_invalid_weights_is_ignored() {
        let store = MemoryStore::default();
        let source = WeightSource::new(None);
        add(&store, 1, weights(0.4).by_name()).await;
        source.read(&store).await.unwrap();
        let before = source.current();
        add(&store, 2, BTreeMap::from([("luck".into(), 1.0)])).await;
        source.read(&store).await.unwrap();
        assert_eq!(source.current(), before);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_other_processes_are_followed() {
        let store = Arc::new(MemoryStore::default());
        let source = Arc::new(WeightSource::new(None));
        let stop = CancellationToken::new();
        let watch = Arc::clone(&source).watch_changes(store.clone(), store.clone(), stop.clone());
        let watch = tokio::spawn(watch);
        for (version, relevance) in [(1, 0.4), (2, 0.5)] {
            add(&store, version, weights(relevance).by_name()).await;
            for _ in 0..3 {
                advance(POLL_INTERVAL).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(source.current().version, Some(version));
        }
        let went_back = store.use_weights(RANKING, 1, &audit(3)).await;
        assert!(went_back.unwrap());
        for _ in 0..3 {
            advance(POLL_INTERVAL).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(source.current().version, Some(1));
        stop.cancel();
        watch.await.unwrap();
    }
}
