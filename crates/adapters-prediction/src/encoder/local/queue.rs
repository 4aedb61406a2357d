//! Queue of a model's thread: queries before passages, text by text.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec;

use parking_lot::{Condvar, Mutex};
use riglm_ports::encoder::{EncoderError, TextRole};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Maximum number of queued calls per role. Further calls wait for a permit, in order.
const MAX_QUEUED: usize = 64;

pub(super) type EncodeResult = Result<Vec<Vec<f32>>, EncoderError>;

/// A call without an answer yet.
#[derive(Debug)]
pub(super) struct EncodeJob {
    texts: vec::IntoIter<String>,
    vectors: Vec<Vec<f32>>,
    role: TextRole,
    answer: oneshot::Sender<EncodeResult>,
    _place: OwnedSemaphorePermit,
}

impl EncodeJob {
    pub(super) fn new(
        texts: Vec<String>,
        role: TextRole,
        answer: oneshot::Sender<EncodeResult>,
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

    /// Returns whether the caller was cancelled.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Takes the next text without a vector.
    pub(super) fn next_text(&mut self) -> Option<String> {
        self.texts.next()
    }

    /// Adds the vector of the last taken text. Returns the job if it has more texts, and otherwise
    /// answers the call.
    pub(super) fn add(mut self, vector: Vec<f32>) -> Option<Self> {
        self.vectors.push(vector);
        if self.texts.len() > 0 {
            return Some(self);
        }
        // An error means that the caller was cancelled.
        let _ = self.answer.send(Ok(self.vectors));
        None
    }

    pub(super) fn fail(self, error: EncoderError) {
        // As above.
        let _ = self.answer.send(Err(error));
    }
}

/// The jobs, in one queue per role.
#[derive(Debug)]
pub(super) struct EncodeQueue {
    lanes: Mutex<RoleQueues>,
    changed: Condvar,
    query_places: Arc<Semaphore>,
    passage_places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct RoleQueues {
    queries: VecDeque<EncodeJob>,
    passages: VecDeque<EncodeJob>,
    closed: bool,
}

impl Default for EncodeQueue {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            changed: Condvar::new(),
            query_places: Arc::new(Semaphore::new(MAX_QUEUED)),
            passage_places: Arc::new(Semaphore::new(MAX_QUEUED)),
        }
    }
}

impl EncodeQueue {
    /// Waits for a permit to queue a call of a role. Cancellation-safe: a cancelled call takes no
    /// permit.
    pub(super) async fn acquire_permit(&self, role: TextRole) -> OwnedSemaphorePermit {
        let places = match role {
            TextRole::Query => &self.query_places,
            TextRole::Passage => &self.passage_places,
        };
        Arc::clone(places)
            .acquire_owned()
            .await
            .expect("places are never closed")
    }

    /// Appends a job to the queue of its role. It is a new job, or one with further texts.
    pub(super) fn push(&self, job: EncodeJob) {
        let mut lanes = self.lanes.lock();
        match job.role {
            TextRole::Query => lanes.queries.push_back(job),
            TextRole::Passage => lanes.passages.push_back(job),
        }
        drop(lanes);
        self.changed.notify_one();
    }

    /// Waits for a job and takes it. Returns `None` once the queue is closed.
    pub(super) fn next(&self) -> Option<EncodeJob> {
        let mut lanes = self.lanes.lock();
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
            self.changed.wait(&mut lanes);
        }
    }

    /// Ends the wait of the thread. Queued jobs are not computed.
    pub(super) fn close(&self) {
        self.lanes.lock().closed = true;
        self.changed.notify_one();
    }
}
