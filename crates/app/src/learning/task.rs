//! The work in the background: reading, teaching, ageing, learning anew.

mod saving;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::ContextId;
use riglm_domain::invocation::PastCall;
use riglm_ports::analytics::{
    ChangeFeed, ContextRepository, InvocationFilter, InvocationRepository, SnapshotRepository,
    StoreError, ToolDefinitionRepository, Topic,
};
use riglm_ports::clock::Clock;
use riglm_ports::predictor::Predictor;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::saving::restored;
use super::learner::{Learner, Origin};
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
    /// What was learned.
    pub snapshots: Arc<dyn SnapshotRepository>,
    /// Notice of what other processes changed.
    pub changes: Arc<dyn ChangeFeed>,
}

/// Makes a predictor that learned nothing yet.
type MakePredictor = dyn Fn() -> Box<dyn Predictor> + Send + Sync;

/// Teaches the predictor of a [`NextTools`] with the calls of a store.
pub struct LearningTask {
    stores: LearningStores,
    clock: Arc<dyn Clock>,
    next_tools: Arc<NextTools>,
    make: Box<MakePredictor>,
    /// Under which name snapshots are kept.
    model: String,
    /// The newest snapshot that is known, 0 without any.
    version: u64,
    /// Clients were removed since what is in use was begun: it is not to be saved any more.
    is_stale: bool,
    /// How many calls had been learned from when the last snapshot was taken.
    n_saved: Option<u64>,
    is_store_failing: bool,
}

impl fmt::Debug for LearningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearningTask")
            .field("model", &self.model)
            .field("version", &self.version)
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
    /// Returns the task that teaches `next_tools`, whose predictor `make` makes. Snapshots are kept
    /// under the name `model`, which tells predictors apart that learn differently.
    #[must_use]
    pub fn new(
        stores: LearningStores,
        clock: Arc<dyn Clock>,
        next_tools: Arc<NextTools>,
        model: String,
        make: impl Fn() -> Box<dyn Predictor> + Send + Sync + 'static,
    ) -> Self {
        Self {
            stores,
            clock,
            next_tools,
            make: Box::new(make),
            model,
            version: 0,
            is_stale: false,
            n_saved: None,
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
        let learned = if self.next_tools.is_ready() {
            let learner = self.next_tools.learner().clone();
            self.catch_up(&learner).await
        } else {
            self.go_on().await
        };
        self.note(&learned);
        learned
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
        let learner = self.next_tools.learner().clone();
        // What an attempt before this one learned may be of clients that are gone now.
        learner.take_over(&SharedLearner::new(Learner::new((self.make)(), origin)));
        let snapshot = self.stores.snapshots.newest_snapshot(&self.model).await?;
        self.version = snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        let is_restored = match snapshot {
            Some(snapshot) => restored(&learner, snapshot).await,
            None => false,
        };
        if !is_restored {
            self.skip_old(&learner).await?;
        }
        self.know_tools(&learner).await?;
        self.catch_up(&learner).await?;
        self.n_saved.get_or_insert(0);
        self.next_tools.set_ready();
        Ok(())
    }

    async fn turn(&mut self, due: &mut Due) -> Result<(), StoreError> {
        let now = Instant::now();
        if now >= due.look {
            let n_erasures = self.n_erasures().await?;
            due.look = now + LOOK_EVERY;
            self.is_stale |= n_erasures != self.next_tools.learner().read().origin().n_erasures;
        }
        if self.is_stale || self.is_old() {
            self.learn_anew().await?;
            due.save = now;
        }
        let learner = self.next_tools.learner().clone();
        self.catch_up(&learner).await?;
        if now >= due.age {
            self.know_tools(&learner).await?;
            due.age = now + AGE_EVERY;
            let at = self.clock.now();
            self.off_the_path(move || learner.write().upkeep(at)).await;
        }
        if now >= due.save {
            due.save = now + SAVE_EVERY;
            self.save().await;
        }
        Ok(())
    }

    /// Returns whether what was learned was begun so long ago that it is to be learned anew.
    fn is_old(&self) -> bool {
        let begun_at = self.next_tools.learner().read().origin().begun_at;
        let age = self.clock.now().duration_since(begun_at);
        Duration::try_from(age).is_ok_and(|age| age >= ANEW_EVERY)
    }

    /// Learns from everything that was not read yet.
    async fn catch_up(&self, learner: &SharedLearner) -> Result<(), StoreError> {
        let mut after = learner.read().read_to();
        loop {
            let page = self.stores.calls.past_calls(after, PAGE).await?;
            let Some(last) = page.last() else {
                break;
            };
            after = Some(last.id);
            let is_last = page.len() < PAGE as usize;
            self.teach(learner, page).await?;
            learner.write().settle(self.clock.now());
            if is_last {
                break;
            }
        }
        learner.write().end_silent(self.clock.now());
        Ok(())
    }

    /// Learns from the calls of a page, at most half of the time: others need the machine too.
    async fn teach(
        &self,
        learner: &SharedLearner,
        mut page: Vec<PastCall>,
    ) -> Result<(), StoreError> {
        let has_unknown = {
            let learner = learner.read();
            page.retain(|call| learner.is_new(call));
            page.iter().any(|call| !learner.is_known(&call.tool_ref()))
        };
        if page.is_empty() {
            return Ok(());
        }
        if has_unknown {
            self.know_tools(learner).await?;
        }
        let vectors = self.vectors(&page).await?;
        let (learner, next_tools) = (learner.clone(), Arc::clone(&self.next_tools));
        let now = self.clock.now();
        let started = Instant::now();
        self.off_the_path(move || {
            for call in &page {
                let vector = call.context.and_then(|context| vectors.get(&context));
                let follow = AssertUnwindSafe(|| learner.write().follow(call, vector, now));
                if catch_unwind(follow).is_err() {
                    next_tools.failed("learn from a call");
                }
            }
        })
        .await;
        sleep(started.elapsed()).await;
        Ok(())
    }

    /// Returns the vectors of the texts that calls followed.
    async fn vectors(
        &self,
        calls: &[PastCall],
    ) -> Result<BTreeMap<ContextId, Embedding>, StoreError> {
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
        let vectors = contexts.into_iter();
        Ok(vectors
            .filter_map(|context| Some((context.id, context.embedding?)))
            .collect())
    }

    async fn know_tools(&self, learner: &SharedLearner) -> Result<(), StoreError> {
        let tools = self.stores.tools.tools_seen().await?;
        learner.write().know(&tools);
        Ok(())
    }

    /// Leaves out what is too old to be learned from.
    async fn skip_old(&self, learner: &SharedLearner) -> Result<(), StoreError> {
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
            learner.write().skip_to(last.id);
            n_left_out = n_left_out.saturating_sub(page.len() as u64);
        }
        Ok(())
    }

    /// Learns everything again beside what is in use, and then puts it in its place. What comes
    /// meanwhile is learned from after that.
    async fn learn_anew(&mut self) -> Result<(), StoreError> {
        let origin = self.origin().await?;
        let fresh = SharedLearner::new(Learner::new((self.make)(), origin));
        self.skip_old(&fresh).await?;
        self.know_tools(&fresh).await?;
        self.catch_up(&fresh).await?;
        self.next_tools.learner().take_over(&fresh);
        self.n_saved = None;
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
        let topics = Topic::ALL.iter().zip(revisions);
        let erasures = topics.filter(|(topic, _)| **topic == Topic::Erasures);
        Ok(erasures.map(|(_, revision)| revision).sum())
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

#[cfg(test)]
mod tests;
