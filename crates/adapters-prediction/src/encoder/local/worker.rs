//! The thread of a model.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};
use riglm_ports::encoder::{EncoderError, TextRole};
use tracing::{info, warn};

use crate::encoder::local::queue::{Job, Queue};
use crate::encoder::model::{ModelError, SentenceModel};

/// By how much less threads that nobody waits for are preferred to those that carry messages.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Reads a model.
pub(super) type Load = Box<dyn Fn() -> Result<Box<dyn SentenceModel>, ModelError> + Send + Sync>;

/// Where a model comes from and how it is used.
pub(super) struct Source {
    pub(super) model: String,
    pub(super) query_prefix: String,
    pub(super) passage_prefix: String,
    pub(super) threads: NonZeroUsize,
    pub(super) retry_after: Duration,
    pub(super) load: Load,
}

/// A model with the threads that it computes on.
struct Loaded {
    sentences: Box<dyn SentenceModel>,
    /// Where somebody waits. One of the two works at a time.
    query_threads: ThreadPool,
    /// Where nobody does.
    passage_threads: ThreadPool,
}

/// What was wrong with a model, and when.
struct Failure {
    since: Instant,
    error: Arc<ModelError>,
}

/// Computes what is in the queue, one text after the other.
pub(super) struct Worker {
    source: Arc<Source>,
    loaded: Option<Loaded>,
    failure: Option<Failure>,
}

impl Worker {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self {
            source,
            loaded: None,
            failure: None,
        }
    }

    /// Works until the queue is closed.
    pub(super) fn run(mut self, queue: &Queue) {
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
    fn advance(&mut self, mut job: Job) -> Option<Job> {
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
        let computed = caught(|| loaded.encode(&text, role));
        // A model that panicked may be in any state: it is dropped, and loaded anew.
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

    /// Takes the model, which is loaded now if it was not and did not fail to a short while ago.
    fn take_loaded(&mut self) -> Result<Loaded, Arc<ModelError>> {
        if let Some(loaded) = self.loaded.take() {
            return Ok(loaded);
        }
        if let Some(failure) = &self.failure
            && failure.since.elapsed() < self.source.retry_after
        {
            return Err(Arc::clone(&failure.error));
        }
        self.load().map_err(|error| {
            let error = Arc::new(error);
            self.failure = Some(Failure {
                since: Instant::now(),
                error: Arc::clone(&error),
            });
            error
        })
    }

    fn load(&self) -> Result<Loaded, ModelError> {
        let model = &self.source.model;
        let started = Instant::now();
        let loaded = caught(|| Loaded::load(&self.source)).and_then(|loaded| loaded);
        match &loaded {
            Ok(_) => {
                let milliseconds = started.elapsed().as_millis();
                info!(%model, milliseconds, "a model is loaded");
            }
            Err(error) => {
                let error = error as &dyn std::error::Error;
                warn!(%model, error, "a model cannot be loaded");
            }
        }
        loaded
    }
}

impl Loaded {
    fn load(source: &Source) -> Result<Self, ModelError> {
        let threads = |name: &'static str| {
            ThreadPoolBuilder::new()
                .num_threads(source.threads.get())
                .thread_name(move |index| format!("{name}-{index}"))
        };
        let compute = |error: rayon::ThreadPoolBuildError| ModelError::Compute(error.into());
        let query_threads = threads("query").build().map_err(compute)?;
        let passage_threads = threads("passage")
            .start_handler(|_| yield_to_others())
            .build()
            .map_err(compute)?;
        Ok(Self {
            sentences: passage_threads.install(|| (source.load)())?,
            query_threads,
            passage_threads,
        })
    }

    /// Computes within the model's own threads, as the libraries below take as many as there are
    /// processors otherwise.
    fn encode(&mut self, text: &str, role: TextRole) -> Result<Vec<f32>, ModelError> {
        let sentences = &mut self.sentences;
        let threads = match role {
            TextRole::Query => &self.query_threads,
            TextRole::Passage => &self.passage_threads,
        };
        threads.install(|| sentences.encode(text))
    }
}

/// Files of models are data from outside, and libraries that read them may panic on some: that
/// fails the call, and leaves the thread for the next one.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, ModelError> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .map_err(|payload| ModelError::Compute(said(&*payload).into()))
}

fn said(payload: &(dyn Any + Send)) -> String {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("it panicked: {message}")
}

/// Lowers the priority of this thread.
fn yield_to_others() {
    // Elsewhere than on Linux, priorities are those of whole processes.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "the priority of a thread stays as it was");
    }
}
