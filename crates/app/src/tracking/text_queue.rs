//! Texts on their way to a thread that counts them.
//!
//! Who has a text copies it into the queue and goes on. A thread empties the queue a few times a
//! second, so that hardly any text wakes it. What comes while it rests or the queue is full is not
//! taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest text that is taken, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 10;

/// How many texts may wait.
pub(super) const MAX_QUEUED: usize = 1_024;

/// How many bytes of texts may wait. What counting them can overdraw the budget by is some tens of
/// milliseconds.
const MAX_QUEUED_BYTES: usize = 512 << 10;

/// How long texts are gathered before they are counted.
const GATHERING: Duration = Duration::from_millis(50);

/// Texts that wait for being counted, each as a `T` that owns it.
#[derive(Debug)]
pub(crate) struct TextQueue<T> {
    /// Whether the budget allows for more; all that most calls look at in a flood.
    pub(super) is_taking: AtomicBool,
    queue: Mutex<Queue<T>>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) texts: Vec<T>,
    n_bytes: usize,
    is_closing: bool,
}

impl<T> TextQueue<T> {
    /// Returns an empty queue; one that is not taking does so after its first rest.
    pub(crate) fn new(is_taking: bool) -> Self {
        Self {
            is_taking: AtomicBool::new(is_taking),
            queue: Mutex::new(Queue {
                texts: Vec::new(),
                n_bytes: 0,
                is_closing: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Takes a text of so many bytes, if it is short enough and there is room and time for it. Never
    /// waits. Returns whether it was taken.
    pub(crate) fn offer(&self, n_bytes: usize, text: impl FnOnce() -> T) -> bool {
        if n_bytes > MAX_TEXT_BYTES || !self.is_taking.load(Ordering::Relaxed) {
            return false;
        }
        let mut queue = self.queue();
        let n_queued = queue.n_bytes + n_bytes;
        if queue.is_closing || queue.texts.len() >= MAX_QUEUED || n_queued > MAX_QUEUED_BYTES {
            return false;
        }
        let is_first = queue.texts.is_empty();
        queue.n_bytes = n_queued;
        queue.texts.push(text());
        drop(queue);
        if is_first {
            self.changed.notify_one();
        }
        true
    }

    /// Takes no more texts; those that wait are still handed out.
    pub(crate) fn close(&self) {
        self.shut(&mut self.queue());
    }

    /// Takes no more texts and forgets those that wait.
    pub(crate) fn abandon(&self) {
        let mut queue = self.queue();
        queue.texts.clear();
        self.shut(&mut queue);
    }

    /// Waits for texts and gathers them for a while. Returns `None` at the end.
    pub(crate) fn next_batch(&self) -> Option<Vec<T>> {
        let nothing_to_do = |queue: &mut Queue<T>| queue.texts.is_empty() && !queue.is_closing;
        let queue = self.changed.wait_while(self.queue(), nothing_to_do);
        let mut queue = self.wait(queue.unwrap_or_else(PoisonError::into_inner), GATHERING);
        queue.n_bytes = 0;
        let texts = std::mem::take(&mut queue.texts);
        (!texts.is_empty()).then_some(texts)
    }

    /// Takes no texts for that long.
    pub(crate) fn rest(&self, pause: Duration) {
        self.is_taking.store(false, Ordering::Relaxed);
        let queue = self.wait(self.queue(), pause);
        self.is_taking.store(!queue.is_closing, Ordering::Relaxed);
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self, queue: &mut Queue<T>) {
        queue.is_closing = true;
        self.is_taking.store(false, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits for that long, or until the end begins.
    fn wait<'a>(
        &self,
        queue: MutexGuard<'a, Queue<T>>,
        limit: Duration,
    ) -> MutexGuard<'a, Queue<T>> {
        let goes_on = |queue: &mut Queue<T>| !queue.is_closing;
        let waited = self.changed.wait_timeout_while(queue, limit, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
