//! Tuning of the weights of recommendations from selections and ratings by users, and roll-back.
//! The rules are in [`riglm_domain::recommendation::tuning`].

mod config;
mod run;
mod source;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::FactorWeights;
use riglm_domain::recommendation::tuning::{
    CandidateWeights, TuningOptions, TuningOutcome, examples, tune as tuned,
};
use riglm_domain::recommendation::weights::WeightVersion;
use riglm_ports::analytics::StoreError;
use riglm_ports::clock::Clock;
use serde_json::json;

pub use self::config::WeightTuningConfig;
pub use self::run::{RunOutcome, TuningError, TuningRun, TuningStores, WeightHistory};
use self::source::weights_of;
pub use self::source::{InvalidVersion, RankingWeights, WeightSource};
pub use self::task::TuningTask;
use crate::entropy::EntropySource;

/// Key of the weights of recommendations in the store.
pub const RANKING: &str = "recommend";
/// Maximum number of recommendations in a run, newest first.
pub const MAX_RECOMMENDATIONS: u32 = 20_000;
/// Maximum number of feedback entries in a run, newest first.
pub const MAX_FEEDBACK: u32 = 50_000;

/// The version with the weights before the first tuning, for a roll-back.
const FIRST_VERSION: u64 = 1;

/// Tunes the weights of recommendations, and rolls back.
#[derive(Debug)]
pub struct WeightTuning {
    stores: TuningStores,
    source: Arc<WeightSource>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
}

impl WeightTuning {
    /// Returns a service over a store. `source` has the configured weights.
    #[must_use]
    pub fn new(stores: TuningStores, source: Arc<WeightSource>, clock: Arc<dyn Clock>) -> Self {
        Self {
            stores,
            source,
            clock,
            entropy: EntropySource::new(),
        }
    }

    /// Searches for better weights without a change.
    ///
    /// # Errors
    ///
    /// Returns [`TuningError`] when the configuration has weights, a stored version is invalid, or
    /// the store fails.
    pub async fn preview(&self, config: &WeightTuningConfig) -> Result<TuningRun, TuningError> {
        self.refuse_configured()?;
        let newest = self.newest().await?;
        self.run_search(config, newest.as_ref()).await
    }

    /// Searches for better weights and adopts them. The first adoption also stores the previous
    /// weights as a version of their own. An error after that leaves the weights unchanged.
    ///
    /// # Errors
    ///
    /// As for [`Self::preview`].
    pub async fn tune(
        &self,
        config: &WeightTuningConfig,
        actor: &Principal,
    ) -> Result<TuningRun, TuningError> {
        self.refuse_configured()?;
        let newest = self.newest().await?;
        let run = self.run_search(config, newest.as_ref()).await?;
        let RunOutcome::Better(trial) = &run.outcome else {
            return Ok(run);
        };
        let trial = trial.clone();
        let used = self.stores.weights.used_weights(RANKING).await?;
        // The search takes time, so another process may have changed the weights.
        if used.map(|used| used.version) != run.present.version {
            let outcome = RunOutcome::Overtaken(trial);
            return Ok(TuningRun { outcome, ..run });
        }
        let before = run.present.weights;
        let reason = run::reason(&before, &trial);
        let newest = newest.map(|newest| newest.version);
        let outcome = match self.add(newest, &before, &trial, reason, actor).await {
            Ok(version) => RunOutcome::Adopted { version, trial },
            Err(StoreError::Conflict { .. }) => RunOutcome::Overtaken(trial),
            Err(error) => return Err(error.into()),
        };
        Ok(TuningRun { outcome, ..run })
    }

    /// Returns whether the version in use is not the newest one.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the store fails.
    pub async fn is_rolled_back(&self) -> Result<bool, StoreError> {
        let used = self.stores.weights.used_weights(RANKING).await?;
        let newest = self.newest().await?;
        Ok(used.map(|used| used.version) != newest.map(|newest| newest.version))
    }

    /// Rolls back to version `to`, or to the one before the version in use. Returns its weights.
    ///
    /// # Errors
    ///
    /// Returns [`TuningError`] when the configuration has weights, the version does not exist or is
    /// invalid, or the store fails.
    pub async fn roll_back(
        &self,
        to: Option<u64>,
        actor: &Principal,
    ) -> Result<RankingWeights, TuningError> {
        self.refuse_configured()?;
        let used = self.stores.weights.used_weights(RANKING).await?;
        let used = used.map(|used| used.version).ok_or(match to {
            Some(version) => TuningError::NoVersion(version),
            None => TuningError::NoEarlier,
        })?;
        let version = match to {
            Some(version) => version,
            None => (used.checked_sub(1).filter(|version| *version > 0))
                .ok_or(TuningError::NoEarlier)?,
        };
        let known = self.history().await?.versions;
        let known = known.iter().find(|known| known.version == version);
        let weights = weights_of(known.ok_or(TuningError::NoVersion(version))?)?;
        let detail = json!({"from": used, "to": version}).to_string();
        let audit = self.entry("weights.use", self.clock.now(), detail, actor);
        let store = &self.stores.weights;
        if !store.use_weights(RANKING, version, &audit).await? {
            return Err(TuningError::NoVersion(version));
        }
        Ok(weights)
    }

    /// Returns all versions, oldest first, and the version in use.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the store fails.
    pub async fn history(&self) -> Result<WeightHistory, StoreError> {
        let store = &self.stores.weights;
        let used = store.used_weights(RANKING).await?;
        Ok(WeightHistory {
            versions: store.weight_versions(RANKING, u32::MAX).await?,
            used: used.map(|used| used.version),
            is_configured: self.source.configured_weights().is_some(),
        })
    }

    fn refuse_configured(&self) -> Result<(), TuningError> {
        match self.source.configured_weights() {
            Some(_) => Err(TuningError::Configured),
            None => Ok(()),
        }
    }

    async fn newest(&self) -> Result<Option<WeightVersion>, StoreError> {
        let newest = self.stores.weights.weight_versions(RANKING, 1).await?;
        Ok(newest.into_iter().next_back())
    }

    async fn run_search(
        &self,
        config: &WeightTuningConfig,
        newest: Option<&WeightVersion>,
    ) -> Result<TuningRun, TuningError> {
        let used = self.stores.weights.used_weights(RANKING).await?;
        let present = match &used {
            Some(used) => weights_of(used)?,
            None => RankingWeights {
                weights: FactorWeights::default(),
                version: None,
            },
        };
        let records = &self.stores.discovery;
        let shown = records.recommendations(MAX_RECOMMENDATIONS).await?;
        let said = records.feedback(None, None, MAX_FEEDBACK).await?;
        let options = TuningOptions {
            min_examples: config.min_examples,
            seed: config.seed.into(),
            judged_until: newest.and_then(judged_until),
        };
        // The search takes seconds with much feedback.
        let searching = tokio::task::spawn_blocking(move || {
            let examples = examples(&shown, &said);
            (examples.len(), tuned(&examples, &present.weights, &options))
        });
        let (n_examples, tuning) = searching.await.map_err(|_| TuningError::CutOff)?;
        let outcome = match tuning {
            TuningOutcome::TooFew(shortage) => RunOutcome::TooFew(shortage),
            TuningOutcome::Settled => RunOutcome::Settled,
            TuningOutcome::Tried(trial) if trial.is_better() => RunOutcome::Better(trial),
            TuningOutcome::Tried(trial) => RunOutcome::NotBetter(trial),
        };
        Ok(TuningRun {
            present,
            n_examples,
            outcome,
        })
    }

    /// Writes the next version and returns its number.
    async fn add(
        &self,
        newest: Option<u64>,
        before: &FactorWeights,
        trial: &CandidateWeights,
        reason: String,
        actor: &Principal,
    ) -> Result<u64, StoreError> {
        let newest = if let Some(newest) = newest {
            newest
        } else {
            let reason = "the weights of before the first tuning".into();
            self.add_version(FIRST_VERSION, before, before, reason, actor)
                .await?;
            FIRST_VERSION
        };
        let version = newest.saturating_add(1);
        let after = &trial.candidate;
        self.add_version(version, before, after, reason, actor)
            .await?;
        Ok(version)
    }

    async fn add_version(
        &self,
        version: u64,
        before: &FactorWeights,
        after: &FactorWeights,
        reason: String,
        actor: &Principal,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let detail = json!({
            "version": version,
            "before": before.by_name(),
            "after": after.by_name(),
            "reason": reason,
        });
        let audit = self.entry("weights.tune", now, detail.to_string(), actor);
        let weights = WeightVersion {
            ranking: RANKING.into(),
            version,
            weights: after.by_name(),
            reason,
            created_at: now,
        };
        self.stores.weights.add_weights(&weights, &audit).await
    }

    fn entry(&self, action: &str, at: Timestamp, detail: String, actor: &Principal) -> AuditEntry {
        AuditEntry {
            id: AuditId::new(at, self.entropy.next()),
            at,
            actor: actor.clone(),
            action: action.into(),
            target: RANKING.into(),
            detail: Some(detail),
        }
    }
}

/// Returns the time up to which recommendations were used for judging the newest version, or an
/// earlier one. They must not judge another one.
fn judged_until(newest: &WeightVersion) -> Option<Timestamp> {
    (newest.version > FIRST_VERSION).then_some(newest.created_at)
}
