//! Background task of learning: reading, training, ageing and rebuilding.

mod hidden_tool_use;
mod snapshots;
mod trained_predictor;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use riglm_domain::id::{ContextId, InvocationId};
use riglm_domain::intent::context::ContextSource;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::usage::invocation::PastCall;
use riglm_ports::analytics::{
    ChangeFeed, DiscoveryRepository, InvocationFilter, InvocationRepository, ListRepository,
    SnapshotRepository, StoreError, ToolDefinitionRepository, Topic,
};
use riglm_ports::clock::Clock;
use riglm_ports::predictor::Learner;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::hidden_tool_use::learn_hidden_tool_use;
use self::snapshots::restore_snapshot;
use self::trained_predictor::TrainedPredictor;
use super::arms::ArmLearner;
use super::external_advice::NamedScores;
use super::learner::{Origin, PrecedingText};
use super::next_tools::NextTools;
use super::principals::{PrincipalLearner, PrincipalLearners, PrincipalPredictors};
use super::shared_learner::SharedLearner;
use super::turns::LearningTurns;

/// Interval for reading new calls.
const READ_EVERY: Duration = Duration::from_secs(2);
/// Interval for checking whether clients were removed.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Interval for ageing the learned data.
const AGE_EVERY: Duration = Duration::from_hours(1);
/// Interval for saving the learned data.
const SAVE_EVERY: Duration = Duration::from_mins(15);
// Interval for learning everything again, counted across restarts. It drops the effect of deleted
// rows, and includes calls that reached the store very late.
const RELEARN_INTERVAL: Duration = Duration::from_hours(24);
/// Timeout for saving at the end.
const LAST_SAVE: Duration = Duration::from_secs(3);
/// Number of calls in one read.
const PAGE: u32 = 500;
// Pages in one read for arm predictors that are behind. The default predictor waits for them no
// longer than that.
const PAGES_BEHIND: usize = 10;
/// The approximate number of calls with advice of an external predictor in one pass over all calls.
/// It is enough to learn how good the advice is.
const N_ADVISED: f64 = 2_000.0;
/// The time for advice in one read. The remaining calls of the read are learned without advice.
const ADVICE_BUDGET: Duration = Duration::from_secs(2);
/// The number of newest calls that are learned again, of all principals or of the one that a predictor
/// learns from; older ones would count little.
const MAX_RELEARNED_CALLS: u32 = 200_000;

/// The repositories for learning.
#[derive(Clone, Debug)]
pub struct LearningStores {
    /// The calls.
    pub calls: Arc<dyn InvocationRepository>,
    /// The texts that preceded the calls.
    pub contexts: Arc<dyn DiscoveryRepository>,
    /// The tools that were listed.
    pub tools: Arc<dyn ToolDefinitionRepository>,
    /// The lists, calls and searches of sessions.
    pub activities: Arc<dyn ListRepository>,
    /// The snapshots of learned data.
    pub snapshots: Arc<dyn SnapshotRepository>,
    /// The revisions of the stored topics, for changes of other processes.
    pub changes: Arc<dyn ChangeFeed>,
}

impl LearningStores {
    /// Returns the repositories of one store.
    #[must_use]
    pub fn of<S>(store: &Arc<S>) -> Self
    where
        S: InvocationRepository
            + DiscoveryRepository
            + ToolDefinitionRepository
            + ListRepository
            + SnapshotRepository
            + ChangeFeed
            + 'static,
    {
        Self {
            calls: Arc::<S>::clone(store),
            contexts: Arc::<S>::clone(store),
            tools: Arc::<S>::clone(store),
            activities: Arc::<S>::clone(store),
            snapshots: Arc::<S>::clone(store),
            changes: Arc::<S>::clone(store),
        }
    }
}

/// Trains the predictors of a [`NextTools`] with the calls of a store: the default one and those
/// for experiment arms, all with the same rows.
pub struct LearningTask {
    stores: LearningStores,
    clock: Arc<dyn Clock>,
    next_tools: Arc<NextTools>,
    turns: Arc<LearningTurns>,
    /// The default predictor, then the predictors of arms.
    taught: Vec<TrainedPredictor>,
    /// The last call read by the predictors that are behind; `None` before their first part.
    behind_at: Option<InvocationId>,
    /// The predictors of principals that are behind.
    new_principals: VecDeque<NewPrincipal>,
    /// The most calls that are learned again.
    max_relearned: u32,
    /// Whether clients were removed since the learned data began. Such data must not be saved any
    /// more.
    is_stale: bool,
    is_store_failing: bool,
    /// The share of calls with advice of an external predictor.
    advised_share: f64,
}

impl fmt::Debug for LearningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearningTask")
            .field("taught", &self.taught)
            .finish_non_exhaustive()
    }
}

/// A predictor of a principal that has not learned all its recorded calls yet.
struct NewPrincipal {
    taught: TrainedPredictor,
    reading: CallReading,
}

/// The place of reading the recorded calls.
#[derive(Debug)]
struct CallReading {
    /// The only principal whose calls are read; `None` for all.
    scope: Option<Principal>,
    /// The last call that was read; `None` before the first one.
    after: Option<InvocationId>,
}

/// The times at which the periodic work is due.
#[derive(Debug)]
struct DueTimes {
    look: Instant,
    age: Instant,
    save: Instant,
}

impl DueTimes {
    fn from(now: Instant) -> Self {
        Self {
            look: now + REMOVAL_CHECK_INTERVAL,
            age: now + AGE_EVERY,
            save: now + SAVE_EVERY,
        }
    }
}

impl LearningTask {
    /// Creates the task that trains `next_tools`. `make` creates its default predictor, and `model`
    /// is the name of its snapshots. Predictors that learn differently need different names.
    #[must_use]
    pub fn new(
        stores: LearningStores,
        clock: Arc<dyn Clock>,
        next_tools: Arc<NextTools>,
        model: String,
        make: impl Fn() -> Box<dyn Learner> + Send + Sync + 'static,
    ) -> Self {
        let general = TrainedPredictor::new(model, Arc::new(make), next_tools.learner().clone());
        let of_arms = next_tools.arm_learners().iter().map(|of_arms| {
            let (how, learner) = (&of_arms.how, of_arms.learner.clone());
            TrainedPredictor::new(how.model.clone(), Arc::clone(&how.make), learner)
        });
        Self {
            stores,
            clock,
            taught: std::iter::once(general).chain(of_arms).collect(),
            next_tools,
            turns: Arc::default(),
            behind_at: None,
            new_principals: VecDeque::new(),
            max_relearned: MAX_RELEARNED_CALLS,
            is_stale: false,
            is_store_failing: false,
            advised_share: 1.0,
        }
    }

    /// Sets the turns of the task. By default it takes one every two seconds.
    #[must_use]
    pub fn with_turns(self, turns: Arc<LearningTurns>) -> Self {
        Self { turns, ..self }
    }

    /// Restores the newest snapshot, or learns from the stored calls, and then learns from every
    /// new call until `stop` is cancelled. Saves the learned data at the end. Retries when the
    /// store fails.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.learn_for_ever()).await;
        // Unsaved data is not lost: it is learned again from the store after the start.
        if timeout(LAST_SAVE, self.save()).await.is_err() {
            warn!(
                "timeout while saving the learned state at the end; the next start learns the rest \
                 again"
            );
        }
    }

    /// Learns from all calls in the store, and returns when that is done. It is for callers that
    /// drive the task by hand instead of [`Self::run`]. The first time it restores the newest
    /// snapshot, or learns from the stored calls. Nothing ages and nothing is saved.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the store does not return its calls; the next call of this
    /// function continues after the last call that was read.
    pub async fn learn_all(&mut self) -> Result<(), StoreError> {
        let learned = self.learn_now().await;
        self.note_store_result(&learned);
        learned
    }

    async fn learn_now(&mut self) -> Result<(), StoreError> {
        if self.next_tools.is_ready() {
            self.catch_up(&self.in_step()).await?;
        } else {
            self.restore_or_learn().await?;
        }
        while self.catch_up_behind().await? {}
        while self.catch_up_principals().await? {}
        Ok(())
    }

    async fn learn_for_ever(&mut self) {
        while !self.begin().await {
            sleep(READ_EVERY).await;
        }
        let mut due = DueTimes::from(Instant::now());
        loop {
            let turn = self.turns.next(READ_EVERY).await;
            let learned = AssertUnwindSafe(self.run_turn(&mut due))
                .catch_unwind()
                .await;
            match learned {
                Ok(learned) => self.note_store_result(&learned),
                // The next turn continues after the calls that were read.
                Err(_) => self.next_tools.record_failure("continue learning"),
            }
            self.turns.end(turn);
        }
    }

    /// Finds the starting point; returns whether the store could be read.
    async fn begin(&mut self) -> bool {
        let begun = AssertUnwindSafe(self.restore_or_learn())
            .catch_unwind()
            .await;
        let Ok(begun) = begun else {
            self.next_tools.record_failure("start learning");
            return false;
        };
        self.note_store_result(&begun);
        begun.is_ok()
    }

    async fn restore_or_learn(&mut self) -> Result<(), StoreError> {
        let origin = self.origin().await?;
        self.taught.truncate(self.n_general());
        self.new_principals.clear();
        let mut anew = Vec::new();
        for taught in &mut self.taught {
            // An earlier attempt may have learned from clients that are removed now.
            taught.reset(origin);
            let snapshot = self.stores.snapshots.newest_snapshot(&taught.model).await?;
            taught.version = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
            let is_restored = match snapshot {
                Some(snapshot) => restore_snapshot(&taught.learner, snapshot).await,
                None => false,
            };
            if !is_restored {
                anew.push(taught.learner.clone());
            }
        }
        self.skip_old(&anew).await?;
        self.know_tools(&self.learners()).await?;
        // A predictor that is behind must not delay the default one.
        let general = self.next_tools.learner().read().read_to();
        let is_in_step = |learner: &SharedLearner| learner.read().read_to() >= general;
        let in_step: Vec<bool> = self.learners().iter().map(is_in_step).collect();
        let first = self.learners().into_iter().zip(&in_step);
        let first: Vec<_> = first.filter_map(|(one, is)| is.then_some(one)).collect();
        let learned = self.catch_up(&first).await;
        self.advised_share = 1.0;
        learned?;
        self.behind_at = None;
        for taught in &mut self.taught {
            taught.n_saved.get_or_insert(0);
        }
        let of_arms = self.next_tools.arm_learners().iter().zip(&in_step[1..]);
        for (of_arms, _) in of_arms.filter(|(_, is_in_step)| **is_in_step) {
            of_arms.set_ready();
        }
        while self.catch_up_principals().await? {}
        self.next_tools.set_ready();
        Ok(())
    }

    /// Returns the number of predictors that learn from all principals.
    fn n_general(&self) -> usize {
        1 + self.next_tools.arm_learners().len()
    }

    fn learners(&self) -> Vec<SharedLearner> {
        let learners = self.taught.iter().map(|taught| &taught.learner);
        learners.cloned().collect()
    }

    /// Returns the learners that have learned all recorded calls.
    fn in_step(&self) -> Vec<SharedLearner> {
        let of_arms = self.next_tools.arm_learners().iter();
        let of_arms = of_arms.filter(|of_arms| of_arms.is_ready());
        let of_arms = of_arms.map(|of_arms| &of_arms.learner);
        let general = std::iter::once(self.next_tools.learner());
        let of_principals = self.taught.iter().skip(self.n_general());
        let of_principals = of_principals.map(|taught| &taught.learner);
        general
            .chain(of_arms)
            .chain(of_principals)
            .cloned()
            .collect()
    }

    /// Trains the predictors of new principals with a part of their unread calls; returns whether
    /// there is more to read. Predictors that were dropped meanwhile are no longer trained.
    async fn catch_up_principals(&mut self) -> Result<bool, StoreError> {
        let next_tools = Arc::clone(&self.next_tools);
        let Some(principals) = next_tools.principals() else {
            return Ok(false);
        };
        let current = principals.all();
        let is_current = |taught: &TrainedPredictor| {
            let mut known = current.iter();
            known.any(|known| known.learner.is_same(&taught.learner))
        };
        let of_principals = self.taught.split_off(self.n_general());
        self.taught
            .extend(of_principals.into_iter().filter(&is_current));
        self.new_principals.retain(|new| is_current(&new.taught));
        for one in &current {
            let mut trained = self.taught.iter().skip(self.n_general());
            let mut new = self.new_principals.iter().map(|new| &new.taught);
            let is_same = |taught: &TrainedPredictor| taught.learner.is_same(&one.learner);
            if !trained.any(is_same) && !new.any(is_same) {
                let new = self.begin_principal(principals, one).await?;
                self.new_principals.push_back(new);
            }
        }
        let mut n_pages = PAGES_BEHIND;
        while let Some(mut new) = self.new_principals.pop_front() {
            let learner = new.taught.learner.clone();
            let general = next_tools.learner();
            let is_done = self
                .learn_own_calls(&learner, general, &mut new.reading, &mut n_pages)
                .await;
            if matches!(is_done, Ok(true)) {
                self.taught.push(new.taught);
            } else {
                self.new_principals.push_front(new);
                return is_done.map(|_| true);
            }
        }
        Ok(false)
    }

    /// Restores the snapshot of a new principal. Without one, it begins with the oldest call that is
    /// learned again.
    async fn begin_principal(
        &self,
        principals: &PrincipalLearners,
        new: &PrincipalLearner,
    ) -> Result<NewPrincipal, StoreError> {
        let origin = self.origin().await?;
        let PrincipalPredictors { make, .. } = &principals.how;
        let model = principals.how.model_of(&new.principal);
        let taught = TrainedPredictor::new(model, Arc::clone(make), new.learner.clone());
        let mut taught = taught.only_of(new.principal.clone());
        taught.reset(origin);
        let snapshot = self.stores.snapshots.newest_snapshot(&taught.model).await?;
        taught.version = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        if let Some(snapshot) = snapshot {
            restore_snapshot(&taught.learner, snapshot).await;
        }
        taught.n_saved = Some(taught.learner.read().n_learned());
        let learners = [taught.learner.clone()];
        self.know_tools(&learners).await?;
        self.skip_older(Some(&new.principal), &learners).await?;
        Ok(NewPrincipal {
            reading: CallReading {
                scope: Some(new.principal.clone()),
                after: read_to(&learners),
            },
            taught,
        })
    }

    /// Trains a predictor with at most `n_pages` pages of the unread calls of its principal, and
    /// subtracts their number; returns whether that was everything. `general` has learned from all
    /// principals.
    async fn learn_own_calls(
        &self,
        learner: &SharedLearner,
        general: &SharedLearner,
        reading: &mut CallReading,
        n_pages: &mut usize,
    ) -> Result<bool, StoreError> {
        // Until here, no call can come any more. Taken before the reading, so that it has all of them.
        let settled = general.read().read_to();
        let learners = std::slice::from_ref(learner);
        let is_all = self.read_on(learners, reading, n_pages).await?;
        if let (true, Some(settled)) = (is_all, settled) {
            // The calls of others need not be read.
            learner.write().skip_to(settled);
        }
        Ok(is_all)
    }

    /// Trains the predictors that are behind with a part of their unread calls; returns whether
    /// there are more.
    async fn catch_up_behind(&mut self) -> Result<bool, StoreError> {
        let next_tools = Arc::clone(&self.next_tools);
        let of_arms = next_tools.arm_learners().iter();
        let behind: Vec<&ArmLearner> = of_arms.filter(|of_arms| !of_arms.is_ready()).collect();
        let learners = behind.iter().map(|of_arms| of_arms.learner.clone());
        let learners: Vec<SharedLearner> = learners.collect();
        if learners.is_empty() {
            return Ok(false);
        }
        // The position of reading is kept apart from the settled position, which may stay behind
        // it.
        let mut reading = CallReading {
            scope: None,
            after: self.behind_at.max(read_to(&learners)),
        };
        let mut n_pages = PAGES_BEHIND;
        let is_all = self.read_on(&learners, &mut reading, &mut n_pages).await;
        self.behind_at = reading.after;
        if !is_all? {
            return Ok(true);
        }
        for of_arms in behind {
            of_arms.set_ready();
        }
        info!("experiments: predictors have learned all recorded calls");
        Ok(false)
    }

    async fn run_turn(&mut self, due: &mut DueTimes) -> Result<(), StoreError> {
        let now = Instant::now();
        if now >= due.look {
            let n_erasures = self.n_erasures().await?;
            due.look = now + REMOVAL_CHECK_INTERVAL;
            let is_of_others =
                |taught: &TrainedPredictor| taught.learner.read().origin().n_erasures != n_erasures;
            self.is_stale |= self.taught.iter().any(is_of_others);
        }
        if self.is_stale || self.is_old() {
            self.relearn().await?;
            // After a removal there is no snapshot any more, so save at once.
            due.save = now;
        }
        self.catch_up(&self.in_step()).await?;
        self.catch_up_behind().await?;
        self.catch_up_principals().await?;
        if now >= due.age {
            let learners = self.learners();
            self.know_tools(&learners).await?;
            due.age = now + AGE_EVERY;
            let at = self.clock.now();
            for learner in learners {
                self.run_blocking(move || learner.write().age(at)).await;
            }
        }
        if now >= due.save {
            due.save = now + SAVE_EVERY;
            self.save().await;
        }
        Ok(())
    }

    /// Returns whether the learned data is so old that it must be rebuilt. What a principal left in a
    /// snapshot long ago is rebuilt together with the rest.
    fn is_old(&self) -> bool {
        let now = self.clock.now();
        self.taught.iter().take(self.n_general()).any(|taught| {
            let age = now.duration_since(taught.learner.read().origin().begun_at);
            Duration::try_from(age).is_ok_and(|age| age >= RELEARN_INTERVAL)
        })
    }

    async fn catch_up(&self, learners: &[SharedLearner]) -> Result<(), StoreError> {
        let mut reading = CallReading {
            scope: None,
            after: read_to(learners),
        };
        let mut n_pages = usize::MAX;
        while !self.read_on(learners, &mut reading, &mut n_pages).await? {}
        Ok(())
    }

    /// Learns from at most `n_pages` pages of calls, and subtracts their number; returns whether that
    /// was everything.
    async fn read_on(
        &self,
        learners: &[SharedLearner],
        reading: &mut CallReading,
        n_pages: &mut usize,
    ) -> Result<bool, StoreError> {
        let mut is_all = false;
        while *n_pages > 0 {
            *n_pages -= 1;
            let (scope, after) = (reading.scope.as_ref(), reading.after);
            let page = self.stores.calls.past_calls(scope, after, PAGE).await?;
            is_all = page.len() < PAGE as usize;
            if let Some(last) = page.last() {
                let last = last.id;
                self.teach(learners, page).await?;
                reading.after = Some(last);
                for learner in learners {
                    learner.write().settle(self.clock.now());
                    learn_hidden_tool_use(learner, &*self.stores.activities, self.clock.now())
                        .await;
                }
            }
            if is_all {
                break;
            }
        }
        for learner in learners {
            learner.write().end_silent(self.clock.now());
            learn_hidden_tool_use(learner, &*self.stores.activities, self.clock.now()).await;
        }
        Ok(is_all)
    }

    /// Trains each learner with the calls of a page. It uses at most half of the time, because
    /// requests need the machine too.
    async fn teach(
        &self,
        learners: &[SharedLearner],
        mut page: Vec<PastCall>,
    ) -> Result<(), StoreError> {
        let is_new = |call: &PastCall| learners.iter().any(|one| one.read().is_new(call));
        page.retain(is_new);
        if page.is_empty() {
            return Ok(());
        }
        let is_unknown = |learner: &SharedLearner| {
            let learner = learner.read();
            page.iter().any(|call| !learner.is_known(&call.tool_ref()))
        };
        if learners.iter().any(is_unknown) {
            self.know_tools(learners).await?;
        }
        let texts = self.texts(&page).await?;
        if self.next_tools.external().is_some() {
            self.teach_with_advice(learners, page, texts).await;
            return Ok(());
        }
        let (learners, next_tools) = (learners.to_vec(), Arc::clone(&self.next_tools));
        let now = self.clock.now();
        let started = Instant::now();
        self.run_blocking(move || {
            for call in &page {
                let said = preceding_text(call, &texts);
                for learner in &learners {
                    let follow = AssertUnwindSafe(|| learner.write().learn_call(call, said, now));
                    if catch_unwind(follow).is_err() {
                        next_tools.record_failure("learn from a call");
                    }
                }
            }
        })
        .await;
        sleep(started.elapsed()).await;
        Ok(())
    }

    /// Trains each learner with the calls of a page, after the external predictor was asked about a
    /// share of them. All learners get the advice that the first one asked for.
    async fn teach_with_advice(
        &self,
        learners: &[SharedLearner],
        page: Vec<PastCall>,
        texts: BTreeMap<ContextId, (Embedding, bool)>,
    ) {
        let texts = Arc::new(texts);
        let now = self.clock.now();
        let mut budget = ADVICE_BUDGET;
        for call in page {
            let started = Instant::now();
            let advice = if is_in_share(call.id, self.advised_share) && !budget.is_zero() {
                self.advice(learners, &call).await
            } else {
                None
            };
            budget = budget.saturating_sub(started.elapsed());
            let started = Instant::now();
            let (texts, next_tools) = (Arc::clone(&texts), Arc::clone(&self.next_tools));
            let learners = learners.to_vec();
            self.run_blocking(move || {
                let said = preceding_text(&call, &texts);
                for learner in &learners {
                    let learn = AssertUnwindSafe(|| {
                        let mut learner = learner.write();
                        learner.learn_advised_call(&call, said, advice.as_deref(), now);
                    });
                    if catch_unwind(learn).is_err() {
                        next_tools.record_failure("learn from a call");
                    }
                }
            })
            .await;
            sleep(started.elapsed()).await;
        }
    }

    /// Returns the scores of the external predictor before a call.
    async fn advice(
        &self,
        learners: &[SharedLearner],
        call: &PastCall,
    ) -> Option<Arc<NamedScores>> {
        let external = self.next_tools.external()?;
        let (learner, now) = (learners.first()?.clone(), self.clock.now());
        let call = call.clone();
        let request = move || learner.read().advice_request(&call, now);
        external.ask(self.run_blocking(request).await??).await
    }

    /// Returns the vectors of the texts before calls, each with whether it is a declared context.
    async fn texts(
        &self,
        calls: &[PastCall],
    ) -> Result<BTreeMap<ContextId, (Embedding, bool)>, StoreError> {
        let ids: BTreeSet<ContextId> = calls.iter().filter_map(|call| call.context).collect();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let ids: Vec<ContextId> = ids.into_iter().collect();
        let contexts = match self.stores.contexts.contexts_with(&ids).await {
            // Without its text a call is still useful.
            Err(StoreError::Corrupt { table, reason }) => {
                debug!("learning from calls without their context texts: {table}: {reason}");
                Vec::new()
            }
            contexts => contexts?,
        };
        let texts = contexts.into_iter().filter_map(|context| {
            let is_context = context.source != ContextSource::Search;
            Some((context.id, (context.embedding?, is_context)))
        });
        Ok(texts.collect())
    }

    async fn know_tools(&self, learners: &[SharedLearner]) -> Result<(), StoreError> {
        let tools = self.stores.tools.tools_seen().await?;
        for learner in learners {
            learner.write().add_known_tools(&tools);
        }
        Ok(())
    }

    /// Makes the learners skip calls that are too old, and sets the share of calls with advice.
    async fn skip_old(&mut self, learners: &[SharedLearner]) -> Result<(), StoreError> {
        if learners.is_empty() {
            return Ok(());
        }
        let all = InvocationFilter::default();
        let n_calls = self.stores.calls.count(&all).await?;
        let n_learned = n_calls.clamp(1, u64::from(self.max_relearned));
        let n_learned = u32::try_from(n_learned).map_or(f64::MAX, f64::from);
        self.advised_share = (N_ADVISED / n_learned).min(1.0);
        self.skip_older(None, learners).await
    }

    /// Makes the learners skip all calls, of a principal or of all, but the newest ones that are
    /// learned again.
    async fn skip_older(
        &self,
        scope: Option<&Principal>,
        learners: &[SharedLearner],
    ) -> Result<(), StoreError> {
        let n = self.max_relearned;
        if let Some(last) = self.stores.calls.call_before_newest(scope, n).await? {
            for learner in learners {
                learner.write().skip_to(last);
            }
        }
        Ok(())
    }

    /// Learns everything again in parallel to the learned data in use, and then replaces it. Calls
    /// that arrive meanwhile are learned afterwards.
    async fn relearn(&mut self) -> Result<(), StoreError> {
        let origin = self.origin().await?;
        let fresh = self.taught.iter().map(|taught| taught.new_learner(origin));
        let fresh: Vec<SharedLearner> = fresh.collect();
        // New principals begin again with this origin.
        self.new_principals.clear();
        let (general, of_principals) = fresh.split_at(self.n_general());
        self.skip_old(general).await?;
        self.know_tools(&fresh).await?;
        let learned = self.catch_up(general).await;
        self.advised_share = 1.0;
        learned?;
        let principals = self.taught.iter().skip(self.n_general());
        for (taught, learner) in principals.zip(of_principals) {
            let learners = std::slice::from_ref(learner);
            self.skip_older(taught.principal.as_ref(), learners).await?;
            let mut reading = CallReading {
                scope: taught.principal.clone(),
                after: read_to(learners),
            };
            let mut n_pages = usize::MAX;
            while !self
                .learn_own_calls(learner, &general[0], &mut reading, &mut n_pages)
                .await?
            {}
        }
        for (taught, fresh) in self.taught.iter_mut().zip(&fresh) {
            taught.learner.take_over(fresh);
            taught.n_saved = None;
        }
        for of_arms in self.next_tools.arm_learners() {
            of_arms.set_ready();
        }
        // A client that was removed meanwhile is noticed at the next check.
        self.is_stale = false;
        info!("predictor learned all recorded calls again");
        Ok(())
    }

    async fn origin(&self) -> Result<Origin, StoreError> {
        Ok(Origin {
            n_erasures: self.n_erasures().await?,
            begun_at: self.clock.now(),
        })
    }

    /// Returns the number of erasures: removals of clients and imports of past calls.
    async fn n_erasures(&self) -> Result<u64, StoreError> {
        let revisions = self.stores.changes.revisions().await?;
        Ok(Topic::Erasures.revision(&revisions))
    }

    /// Runs blocking work on a thread of its own; `None` if it panicked.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let done = tokio::task::spawn_blocking(work).await;
        if done.is_err() {
            self.next_tools.record_failure("update the learned state");
        }
        done.ok()
    }

    /// Logs when the store begins to fail, and when it works again.
    fn note_store_result(&mut self, result: &Result<(), StoreError>) {
        match result {
            Ok(()) if self.is_store_failing => info!("learning from calls works again"),
            Err(error) if !self.is_store_failing => {
                let error = error as &dyn std::error::Error;
                warn!(
                    error,
                    "learning from calls is paused: the store is unavailable"
                );
            }
            _ => {}
        }
        self.is_store_failing = result.is_err();
        self.next_tools.set_delayed(result.is_err());
    }
}

/// Returns whether a call is in a share of all calls that is the same at each pass.
fn is_in_share(call: InvocationId, share: f64) -> bool {
    if share >= 1.0 {
        return true;
    }
    let mut hasher = DefaultHasher::new();
    call.hash(&mut hasher);
    // The upper 32 bits as a number from 0 to 1.
    let place = u32::try_from(hasher.finish() >> 32).map_or(1.0, f64::from);
    place < share * f64::from(u32::MAX)
}

fn preceding_text<'a>(
    call: &PastCall,
    texts: &'a BTreeMap<ContextId, (Embedding, bool)>,
) -> Option<PrecedingText<'a>> {
    let (vector, is_context) = texts.get(&call.context?)?;
    Some(PrecedingText {
        vector,
        is_context: *is_context,
    })
}

/// Returns the call up to which all of them have read.
fn read_to(learners: &[SharedLearner]) -> Option<InvocationId> {
    let read_to = learners.iter().map(|learner| learner.read().read_to());
    read_to.min().flatten()
}

#[cfg(test)]
mod tests;
