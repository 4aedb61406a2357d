//! Queue of texts for a thread that counts them.
//!
//! A request copies its text into the queue and continues. The thread empties the queue after a
//! short pause of the traffic. So few texts wake it, and calls in a row do not share the processor
//! with it. Under constant traffic it works twice a second. Texts that arrive while it rests or
//! while the queue is full are dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The longest accepted text, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 10;

/// The most texts in the queue.
pub(super) const MAX_QUEUED: usize = 1_024;

// The most bytes in the queue. Counting them can overdraw the budget by some tens of milliseconds.
const MAX_QUEUED_BYTES: usize = 512 << 10;

/// The pause of the traffic after which queued texts are counted.
const SILENCE: Duration = Duration::from_millis(50);

/// The longest time for which texts are collected.
const GATHERING: Duration = Duration::from_millis(500);

/// A queue of texts, each as a `T` that owns it.
#[derive(Debug)]
pub(crate) struct TextQueue<T> {
    /// Whether the budget allows more. Under heavy load most calls check only this flag.
    pub(super) is_taking: AtomicBool,
    pub(super) queue: Mutex<Queue<T>>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) texts: Vec<T>,
    n_bytes: usize,
    /// The number of offered texts, accepted or not; it may wrap.
    n_offered: usize,
    is_closing: bool,
}

impl<T> TextQueue<T> {
    /// Creates an empty queue. With `is_taking` false it accepts texts after its first rest.
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

    /// Adds a text of `n_bytes`, if it is short enough and there is capacity. Never blocks. Returns
    /// whether the text was added.
    pub(crate) fn enqueue(&self, n_bytes: usize, text: impl FnOnce() -> T) -> bool {
        if n_bytes > MAX_TEXT_BYTES || !self.is_taking.load(Ordering::Relaxed) {
            return false;
        }
        let mut queue = self.queue.lock();
        queue.n_offered = queue.n_offered.wrapping_add(1);
        let n_queued = queue.n_bytes + n_bytes;
        if queue.is_closing || queue.texts.len() >= MAX_QUEUED || n_queued > MAX_QUEUED_BYTES {
            return false;
        }
        let is_first = queue.texts.is_empty();
        queue.n_bytes = n_queued;
        queue.texts.push(text());
        drop(queue);
        // Only the first text wakes the thread; it collects the others by itself.
        if is_first {
            self.changed.notify_one();
        }
        true
    }

    /// Accepts no more texts; queued ones are still returned.
    pub(crate) fn close(&self) {
        self.shut_down(&mut self.queue.lock());
    }

    /// Accepts no more texts and drops the queued ones.
    pub(crate) fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.texts.clear();
        self.shut_down(&mut queue);
    }

    /// Waits for texts and collects them until a pause, or until the longest collection time.
    /// Returns `None` at the end.
    pub(crate) fn next_batch(&self) -> Option<Vec<T>> {
        let nothing_to_do = |queue: &mut Queue<T>| queue.texts.is_empty() && !queue.is_closing;
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, nothing_to_do);
        let start = Instant::now();
        loop {
            let n_before = queue.n_offered;
            self.wait(&mut queue, SILENCE);
            let is_silent = queue.n_offered == n_before;
            if is_silent || queue.is_closing || start.elapsed() >= GATHERING {
                break;
            }
        }
        queue.n_bytes = 0;
        let texts = std::mem::take(&mut queue.texts);
        (!texts.is_empty()).then_some(texts)
    }

    /// Accepts no texts during `pause`.
    pub(crate) fn rest(&self, pause: Duration) {
        self.is_taking.store(false, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        self.wait(&mut queue, pause);
        self.is_taking.store(!queue.is_closing, Ordering::Relaxed);
    }

    fn shut_down(&self, queue: &mut Queue<T>) {
        queue.is_closing = true;
        self.is_taking.store(false, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits for `limit`, or until the queue is closed.
    fn wait(&self, queue: &mut MutexGuard<'_, Queue<T>>, limit: Duration) {
        let goes_on = |queue: &mut Queue<T>| !queue.is_closing;
        self.changed.wait_while_for(queue, goes_on, limit);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Offers a text every 5 ms until the queue is closed; returns the number of offers.
    fn keep_offering(queue: &TextQueue<usize>) -> usize {
        let mut n = 0;
        while !queue.queue.lock().is_closing {
            queue.enqueue(1, || n);
            n += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        n
    }

    #[test]
    fn texts_are_delivered_while_more_are_queued() {
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
        // One may have been offered while the queue was being closed.
        assert!(taken.len() == n || taken.len() + 1 == n, "{n}");
        assert!(taken.iter().enumerate().all(|(at, text)| at == *text));
    }

    #[test]
    fn queued_texts_are_taken_in_one_batch() {
        let queue = TextQueue::new(true);
        for n in 0..100 {
            queue.enqueue(1, || n);
        }
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(100));
        queue.abandon();
        assert_eq!(queue.next_batch(), None);
    }
}
