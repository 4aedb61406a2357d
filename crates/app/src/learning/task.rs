//! The work in the background: reading, teaching, ageing, learning anew.

mod meeting;
mod saving;
mod taught;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use riglm_domain::context::ContextSource;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::{ContextId, InvocationId};
use riglm_domain::invocation::PastCall;
use riglm_ports::analytics::{
    ChangeFeed, ContextRepository, InvocationFilter, InvocationRepository, ListActivityRepository,
    SnapshotRepository, StoreError, ToolDefinitionRepository, Topic,
};
use riglm_ports::clock::Clock;
use riglm_ports::predictor::Predictor;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::meeting::learn_meetings;
use self::saving::restored;
use self::taught::Taught;
use super::arms::OfArms;
use super::learner::{Origin, Said};
use super::next_tools::NextTools;
use super::shared_learner::SharedLearner;

/// How often new calls are looked for.
const READ_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether what was learned is to be forgotten.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often what was learned ages.
const AGE_EVERY: Duration = Duration::from_hours(1);
/// How often what was learned is saved.
const SAVE_EVERY: Duration = Duration::from_mins(15);
/// How often everything is learned anew, restarts or not: of rows that were removed nothing is left
/// then, and calls that came into the store very late are learned from too.
const ANEW_EVERY: Duration = Duration::from_hours(24);
/// How long saving may take at the end.
const LAST_SAVE: Duration = Duration::from_secs(3);
/// How many calls are read at once.
const PAGE: u32 = 500;
/// How many pages are read at once for predictors of experiments that are behind that of everybody,
/// which does not wait for them longer than that.
const PAGES_BEHIND: usize = 10;
/// How many of the newest calls are learned from when everything is learned anew. What is older
/// would count little.
const MAX_ANEW: u64 = 200_000;

/// Where calls are read and what was learned is kept.
#[derive(Clone, Debug)]
pub struct LearningStores {
    /// The calls.
    pub calls: Arc<dyn InvocationRepository>,
    /// The texts that they followed.
    pub contexts: Arc<dyn ContextRepository>,
    /// The tools that were listed.
    pub tools: Arc<dyn ToolDefinitionRepository>,
    /// The lists, calls and searches of sessions.
    pub activities: Arc<dyn ListActivityRepository>,
    /// What was learned.
    pub snapshots: Arc<dyn SnapshotRepository>,
    /// Notice of what other processes changed.
    pub changes: Arc<dyn ChangeFeed>,
}

/// Teaches the predictors of a [`NextTools`] with the calls of a store: that of everybody, and those
/// of arms of experiments, all of them with the same rows.
pub struct LearningTask {
    stores: LearningStores,
    clock: Arc<dyn Clock>,
    next_tools: Arc<NextTools>,
    /// That of everybody, and then those of arms.
    taught: Vec<Taught>,
    /// The last call that those have read which are behind the others; `None` before the first part.
    behind_at: Option<InvocationId>,
    /// Clients were removed since what is in use was begun: it is not to be saved any more.
    is_stale: bool,
    is_store_failing: bool,
}

impl fmt::Debug for LearningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearningTask")
            .field("taught", &self.taught)
            .finish_non_exhaustive()
    }
}

/// The moments at which something is to be done again.
#[derive(Debug)]
struct Due {
    look: Instant,
    age: Instant,
    save: Instant,
}

impl Due {
    fn from(now: Instant) -> Self {
        Self {
            look: now + LOOK_EVERY,
            age: now + AGE_EVERY,
            save: now + SAVE_EVERY,
        }
    }
}

impl LearningTask {
    /// Returns the task that teaches `next_tools`, of which `make` makes the predictor of everybody.
    /// Its snapshots are kept under the name `model`, which tells predictors apart that learn
    /// differently.
    #[must_use]
    pub fn new(
        stores: LearningStores,
        clock: Arc<dyn Clock>,
        next_tools: Arc<NextTools>,
        model: String,
        make: impl Fn() -> Box<dyn Predictor> + Send + Sync + 'static,
    ) -> Self {
        let general = Taught::new(model, Arc::new(make), next_tools.learner().clone());
        let of_arms = next_tools.of_arms().iter().map(|of_arms| {
            let (how, learner) = (&of_arms.how, of_arms.learner.clone());
            Taught::new(how.model.clone(), Arc::clone(&how.make), learner)
        });
        Self {
            stores,
            clock,
            taught: std::iter::once(general).chain(of_arms).collect(),
            next_tools,
            behind_at: None,
            is_stale: false,
            is_store_failing: false,
        }
    }

    /// Goes on from the newest snapshot, or learns from what there is, and then from every call
    /// that comes, until `stop`; saves what was learned at the end. A store that fails is tried
    /// again.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.learn_for_ever()).await;
        if timeout(LAST_SAVE, self.save()).await.is_err() {
            warn!("what was learned could not be saved in time; it is learned again");
        }
    }

    /// Learns from all calls that the store has now, and returns when that is done: for who drives
    /// the task by hand in place of [`Self::run`]. The first time it goes on from the newest
    /// snapshot, or learns from what there is. Nothing ages and nothing is saved.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the store does not give its calls; the next time goes on behind
    /// what was read.
    pub async fn learn_all(&mut self) -> Result<(), StoreError> {
        let learned = self.learn_now().await;
        self.note(&learned);
        learned
    }

    async fn learn_now(&mut self) -> Result<(), StoreError> {
        if self.next_tools.is_ready() {
            self.catch_up(&self.in_step()).await?;
        } else {
            self.go_on().await?;
        }
        while self.catch_up_behind().await? {}
        Ok(())
    }

    async fn learn_for_ever(&mut self) {
        while !self.begin().await {
            sleep(READ_EVERY).await;
        }
        let mut due = Due::from(Instant::now());
        loop {
            sleep(READ_EVERY).await;
            let turn = AssertUnwindSafe(self.turn(&mut due)).catch_unwind().await;
            match turn {
                Ok(turn) => self.note(&turn),
                // The next turn goes on behind what was read.
                Err(_) => self.next_tools.failed("go on learning"),
            }
        }
    }

    /// Finds out where to begin; returns whether the store said so.
    async fn begin(&mut self) -> bool {
        let begun = AssertUnwindSafe(self.go_on()).catch_unwind().await;
        let Ok(begun) = begun else {
            self.next_tools.failed("begin learning");
            return false;
        };
        self.note(&begun);
        begun.is_ok()
    }

    async fn go_on(&mut self) -> Result<(), StoreError> {
        let origin = self.origin().await?;
        let mut anew = Vec::new();
        for taught in &mut self.taught {
            // What an attempt before this one learned may be of clients that are gone now.
            taught.begin_anew(origin);
            let snapshot = self.stores.snapshots.newest_snapshot(&taught.model).await?;
            taught.version = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
            let is_restored = match snapshot {
                Some(snapshot) => restored(&taught.learner, snapshot).await,
                None => false,
            };
            if !is_restored {
                anew.push(taught.learner.clone());
            }
        }
        self.skip_old(&anew).await?;
        self.know_tools(&self.learners()).await?;
        // Who begins behind everybody's predictor does not hold it up.
        let general = self.next_tools.learner().read().read_to();
        let is_in_step = |learner: &SharedLearner| learner.read().read_to() >= general;
        let in_step: Vec<bool> = self.learners().iter().map(is_in_step).collect();
        let first = self.learners().into_iter().zip(&in_step);
        let first: Vec<_> = first.filter_map(|(one, is)| is.then_some(one)).collect();
        self.catch_up(&first).await?;
        self.behind_at = None;
        for taught in &mut self.taught {
            taught.n_saved.get_or_insert(0);
        }
        let of_arms = self.next_tools.of_arms().iter().zip(&in_step[1..]);
        for (of_arms, _) in of_arms.filter(|(_, is_in_step)| **is_in_step) {
            of_arms.set_ready();
        }
        self.next_tools.set_ready();
        Ok(())
    }

    /// Returns all that learn.
    fn learners(&self) -> Vec<SharedLearner> {
        let learners = self.taught.iter().map(|taught| &taught.learner);
        learners.cloned().collect()
    }

    /// Returns those that learned all that there was.
    fn in_step(&self) -> Vec<SharedLearner> {
        let of_arms = self.next_tools.of_arms().iter();
        let of_arms = of_arms.filter(|of_arms| of_arms.is_ready());
        let of_arms = of_arms.map(|of_arms| &of_arms.learner);
        let general = std::iter::once(self.next_tools.learner());
        general.chain(of_arms).cloned().collect()
    }

    /// Has predictors of arms that are behind the others learn a part of what they have not read;
    /// returns whether there is more.
    async fn catch_up_behind(&mut self) -> Result<bool, StoreError> {
        let next_tools = Arc::clone(&self.next_tools);
        let of_arms = next_tools.of_arms().iter();
        let behind: Vec<&OfArms> = of_arms.filter(|of_arms| !of_arms.is_ready()).collect();
        let learners = behind.iter().map(|of_arms| of_arms.learner.clone());
        let learners: Vec<SharedLearner> = learners.collect();
        if learners.is_empty() {
            return Ok(false);
        }
        // What was read is remembered apart from what is settled, which may stay behind it.
        let mut after = self.behind_at.max(read_to(&learners));
        let is_all = self.read_on(&learners, &mut after, PAGES_BEHIND).await;
        self.behind_at = after;
        if !is_all? {
            return Ok(true);
        }
        for of_arms in behind {
            of_arms.set_ready();
        }
        info!("the predictors of experiments learned all that there was");
        Ok(false)
    }

    async fn turn(&mut self, due: &mut Due) -> Result<(), StoreError> {
        let now = Instant::now();
        if now >= due.look {
            let n_erasures = self.n_erasures().await?;
            due.look = now + LOOK_EVERY;
            let is_of_others =
                |taught: &Taught| taught.learner.read().origin().n_erasures != n_erasures;
            self.is_stale |= self.taught.iter().any(is_of_others);
        }
        if self.is_stale || self.is_old() {
            self.learn_anew().await?;
            due.save = now;
        }
        self.catch_up(&self.in_step()).await?;
        self.catch_up_behind().await?;
        if now >= due.age {
            let learners = self.learners();
            self.know_tools(&learners).await?;
            due.age = now + AGE_EVERY;
            let at = self.clock.now();
            for learner in learners {
                self.off_the_path(move || learner.write().upkeep(at)).await;
            }
        }
        if now >= due.save {
            due.save = now + SAVE_EVERY;
            self.save().await;
        }
        Ok(())
    }

    /// Returns whether what was learned was begun so long ago that it is to be learned anew.
    fn is_old(&self) -> bool {
        let now = self.clock.now();
        self.taught.iter().any(|taught| {
            let age = now.duration_since(taught.learner.read().origin().begun_at);
            Duration::try_from(age).is_ok_and(|age| age >= ANEW_EVERY)
        })
    }

    /// Learns from everything that was not read yet.
    async fn catch_up(&self, learners: &[SharedLearner]) -> Result<(), StoreError> {
        let mut after = read_to(learners);
        while !self.read_on(learners, &mut after, usize::MAX).await? {}
        Ok(())
    }

    /// Learns from what follows `after`, of so many pages at most, and moves it on; returns whether
    /// that was everything.
    async fn read_on(
        &self,
        learners: &[SharedLearner],
        after: &mut Option<InvocationId>,
        n_pages: usize,
    ) -> Result<bool, StoreError> {
        let mut is_all = false;
        for _ in 0..n_pages {
            let page = self.stores.calls.past_calls(*after, PAGE).await?;
            is_all = page.len() < PAGE as usize;
            if let Some(last) = page.last() {
                let last = last.id;
                self.teach(learners, page).await?;
                *after = Some(last);
                for learner in learners {
                    learner.write().settle(self.clock.now());
                    learn_meetings(learner, &*self.stores.activities, self.clock.now()).await;
                }
            }
            if is_all {
                break;
            }
        }
        for learner in learners {
            learner.write().end_silent(self.clock.now());
            learn_meetings(learner, &*self.stores.activities, self.clock.now()).await;
        }
        Ok(is_all)
    }

    /// Has each learn from the calls of a page, at most half of the time: others need the machine
    /// too.
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
        let (learners, next_tools) = (learners.to_vec(), Arc::clone(&self.next_tools));
        let now = self.clock.now();
        let started = Instant::now();
        self.off_the_path(move || {
            for call in &page {
                let said = call.context.and_then(|context| texts.get(&context));
                let said = said.map(|(vector, is_context)| Said {
                    vector,
                    is_context: *is_context,
                });
                for learner in &learners {
                    let follow = AssertUnwindSafe(|| learner.write().follow(call, said, now));
                    if catch_unwind(follow).is_err() {
                        next_tools.failed("learn from a call");
                    }
                }
            }
        })
        .await;
        sleep(started.elapsed()).await;
        Ok(())
    }

    /// Returns the vectors of the texts that calls followed, and whether clients said by them what they
    /// do.
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
            // A call says something without its text, too.
            Err(StoreError::Corrupt { table, reason }) => {
                debug!("calls are learned from without their texts: {table}: {reason}");
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
            learner.write().know(&tools);
        }
        Ok(())
    }

    /// Has them leave out what is too old to be learned from.
    async fn skip_old(&self, learners: &[SharedLearner]) -> Result<(), StoreError> {
        if learners.is_empty() {
            return Ok(());
        }
        let all = InvocationFilter::default();
        let n_calls = self.stores.calls.count(&all).await?;
        let mut n_left_out = n_calls.saturating_sub(MAX_ANEW);
        let mut after = None;
        while n_left_out > 0 {
            let limit = u32::try_from(n_left_out).map_or(PAGE, |n| n.min(PAGE));
            let page = self.stores.calls.past_calls(after, limit).await?;
            let Some(last) = page.last() else {
                break;
            };
            after = Some(last.id);
            for learner in learners {
                learner.write().skip_to(last.id);
            }
            n_left_out = n_left_out.saturating_sub(page.len() as u64);
        }
        Ok(())
    }

    /// Learns everything again beside what is in use, and then puts it in its place. What comes
    /// meanwhile is learned from after that.
    async fn learn_anew(&mut self) -> Result<(), StoreError> {
        let origin = self.origin().await?;
        let fresh = self.taught.iter().map(|taught| taught.untaught(origin));
        let fresh: Vec<SharedLearner> = fresh.collect();
        self.skip_old(&fresh).await?;
        self.know_tools(&fresh).await?;
        self.catch_up(&fresh).await?;
        for (taught, fresh) in self.taught.iter_mut().zip(&fresh) {
            taught.learner.take_over(fresh);
            taught.n_saved = None;
        }
        for of_arms in self.next_tools.of_arms() {
            of_arms.set_ready();
        }
        // A client that was removed meanwhile is noticed at the next look.
        self.is_stale = false;
        info!("everything was learned anew");
        Ok(())
    }

    async fn origin(&self) -> Result<Origin, StoreError> {
        Ok(Origin {
            n_erasures: self.n_erasures().await?,
            begun_at: self.clock.now(),
        })
    }

    /// Returns how often clients were removed.
    async fn n_erasures(&self) -> Result<u64, StoreError> {
        let revisions = self.stores.changes.revisions().await?;
        Ok(Topic::Erasures.revision(&revisions))
    }

    /// Does work of a while on a thread of its own; `None` where it failed.
    async fn off_the_path<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let done = tokio::task::spawn_blocking(work).await;
        if done.is_err() {
            self.next_tools.failed("keep what it learned");
        }
        done.ok()
    }

    /// Says when the store begins to fail, and when it is over.
    fn note(&mut self, result: &Result<(), StoreError>) {
        match result {
            Ok(()) if self.is_store_failing => info!("learning from calls goes on"),
            Err(error) if !self.is_store_failing => {
                let error = error as &dyn std::error::Error;
                warn!(
                    error,
                    "calls cannot be learned from until the store answers"
                );
            }
            _ => {}
        }
        self.is_store_failing = result.is_err();
        self.next_tools.set_delayed(result.is_err());
    }
}

/// Returns the call up to which all of them have read.
fn read_to(learners: &[SharedLearner]) -> Option<InvocationId> {
    let read_to = learners.iter().map(|learner| learner.read().read_to());
    read_to.min().flatten()
}

#[cfg(test)]
mod tests;
