//! Counts the tokens of the texts of calls, after their records and beside their way.
//!
//! A call copies its texts into a queue and goes on. One thread empties the queue a few times a
//! second, so that a call hardly ever wakes it, and appends what it counted to the journal. It
//! keeps to a [`CountingBudget`]; what comes while that is exhausted or the queue is full is not
//! counted, and its size stays an estimate.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem};

use riglm_domain::id::InvocationId;
use riglm_domain::invocation::CallTokens;
use riglm_domain::record::Record;
use riglm_ports::token_counter::TokenCounter;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::counting_budget::CountingBudget;
use super::watched_journal::WatchedJournal;

/// The longest text that is counted, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// How many texts may wait.
const MAX_QUEUED: usize = 1_024;

/// How many bytes of texts may wait. What counting them can overdraw the budget by is some tens of
/// milliseconds.
const MAX_QUEUED_BYTES: usize = 512 << 10;

/// How long texts are gathered before they are counted. Both texts of a quick call then share a
/// record.
const GATHERING: Duration = Duration::from_millis(50);

/// What a record costs the journal and the database, about; charged to the budget.
const RECORD_COST: Duration = Duration::from_micros(25);

/// The longest that the end waits for texts that are queued.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

/// A text of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text<'a> {
    /// The JSON text of its arguments.
    Arguments(&'a str),
    /// The JSON text of its result.
    Result(&'a str),
}

/// Takes texts of calls and appends their counts to the journal. Its thread ends with it.
#[derive(Debug)]
pub(super) struct TokenMeter {
    shared: Arc<Shared>,
    /// Its sender is dropped when the thread ends.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

#[derive(Debug)]
struct Shared {
    /// Whether the budget allows for more; all that most calls look at in a flood.
    is_taking: AtomicBool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    texts: Vec<Queued>,
    n_bytes: usize,
    is_closing: bool,
}

#[derive(Debug)]
struct Queued {
    call: InvocationId,
    is_result: bool,
    text: Box<str>,
}

impl TokenMeter {
    /// Starts the thread that counts with `counter` and appends to `journal`.
    ///
    /// # Errors
    ///
    /// Returns that there is no thread to be had, or no runtime here to append with.
    pub(super) fn start(
        journal: Arc<WatchedJournal>,
        counter: Arc<dyn TokenCounter>,
        mut budget: CountingBudget,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            is_taking: AtomicBool::new(budget.pause(Instant::now()).is_zero()),
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let (end, ended) = oneshot::channel();
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            journal,
            counter,
            budget,
            runtime: Handle::try_current().map_err(io::Error::other)?,
        };
        std::thread::Builder::new()
            .name("riglm-tokens".into())
            .spawn(move || {
                worker.run();
                drop(end);
            })?;
        Ok(Self {
            shared,
            ended: Mutex::new(Some(ended)),
        })
    }

    /// Has a text counted, if it is short enough and there is time for it. Never waits.
    pub(super) fn offer(&self, call: InvocationId, text: Text<'_>) {
        if !self.shared.is_taking.load(Ordering::Relaxed) {
            return;
        }
        let (text, is_result) = match text {
            Text::Arguments(text) => (text, false),
            Text::Result(text) => (text, true),
        };
        if text.len() > MAX_TEXT_BYTES {
            return;
        }
        let mut queue = self.shared.queue();
        let n_bytes = queue.n_bytes + text.len();
        if queue.is_closing || queue.texts.len() >= MAX_QUEUED || n_bytes > MAX_QUEUED_BYTES {
            return;
        }
        let is_first = queue.texts.is_empty();
        queue.n_bytes = n_bytes;
        queue.texts.push(Queued {
            call,
            is_result,
            text: text.into(),
        });
        drop(queue);
        if is_first {
            self.shared.changed.notify_one();
        }
    }

    /// Takes no more texts and waits until those that are queued are counted, for a second at
    /// most.
    pub(super) async fn close(&self) {
        self.shared.close(&mut self.shared.queue());
        let ended = self.ended.lock();
        let ended = ended.unwrap_or_else(PoisonError::into_inner).take();
        let Some(ended) = ended else {
            return;
        };
        if tokio::time::timeout(CLOSING_LIMIT, ended).await.is_err() {
            tracing::warn!("some calls were not counted in tokens before the end");
        }
    }
}

impl Drop for TokenMeter {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.texts.clear();
        self.shared.close(&mut queue);
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, queue: &mut Queue) {
        queue.is_closing = true;
        self.is_taking.store(false, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits for texts and gathers them for a while. Returns `None` at the end.
    fn next_batch(&self) -> Option<Vec<Queued>> {
        let nothing_to_do = |queue: &mut Queue| queue.texts.is_empty() && !queue.is_closing;
        let queue = self.changed.wait_while(self.queue(), nothing_to_do);
        let mut queue = self.wait(queue.unwrap_or_else(PoisonError::into_inner), GATHERING);
        queue.n_bytes = 0;
        let texts = mem::take(&mut queue.texts);
        (!texts.is_empty()).then_some(texts)
    }

    /// Takes no texts for that long.
    fn rest(&self, pause: Duration) {
        self.is_taking.store(false, Ordering::Relaxed);
        let queue = self.wait(self.queue(), pause);
        self.is_taking.store(!queue.is_closing, Ordering::Relaxed);
    }

    /// Waits for that long, or until the end begins.
    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>, limit: Duration) -> MutexGuard<'a, Queue> {
        let goes_on = |queue: &mut Queue| !queue.is_closing;
        let waited = self.changed.wait_timeout_while(queue, limit, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What the thread has.
#[derive(Debug)]
struct Worker {
    shared: Arc<Shared>,
    journal: Arc<WatchedJournal>,
    counter: Arc<dyn TokenCounter>,
    budget: CountingBudget,
    runtime: Handle,
}

impl Worker {
    fn run(&mut self) {
        loop {
            let pause = self.budget.pause(Instant::now());
            if !pause.is_zero() {
                self.shared.rest(pause);
            }
            let Some(batch) = self.shared.next_batch() else {
                return;
            };
            for tokens in self.count(&batch) {
                let record = Record::CallMeasured(tokens);
                self.runtime.block_on(self.journal.append(&record));
            }
        }
    }

    /// Returns the counts of the batch, one entry a call, and charges for them.
    fn count(&mut self, batch: &[Queued]) -> Vec<CallTokens> {
        let start = Instant::now();
        let mut calls = BTreeMap::new();
        for Queued {
            call,
            is_result,
            text,
        } in batch
        {
            let tokens = calls.entry(*call).or_insert(CallTokens {
                id: *call,
                request: None,
                response: None,
            });
            let side = if *is_result {
                &mut tokens.response
            } else {
                &mut tokens.request
            };
            *side = Some(self.counter.count(text));
        }
        let n_records = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        let now = Instant::now();
        let spent = now - start + RECORD_COST * n_records;
        self.budget.charge(now, spent);
        calls.into_values().collect()
    }
}
