//! Worker thread of a model.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Instant;

use rayon::{ThreadPool, ThreadPoolBuilder};
use riglm_domain::resilience::{Backoff, FailureStreak};
use riglm_ports::encoder::{EncoderError, TextRole};
use tracing::{info, warn};

use crate::encoder::local::queue::{EncodeJob, EncodeQueue};
use crate::encoder::model::{ModelError, SentenceModel};

/// Nice value of the threads for passages, so that threads that forward messages have priority.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

pub(super) type Load = Box<dyn Fn() -> Result<Box<dyn SentenceModel>, ModelError> + Send + Sync>;

/// Source and settings of a model.
pub(super) struct ModelSource {
    pub(super) model: String,
    pub(super) query_prefix: String,
    pub(super) passage_prefix: String,
    pub(super) threads: NonZeroUsize,
    pub(super) backoff: Backoff,
    pub(super) load: Load,
}

/// A model with its thread pools.
struct LoadedModel {
    sentences: Box<dyn SentenceModel>,
    /// Threads for queries, for which a caller waits. Only one of the two pools works at a time.
    query_threads: ThreadPool,
    /// Threads for passages, with a lower priority.
    passage_threads: ThreadPool,
}

/// The last failure to load a model.
struct LoadFailure {
    retry_at: Instant,
    error: Arc<ModelError>,
}

/// Computes the queued texts one by one.
pub(super) struct Worker {
    source: Arc<ModelSource>,
    loaded: Option<LoadedModel>,
    failures: FailureStreak,
    last_failure: Option<LoadFailure>,
}

impl Worker {
    pub(super) fn new(source: Arc<ModelSource>) -> Self {
        Self {
            failures: FailureStreak::new(source.backoff),
            source,
            loaded: None,
            last_failure: None,
        }
    }

    /// Works until the queue is closed.
    pub(super) fn run(mut self, queue: &EncodeQueue) {
        while let Some(job) = queue.next() {
            if job.is_abandoned() {
                continue;
            }
            if let Some(job) = self.advance(job) {
                queue.push(job);
            }
        }
    }

    /// Computes one text of a job. Returns the job if it has more.
    fn advance(&mut self, mut job: EncodeJob) -> Option<EncodeJob> {
        let text = job.next_text()?;
        match self.vector(&text, job.role()) {
            Ok(vector) => job.add(vector),
            Err(error) => {
                job.fail(error);
                None
            }
        }
    }

    fn vector(&mut self, text: &str, role: TextRole) -> Result<Vec<f32>, EncoderError> {
        let source = Arc::clone(&self.source);
        let prefix = match role {
            TextRole::Query => &source.query_prefix,
            TextRole::Passage => &source.passage_prefix,
        };
        let text = format!("{prefix}{text}");
        let mut loaded = self.take_loaded().map_err(|error| EncoderError::Load {
            model: source.model.clone(),
            source: error.into(),
        })?;
        let computed = catch_panic(|| loaded.encode(&text, role));
        // After a panic the model may be in an invalid state, so it is dropped and loaded again.
        if computed.is_ok() {
            self.loaded = Some(loaded);
        }
        computed
            .and_then(|computed| computed)
            .map_err(|error| EncoderError::Failed {
                model: source.model.clone(),
                source: error.into(),
            })
    }

    /// Takes the model, and loads it if necessary. Returns the last error during the back-off after
    /// a failure.
    fn take_loaded(&mut self) -> Result<LoadedModel, Arc<ModelError>> {
        if let Some(loaded) = self.loaded.take() {
            return Ok(loaded);
        }
        if let Some(failure) = &self.last_failure
            && Instant::now() < failure.retry_at
        {
            return Err(Arc::clone(&failure.error));
        }
        let loaded = self.load().map_err(Arc::new);
        match &loaded {
            Ok(_) => self.failures.reset(),
            Err(error) => {
                let wait = self.failures.record_failure(fastrand::f64());
                self.last_failure = Some(LoadFailure {
                    retry_at: Instant::now() + wait,
                    error: Arc::clone(error),
                });
            }
        }
        loaded
    }

    fn load(&self) -> Result<LoadedModel, ModelError> {
        let model = &self.source.model;
        let started = Instant::now();
        let loaded = catch_panic(|| LoadedModel::load(&self.source)).and_then(|loaded| loaded);
        match &loaded {
            Ok(_) => {
                let milliseconds = started.elapsed().as_millis();
                info!(%model, milliseconds, "loaded the model");
            }
            Err(error) => {
                let error = error as &dyn std::error::Error;
                warn!(%model, error, "failed to load the model");
            }
        }
        loaded
    }
}

impl LoadedModel {
    fn load(source: &ModelSource) -> Result<Self, ModelError> {
        let threads = |name: &'static str| {
            ThreadPoolBuilder::new()
                .num_threads(source.threads.get())
                .thread_name(move |index| format!("{name}-{index}"))
        };
        let compute = |error: rayon::ThreadPoolBuildError| ModelError::Compute(error.into());
        let query_threads = threads("query").build().map_err(compute)?;
        let passage_threads = threads("passage")
            .start_handler(|_| lower_priority())
            .build()
            .map_err(compute)?;
        Ok(Self {
            // Loading runs on the threads with low priority.
            sentences: passage_threads.install(|| (source.load)())?,
            query_threads,
            passage_threads,
        })
    }

    /// Computes in the thread pool of the role. Outside a pool, the libraries would use as many
    /// threads as there are processors.
    fn encode(&mut self, text: &str, role: TextRole) -> Result<Vec<f32>, ModelError> {
        let sentences = &mut self.sentences;
        let threads = match role {
            TextRole::Query => &self.query_threads,
            TextRole::Passage => &self.passage_threads,
        };
        threads.install(|| sentences.encode(text))
    }
}

/// Converts a panic into an error. Model files are external data, and the libraries that read them
/// may panic. A panic must fail only the call, not the thread.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, ModelError> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .map_err(|payload| ModelError::Compute(panic_message(&*payload).into()))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("it panicked: {message}")
}

/// Lowers the priority of this thread.
fn lower_priority() {
    // Outside Linux, priorities belong to whole processes.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "failed to lower the priority of a thread");
    }
}
