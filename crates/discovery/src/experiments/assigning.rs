//! Assignment of units to the arms of experiments.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use riglm_domain::experiment::{
    ArmPlan, Assignment, AssignmentUnit, ExperimentArm, ExperimentPlan, FusionRule, Treatment,
};
use riglm_domain::id::WorkSessionId;
use riglm_domain::prediction::PredictorSet;
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::FactorWeights;
use riglm_domain::selection::ListPolicyName;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::analytics::{ChangeFeed, ExperimentRepository, StoreError, Topic};
use riglm_ports::clock::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::assignment_cache::{AssignmentCache, CachedAssignment, UnitKey};

/// Interval at which stopped experiments are detected.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout for reading earlier assignments at the start.
const LOAD_DEADLINE: Duration = Duration::from_secs(5);

/// Repositories of experiments, shared by all processes so that they agree on assignments.
#[derive(Clone, Debug)]
pub struct ExperimentStores {
    /// Assignments of units to arms, and stopped experiments.
    pub experiments: Arc<dyn ExperimentRepository>,
    /// Notification of changes.
    pub changes: Arc<dyn ChangeFeed>,
}

/// A potential unit of experiments.
#[derive(Clone, Copy, Debug)]
pub struct Participant<'a> {
    /// The principal.
    pub principal: &'a Principal,
    /// The work session, if one was derived.
    pub work_session: Option<WorkSessionId>,
}

impl<'a> Participant<'a> {
    /// Returns the participant that makes the calls of a session.
    #[must_use]
    pub fn of(principal: &'a Principal, session: SessionKey) -> Self {
        Self {
            principal,
            work_session: session.work_session(),
        }
    }
}

/// The arm to which a participant belongs.
#[derive(Clone, Debug)]
pub struct AssignedArm {
    plan: Arc<ExperimentPlan>,
    at: usize,
}

impl AssignedArm {
    /// Returns the names of experiment and arm, with which recommendations are recorded.
    #[must_use]
    pub fn name(&self) -> ExperimentArm {
        ExperimentArm {
            experiment: self.plan.name.clone(),
            arm: self.arm().name.clone(),
        }
    }

    /// Returns the weights of the arm, or `None` for the default.
    #[must_use]
    pub fn weights(&self) -> Option<FactorWeights> {
        self.arm().weights
    }

    /// Returns the fusion rule of the arm, or `None` for the default.
    #[must_use]
    pub fn fusion(&self) -> Option<&FusionRule> {
        self.arm().fusion.as_ref()
    }

    /// Returns the list policy of the arm, or `None` for the default.
    #[must_use]
    pub fn policy(&self) -> Option<ListPolicyName> {
        self.arm().policy
    }

    /// Returns the predictors of the arm, or `None` for the default.
    #[must_use]
    pub fn predictors(&self) -> Option<PredictorSet> {
        self.arm().predictors
    }

    fn arm(&self) -> &ArmPlan {
        &self.plan.arms[self.at]
    }
}

/// The running experiments, with the assignment of units to arms.
///
/// A lookup computes at most one hash and never waits. Assignments are stored in the background
/// ([`Self::watch_changes`]). A stored assignment is permanent, also if the shares of the arms change.
#[derive(Debug)]
pub struct Experiments {
    plans: Vec<Arc<ExperimentPlan>>,
    hasher: KeyedHasher,
    stores: ExperimentStores,
    clock: Arc<dyn Clock>,
    units: AssignmentCache,
    stopped: ArcSwap<HashSet<String>>,
    has_waiting: Notify,
}

impl Experiments {
    /// Returns the running experiments among these plans, which must be valid
    /// ([`check_plans`](riglm_domain::experiment::check_plans)).
    #[must_use]
    pub fn new(
        plans: &[ExperimentPlan],
        hasher: KeyedHasher,
        stores: ExperimentStores,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let running = plans.iter().filter(|plan| plan.is_running);
        Self {
            plans: running.cloned().map(Arc::new).collect(),
            hasher,
            stores,
            clock,
            units: AssignmentCache::new(),
            stopped: ArcSwap::default(),
            has_waiting: Notify::new(),
        }
    }

    /// Reads earlier assignments and stops. After a timeout, data of the store count from the time
    /// at which they are read.
    pub async fn load(&self) {
        let loading = async {
            self.read_stops().await?;
            for (at, plan) in self.plans.iter().enumerate() {
                for assigned in self.stores.experiments.assignments(&plan.name).await? {
                    self.apply_assignment(at, &assigned);
                }
            }
            Ok::<(), StoreError>(())
        };
        match tokio::time::timeout(LOAD_DEADLINE, loading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("experiments: failed to load assignments: {error}"),
            Err(_) => tracing::warn!("experiments: timeout while loading assignments"),
        }
    }

    /// Returns the arm of a participant in the experiment with this treatment, or `None` if there
    /// is none. A new unit is not recorded; see [`Self::expose`].
    #[must_use]
    pub fn arm(&self, who: Participant<'_>, lever: Treatment) -> Option<AssignedArm> {
        self.unit(who, lever).map(|(_, assigned)| assigned)
    }

    /// Returns the unit and the arm of a participant in the experiment with this treatment.
    fn unit(&self, who: Participant<'_>, lever: Treatment) -> Option<(UnitKey, AssignedArm)> {
        let (at, plan) = self.running(lever)?;
        let key = (at, unit_of(plan, who)?);
        let arm = match self.units.get(&key) {
            Some(known) => known.arm?,
            None => plan.arm_of(&key.1, &self.hasher)?,
        };
        let assigned = AssignedArm {
            plan: Arc::clone(plan),
            at: arm,
        };
        Some((key, assigned))
    }

    /// Returns the same as [`Self::arm`], and records the exposure of the unit to the arm. The
    /// assignment is stored and permanent from then on.
    #[must_use]
    pub fn expose(&self, who: Participant<'_>, lever: Treatment) -> Option<AssignedArm> {
        let (key, assigned) = self.unit(who, lever)?;
        if self.units.add_new(&key, assigned.at, self.clock.now()) {
            tracing::debug!(
                experiment = assigned.plan.name,
                arm = assigned.arm().name,
                "experiments: assigned a unit to an arm"
            );
            self.has_waiting.notify_one();
        }
        Some(assigned)
    }

    /// Returns the arm that decides a recommendation, in the experiment that changes
    /// recommendations, and records the exposure. The recommendation must be recorded with the
    /// [`name`](AssignedArm::name) of the arm.
    #[must_use]
    pub fn for_recommendation(&self, who: Participant<'_>) -> Option<AssignedArm> {
        let levers = Treatment::ALL.iter().copied();
        let mut levers = levers.filter(|lever| lever.is_of_recommendations());
        levers.find_map(|lever| self.expose(who, lever))
    }

    /// Returns the different predictor sets of the running experiment on predictors.
    #[must_use]
    pub fn predictors(&self) -> Vec<PredictorSet> {
        let running = self.running(Treatment::Predictors);
        let arms = running.map_or(&[][..], |(_, plan)| &plan.arms);
        let mut sets = Vec::new();
        for set in arms.iter().filter_map(|arm| arm.predictors) {
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        sets
    }

    fn running(&self, lever: Treatment) -> Option<(usize, &Arc<ExperimentPlan>)> {
        let stopped = self.stopped.load();
        let mut plans = self.plans.iter().enumerate();
        plans.find(|(_, plan)| plan.changes(lever) && !stopped.contains(&plan.name))
    }

    /// Stores assignments and detects stops by any process, until cancelled.
    pub async fn watch_changes(self: Arc<Self>, stop: CancellationToken) {
        if self.plans.is_empty() {
            return;
        }
        let mut known = None;
        loop {
            if let Ok(revisions) = self.stores.changes.revisions().await {
                let revision = Some(Topic::Experiments.revision(&revisions));
                // After an error, `known` stays, so that the next round tries again.
                if revision != known && self.read_stops().await.is_ok() {
                    known = revision;
                }
            }
            tokio::select! {
                // Waiting assignments must not be lost at the end.
                () = stop.cancelled() => {
                    self.store_queued().await;
                    return;
                }
                () = self.has_waiting.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            self.store_queued().await;
        }
    }

    async fn read_stops(&self) -> Result<(), StoreError> {
        let stops = self.stores.experiments.experiment_stops().await?;
        let names: HashSet<String> = stops.into_iter().map(|stop| stop.experiment).collect();
        for plan in &self.plans {
            if names.contains(&plan.name) && !self.stopped.load().contains(&plan.name) {
                tracing::info!("experiment {} is stopped", plan.name);
            }
        }
        self.stopped.store(Arc::new(names));
        Ok(())
    }

    async fn store_queued(&self) {
        let mut waiting = self.units.take_queued().into_iter();
        while let Some((key, arm, at)) = waiting.next() {
            let plan = &self.plans[key.0];
            let proposed = Assignment {
                arm: ExperimentArm {
                    experiment: plan.name.clone(),
                    arm: plan.arms[arm].name.clone(),
                },
                subject: key.1.clone(),
                assigned_at: at,
            };
            match self.stores.experiments.assign(&proposed).await {
                Ok(holding) => self.apply_assignment(key.0, &holding),
                Err(error) => {
                    tracing::warn!("experiments: failed to store assignments, will retry: {error}");
                    // The failed assignment and the remaining ones are tried again at the next
                    // interval.
                    let left = std::iter::once((key, arm, at)).chain(waiting);
                    self.units.requeue(left.collect());
                    return;
                }
            }
        }
    }

    fn apply_assignment(&self, at: usize, assigned: &Assignment) {
        let mut arms = self.plans[at].arms.iter();
        let known = CachedAssignment {
            arm: arms.position(|arm| arm.name == assigned.arm.arm),
        };
        self.units.put((at, assigned.subject.clone()), known);
    }
}

/// Returns the identifier of the unit, or `None` if the participant is not a unit of this
/// experiment.
fn unit_of(plan: &ExperimentPlan, who: Participant<'_>) -> Option<String> {
    match plan.unit {
        AssignmentUnit::Principal => Some(who.principal.to_string()),
        AssignmentUnit::WorkSession => who.work_session.map(|id| id.to_string()),
    }
}

#[cfg(test)]
mod tests;
