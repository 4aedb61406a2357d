//! Which arm who belongs to.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use riglm_domain::canonical::KeyedHasher;
use riglm_domain::experiment::{
    ArmPlan, Assignment, ExperimentArm, ExperimentPlan, FusionRule, Lever, Unit,
};
use riglm_domain::id::WorkSessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::listing::ListPolicyName;
use riglm_domain::prediction::PredictorSet;
use riglm_domain::principal::Principal;
use riglm_domain::recommender::FactorWeights;
use riglm_ports::analytics::{
    AssignmentRepository, ChangeFeed, ExperimentRepository, StoreError, Topic,
};
use riglm_ports::clock::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::known::{Known, KnownUnits, UnitKey};

/// How often it is looked whether an experiment was stopped.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the store may take at the start to say what was assigned before.
const LOAD_DEADLINE: Duration = Duration::from_secs(5);

/// Where experiments are kept, so that all processes agree on them.
#[derive(Clone, Debug)]
pub struct ExperimentStores {
    /// Who takes part in which arm.
    pub assignments: Arc<dyn AssignmentRepository>,
    /// Which experiments were stopped.
    pub experiments: Arc<dyn ExperimentRepository>,
    /// What changed.
    pub changes: Arc<dyn ChangeFeed>,
}

/// Who may take part in experiments.
#[derive(Clone, Copy, Debug)]
pub struct Participant<'a> {
    /// Who it is.
    pub principal: &'a Principal,
    /// The work session, where one was derived.
    pub work_session: Option<WorkSessionId>,
}

impl<'a> Participant<'a> {
    /// Returns who takes part with the calls of a session.
    #[must_use]
    pub fn of(principal: &'a Principal, session: CallSession) -> Self {
        Self {
            principal,
            work_session: session.work_session(),
        }
    }
}

/// The arm of somebody.
#[derive(Clone, Debug)]
pub struct AssignedArm {
    plan: Arc<ExperimentPlan>,
    at: usize,
}

impl AssignedArm {
    /// Returns the names of experiment and arm, under which recommendations are recorded.
    #[must_use]
    pub fn name(&self) -> ExperimentArm {
        ExperimentArm {
            experiment: self.plan.name.clone(),
            arm: self.arm().name.clone(),
        }
    }

    /// Returns the weights of the arm; `None` where it has those of everybody.
    #[must_use]
    pub fn weights(&self) -> Option<FactorWeights> {
        self.arm().weights
    }

    /// Returns how the arm fuses scores; `None` where it does that as for everybody.
    #[must_use]
    pub fn fusion(&self) -> Option<&FusionRule> {
        self.arm().fusion.as_ref()
    }

    /// Returns when lists change in the arm; `None` where they do so as for everybody.
    #[must_use]
    pub fn policy(&self) -> Option<ListPolicyName> {
        self.arm().policy
    }

    /// Returns what the next tools of a session are predicted with in the arm; `None` where that is
    /// as for everybody.
    #[must_use]
    pub fn predictors(&self) -> Option<PredictorSet> {
        self.arm().predictors
    }

    fn arm(&self) -> &ArmPlan {
        &self.plan.arms[self.at]
    }
}

/// Says who belongs to which arm of the experiments that run.
///
/// An answer takes a hash at most, and waits for nothing. Assignments are stored in the background
/// ([`Self::keep_watch`]); one that is stored holds, whatever becomes of the shares of the arms.
#[derive(Debug)]
pub struct Experiments {
    plans: Vec<Arc<ExperimentPlan>>,
    hasher: KeyedHasher,
    stores: ExperimentStores,
    clock: Arc<dyn Clock>,
    units: KnownUnits,
    stopped: ArcSwap<HashSet<String>>,
    has_waiting: Notify,
}

impl Experiments {
    /// Returns the experiments of these plans that run. The plans were checked
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
            units: KnownUnits::new(),
            stopped: ArcSwap::default(),
            has_waiting: Notify::new(),
        }
    }

    /// Reads what was assigned and stopped before. A store that does not answer in time is not
    /// waited for: what it says counts from the moment at which it is known.
    pub async fn load(&self) {
        let loading = async {
            self.read_stops().await?;
            for (at, plan) in self.plans.iter().enumerate() {
                for assigned in self.stores.assignments.assignments(&plan.name).await? {
                    self.hold(at, &assigned);
                }
            }
            Ok::<(), StoreError>(())
        };
        match tokio::time::timeout(LOAD_DEADLINE, loading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("assignments to experiments are not known: {error}"),
            Err(_) => tracing::warn!("assignments to experiments are not known in time"),
        }
    }

    /// Returns the arm of somebody in the experiment that changes this; `None` outside of any. Who
    /// was not seen before is not noted: see [`Self::exposed`].
    #[must_use]
    pub fn arm(&self, who: Participant<'_>, lever: Lever) -> Option<AssignedArm> {
        self.unit(who, lever).map(|(_, assigned)| assigned)
    }

    /// Returns the unit that somebody is in the experiment that changes this, and its arm.
    fn unit(&self, who: Participant<'_>, lever: Lever) -> Option<(UnitKey, AssignedArm)> {
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

    /// Returns the same, and notes that the arm makes a difference now: the assignment is stored and
    /// holds from now on.
    #[must_use]
    pub fn exposed(&self, who: Participant<'_>, lever: Lever) -> Option<AssignedArm> {
        let (key, assigned) = self.unit(who, lever)?;
        if self.units.begin(&key, assigned.at, self.clock.now()) {
            tracing::debug!(
                experiment = assigned.plan.name,
                arm = assigned.arm().name,
                "a unit takes part in an experiment"
            );
            self.has_waiting.notify_one();
        }
        Some(assigned)
    }

    /// Returns the arm by which something is recommended to somebody, of whichever experiment changes
    /// what is recommended, and notes that it is. The recommendation is to be recorded under its
    /// [`name`](AssignedArm::name).
    #[must_use]
    pub fn for_recommendation(&self, who: Participant<'_>) -> Option<AssignedArm> {
        let levers = Lever::ALL.into_iter();
        let mut levers = levers.filter(|lever| lever.is_of_recommendations());
        levers.find_map(|lever| self.exposed(who, lever))
    }

    /// Returns what arms predict with, each once, of the experiment that runs with predictors.
    #[must_use]
    pub fn predictors(&self) -> Vec<PredictorSet> {
        let running = self.running(Lever::Predictors);
        let arms = running.map_or(&[][..], |(_, plan)| &plan.arms);
        let mut sets = Vec::new();
        for set in arms.iter().filter_map(|arm| arm.predictors) {
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        sets
    }

    fn running(&self, lever: Lever) -> Option<(usize, &Arc<ExperimentPlan>)> {
        let stopped = self.stopped.load();
        let mut plans = self.plans.iter().enumerate();
        plans.find(|(_, plan)| plan.changes(lever) && !stopped.contains(&plan.name))
    }

    /// Stores assignments, and notices which experiments are stopped by whatever process, until it is
    /// told to stop.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        if self.plans.is_empty() {
            return;
        }
        let mut known = None;
        loop {
            if let Ok(revisions) = self.stores.changes.revisions().await {
                let revision = Some(Topic::Experiments.revision(&revisions));
                if revision != known && self.read_stops().await.is_ok() {
                    known = revision;
                }
            }
            tokio::select! {
                () = stop.cancelled() => {
                    self.store_waiting().await;
                    return;
                }
                () = self.has_waiting.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            self.store_waiting().await;
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

    async fn store_waiting(&self) {
        let mut waiting = self.units.take_waiting().into_iter();
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
            match self.stores.assignments.assign(&proposed).await {
                Ok(holding) => self.hold(key.0, &holding),
                Err(error) => {
                    tracing::warn!("assignments to experiments wait for the store: {error}");
                    let left = std::iter::once((key, arm, at)).chain(waiting);
                    self.units.give_back(left.collect());
                    return;
                }
            }
        }
    }

    fn hold(&self, at: usize, assigned: &Assignment) {
        let mut arms = self.plans[at].arms.iter();
        let known = Known {
            arm: arms.position(|arm| arm.name == assigned.arm.arm),
        };
        self.units.put((at, assigned.subject.clone()), known);
    }
}

/// Returns the text that identifies the unit; `None` of who is none.
fn unit_of(plan: &ExperimentPlan, who: Participant<'_>) -> Option<String> {
    match plan.unit {
        Unit::Principal => Some(who.principal.to_string()),
        Unit::WorkSession => who.work_session.map(|id| id.to_string()),
    }
}

#[cfg(test)]
mod tests;
