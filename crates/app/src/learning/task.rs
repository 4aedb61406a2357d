//! The work in the background: reading, teaching, ageing, saving.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::embedding::Embedding;
use riglm_domain::id::ContextId;
use riglm_domain::invocation::PastCall;
use riglm_domain::learned_state::Snapshot;
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::{
    ChangeFeed, ContextRepository, InvocationFilter, InvocationRepository, SnapshotRepository,
    StoreError, ToolDefinitionRepository, Topic,
};
use riglm_ports::clock::Clock;
use riglm_ports::predictor::Predictor;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::learner::Learner;
use super::next_tools::{NextTools, SharedLearner};

/// How often new calls are looked for.
const READ_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether what was learned is to be forgotten.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often what was learned ages.
const AGE_EVERY: Duration = Duration::from_hours(1);
/// How often what was learned is saved.
const SAVE_EVERY: Duration = Duration::from_mins(15);
/// How often everything is learned anew: of rows that were removed nothing is left then, and calls
/// that came into the store very late are learned from too.
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
    /// The number of changes of snapshots that were taken note of.
    revision: u64,
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
    anew: Instant,
}

impl Due {
    fn from(now: Instant) -> Self {
        Self {
            look: now + LOOK_EVERY,
            age: now + AGE_EVERY,
            save: now + SAVE_EVERY,
            anew: now + ANEW_EVERY,
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
            revision: 0,
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

    async fn learn_for_ever(&mut self) {
        while !self.begin().await {
            sleep(READ_EVERY).await;
        }
        let mut due = Due::from(Instant::now());
        loop {
            sleep(READ_EVERY).await;
            let turn = self.turn(&mut due).await;
            self.note(&turn);
        }
    }

    /// Finds out where to begin; returns whether the store said so.
    async fn begin(&mut self) -> bool {
        let begun = self.go_on().await;
        self.note(&begun);
        begun.is_ok()
    }

    async fn go_on(&mut self) -> Result<(), StoreError> {
        self.revision = self.snapshots_revision().await?;
        let learner = self.next_tools.learner().clone();
        match self.stores.snapshots.newest_snapshot(&self.model).await? {
            Some(snapshot) => {
                self.version = snapshot.version;
                if !restored(&learner, snapshot).await {
                    self.skip_old(&learner).await?;
                }
            }
            None => self.skip_old(&learner).await?,
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
            due.look = now + LOOK_EVERY;
            if self.is_forgotten().await? {
                info!("what was learned is learned anew: rows were removed");
                due.anew = now;
            }
        }
        if now >= due.anew {
            self.learn_anew().await?;
            due.anew = Instant::now() + ANEW_EVERY;
            due.save = now;
        }
        let learner = self.next_tools.learner().clone();
        self.catch_up(&learner).await?;
        if now >= due.age {
            due.age = now + AGE_EVERY;
            self.know_tools(&learner).await?;
            let at = self.clock.now();
            self.off_the_path(move || learner.write().upkeep(at)).await;
        }
        if now >= due.save {
            due.save = now + SAVE_EVERY;
            self.save().await;
        }
        Ok(())
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
            page.iter().any(|call| !learner.is_known(&tool_of(call)))
        };
        if page.is_empty() {
            return Ok(());
        }
        if has_unknown {
            self.know_tools(learner).await?;
        }
        let vectors = self.vectors(&page).await?;
        let (learner, next_tools) = (learner.clone(), Arc::clone(&self.next_tools));
        let started = Instant::now();
        self.off_the_path(move || {
            for call in &page {
                let vector = call.context.and_then(|context| vectors.get(&context));
                let follow = AssertUnwindSafe(|| learner.write().follow(call, vector));
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
        let contexts = self.stores.contexts.contexts_with(&ids).await?;
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

    /// Learns everything again beside what is known, and then puts it in its place.
    async fn learn_anew(&mut self) -> Result<(), StoreError> {
        let fresh = SharedLearner::new(Learner::new((self.make)()));
        self.skip_old(&fresh).await?;
        self.know_tools(&fresh).await?;
        self.catch_up(&fresh).await?;
        self.next_tools.learner().take_over(&fresh);
        self.n_saved = None;
        Ok(())
    }

    /// Returns whether snapshots were removed, with rows that they were learned from.
    async fn is_forgotten(&mut self) -> Result<bool, StoreError> {
        let revision = self.snapshots_revision().await?;
        if revision == self.revision {
            return Ok(false);
        }
        let newest = self.stores.snapshots.newest_snapshot(&self.model).await?;
        let version = newest.map_or(0, |snapshot| snapshot.version);
        let is_forgotten = version < self.version;
        (self.revision, self.version) = (revision, version);
        Ok(is_forgotten)
    }

    async fn snapshots_revision(&self) -> Result<u64, StoreError> {
        let revisions = self.stores.changes.revisions().await?;
        let topics = Topic::ALL.iter().zip(revisions);
        let of_snapshots = topics.filter(|(topic, _)| **topic == Topic::Snapshots);
        Ok(of_snapshots.map(|(_, revision)| revision).sum())
    }

    /// Saves what was learned, if that is more than what was saved before. Where another process
    /// saved first, its snapshot is as good.
    async fn save(&mut self) {
        let learner = self.next_tools.learner().clone();
        let n_learned = learner.read().n_learned();
        // Before the store said where to begin there is nothing to save.
        let is_due = self.n_saved != Some(n_learned) && n_learned > 0;
        if !is_due || self.is_store_failing {
            return;
        }
        let taking = self.off_the_path(move || {
            let learner = learner.read();
            (learner.snapshot(), learner.format(), learner.learned_to())
        });
        let bytes = match taking.await {
            Some((Ok(bytes), format, learned_to)) => (bytes, format, learned_to),
            Some((Err(error), ..)) => {
                warn!("what was learned is not saved: {error}");
                return;
            }
            None => return,
        };
        let (bytes, format, learned_to) = bytes;
        let snapshot = Snapshot {
            model: self.model.clone(),
            version: self.version + 1,
            format,
            learned_to,
            taken_at: self.clock.now(),
            bytes,
        };
        match self.stores.snapshots.save_snapshot(&snapshot).await {
            Ok(()) => {
                self.version += 1;
                self.n_saved = Some(n_learned);
            }
            Err(StoreError::Conflict { .. }) => {
                debug!("what was learned was saved by another process");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "what was learned could not be saved");
            }
        }
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
    }
}

/// Goes on from a snapshot; returns whether that was possible.
async fn restored(learner: &SharedLearner, snapshot: Snapshot) -> bool {
    let learner = learner.clone();
    let restoring = tokio::task::spawn_blocking(move || {
        learner.write().restore(snapshot.format, &snapshot.bytes)
    });
    match restoring.await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            info!("what was learned is learned anew: {error}");
            false
        }
        Err(_) => false,
    }
}

fn tool_of(call: &PastCall) -> ToolRef {
    ToolRef {
        upstream: call.upstream.clone(),
        tool: call.tool.clone(),
    }
}

#[cfg(test)]
mod tests;
