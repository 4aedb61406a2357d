//! Texts on their way to a thread that counts them.
//!
//! Who has a text copies it into the queue and goes on. A thread empties the queue when no more come
//! for a moment, so that hardly any text wakes it and calls that follow each other do not share the
//! processor with it; while they go on for long, twice a second. What comes while it rests or the
//! queue is full is not taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest text that is taken, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 10;

/// How many texts may wait.
pub(super) const MAX_QUEUED: usize = 1_024;

/// How many bytes of texts may wait. What counting them can overdraw the budget by is some tens of
/// milliseconds.
const MAX_QUEUED_BYTES: usize = 512 << 10;

/// For how long no text has to come before those that did are counted.
const SILENCE: Duration = Duration::from_millis(50);

/// How long texts are gathered at most.
const GATHERING: Duration = Duration::from_millis(500);

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
    /// How many came, taken or not; it may wrap.
    n_offered: usize,
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
                n_offered: 0,
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
        queue.n_offered = queue.n_offered.wrapping_add(1);
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

    /// Waits for texts and gathers them until no more come, or for as long as they are gathered at
    /// most. Returns `None` at the end.
    pub(crate) fn next_batch(&self) -> Option<Vec<T>> {
        let nothing_to_do = |queue: &mut Queue<T>| queue.texts.is_empty() && !queue.is_closing;
        let queue = self.changed.wait_while(self.queue(), nothing_to_do);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        loop {
            let n_before = queue.n_offered;
            queue = self.wait(queue, SILENCE);
            let is_silent = queue.n_offered == n_before;
            if is_silent || queue.is_closing || start.elapsed() >= GATHERING {
                break;
            }
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Offers a text every 5 ms until the queue is closed, and returns how many there were.
    fn keep_offering(queue: &TextQueue<usize>) -> usize {
        let mut n = 0;
        while !queue.queue().is_closing {
            queue.offer(1, || n);
            n += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        n
    }

    #[test]
    fn texts_that_keep_coming_are_handed_out_all_the_same() {
        let queue = Arc::new(TextQueue::new(true));
        let offering = Arc::clone(&queue);
        let offering = std::thread::spawn(move || keep_offering(&offering));
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(queue.next_batch().unwrap());
        }
        queue.close();
        taken.extend(queue.next_batch().unwrap_or_default());
        let n = offering.join().unwrap();
        // One may have come while the queue was being closed.
        assert!(taken.len() == n || taken.len() + 1 == n, "{n}");
        assert!(taken.iter().enumerate().all(|(at, text)| at == *text));
    }

    #[test]
    fn a_burst_is_one_batch() {
        let queue = TextQueue::new(true);
        for n in 0..100 {
            queue.offer(1, || n);
        }
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(100));
        queue.abandon();
        assert_eq!(queue.next_batch(), None);
    }
}
