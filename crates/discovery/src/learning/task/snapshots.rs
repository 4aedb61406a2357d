//! Storage of learned data as snapshots.

use riglm_domain::usage::learned_state::Snapshot;
use riglm_ports::analytics::{SnapshotRepository, StoreError};
use tracing::{debug, info, warn};

use super::LearningTask;
use super::trained_predictor::TrainedPredictor;
use crate::learning::shared_learner::SharedLearner;

impl LearningTask {
    /// Saves the state of each predictor that has changed, the default one first. If another
    /// process saved first, its snapshot is as good.
    pub(super) async fn save(&mut self) {
        for at in 0..self.taught.len() {
            self.save_one(at).await;
        }
    }

    async fn save_one(&mut self, at: usize) {
        let learner = self.taught[at].learner.clone();
        let n_learned = learner.read().n_learned();
        // Before the store has returned the starting point there is nothing to save.
        let is_due = self.taught[at].n_saved != Some(n_learned) && n_learned > 0;
        if !is_due || self.is_store_failing || self.is_stale {
            return;
        }
        // After a client was removed, its data must not be saved again.
        let n_erasures = learner.read().origin().n_erasures;
        if self.n_erasures().await.ok() != Some(n_erasures) {
            return;
        }
        let taking = self.run_blocking(move || {
            let learner = learner.read();
            (learner.snapshot(), learner.format(), learner.learned_to())
        });
        let (bytes, format, learned_to) = match taking.await {
            Some((Ok(bytes), format, learned_to)) => (bytes, format, learned_to),
            Some((Err(error), ..)) => {
                warn!("failed to save the learned state: {error}");
                return;
            }
            None => return,
        };
        let snapshot = Snapshot {
            model: self.taught[at].model.clone(),
            version: self.taught[at].version + 1,
            format,
            learned_to,
            taken_at: self.clock.now(),
            bytes,
        };
        let snapshots = &*self.stores.snapshots;
        self.taught[at]
            .store_snapshot(snapshot, n_learned, snapshots)
            .await;
    }
}

impl TrainedPredictor {
    /// Saves a snapshot and updates the known version.
    async fn store_snapshot(
        &mut self,
        mut snapshot: Snapshot,
        n_learned: u64,
        snapshots: &dyn SnapshotRepository,
    ) {
        let mut saved = snapshots.save_snapshot(&snapshot).await;
        if let Err(StoreError::Conflict { found, .. }) = &saved
            && *found < self.version
        {
            // The removal of a client has deleted the earlier snapshots.
            snapshot.version = found + 1;
            saved = snapshots.save_snapshot(&snapshot).await;
        }
        match saved {
            Ok(()) => {
                self.version = snapshot.version;
                self.n_saved = Some(n_learned);
            }
            Err(StoreError::Conflict { found, .. }) => {
                debug!("another process saved the learned state");
                self.version = found;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "failed to save the learned state");
            }
        }
    }
}

/// Restores a snapshot; returns whether that was possible.
pub(super) async fn restore_snapshot(learner: &SharedLearner, snapshot: Snapshot) -> bool {
    let learner = learner.clone();
    let restoring = tokio::task::spawn_blocking(move || {
        learner.write().restore(snapshot.format, &snapshot.bytes)
    });
    match restoring.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            info!("learned state not usable, learning all recorded calls again: {error}");
            false
        }
        Err(_) => false,
    }
}
