//! What waits for the thread of a model: queries before passages, text by text.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::vec;

use riglm_ports::encoder::{EncoderError, TextRole};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How many calls of one role are in the queue. Further ones wait for a place, in order.
const PLACES: usize = 64;

pub(super) type Answer = Result<Vec<Vec<f32>>, EncoderError>;

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) struct Job {
    texts: vec::IntoIter<String>,
    vectors: Vec<Vec<f32>>,
    role: TextRole,
    answer: oneshot::Sender<Answer>,
    _place: OwnedSemaphorePermit,
}

impl Job {
    pub(super) fn new(
        texts: Vec<String>,
        role: TextRole,
        answer: oneshot::Sender<Answer>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            vectors: Vec::with_capacity(texts.len()),
            texts: texts.into_iter(),
            role,
            answer,
            _place: place,
        }
    }

    pub(super) fn role(&self) -> TextRole {
        self.role
    }

    /// Returns whether nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Takes the next text without a vector.
    pub(super) fn next_text(&mut self) -> Option<String> {
        self.texts.next()
    }

    /// Adds the vector of the text that was taken last. Returns the job if it has more texts, and
    /// answers the call otherwise.
    pub(super) fn add(mut self, vector: Vec<f32>) -> Option<Self> {
        self.vectors.push(vector);
        if self.texts.len() > 0 {
            return Some(self);
        }
        // Nobody may wait any more, and then nothing is left to do.
        let _ = self.answer.send(Ok(self.vectors));
        None
    }

    pub(super) fn fail(self, error: EncoderError) {
        // As above.
        let _ = self.answer.send(Err(error));
    }
}

/// The jobs, with a lane for each role.
#[derive(Debug)]
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    changed: Condvar,
    query_places: Arc<Semaphore>,
    passage_places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Lanes {
    queries: VecDeque<Job>,
    passages: VecDeque<Job>,
    closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            changed: Condvar::new(),
            query_places: Arc::new(Semaphore::new(PLACES)),
            passage_places: Arc::new(Semaphore::new(PLACES)),
        }
    }
}

impl Queue {
    /// Waits for a place in the lane of a role. Who stops waiting takes none.
    pub(super) async fn place(&self, role: TextRole) -> OwnedSemaphorePermit {
        let places = match role {
            TextRole::Query => &self.query_places,
            TextRole::Passage => &self.passage_places,
        };
        Arc::clone(places)
            .acquire_owned()
            .await
            .expect("places are never closed")
    }

    /// Puts a job at the end of its lane: a new one, or one that had its turn.
    pub(super) fn push(&self, job: Job) {
        let mut lanes = self.lock();
        match job.role {
            TextRole::Query => lanes.queries.push_back(job),
            TextRole::Passage => lanes.passages.push_back(job),
        }
        drop(lanes);
        self.changed.notify_one();
    }

    /// Waits for a job and takes it; none once the queue is closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut lanes = self.lock();
        loop {
            if lanes.closed {
                return None;
            }
            let first = lanes
                .queries
                .pop_front()
                .or_else(|| lanes.passages.pop_front());
            if first.is_some() {
                return first;
            }
            lanes = self
                .changed
                .wait(lanes)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the wait of the thread; what is in the queue is not computed.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
