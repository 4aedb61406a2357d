//! Token counter for the texts of calls. It runs after their records, outside of the request path.
//!
//! A call copies its texts into a [`TextQueue`] and continues. One thread empties the queue and
//! appends the counts to the journal. It is limited by a [`CountingBudget`]. Texts that arrive
//! while the budget is exhausted or the queue is full are not counted, and their size stays an
//! estimate. Both texts of a short call share a record.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::id::InvocationId;
use riglm_domain::usage::invocation::CallTokens;
use riglm_domain::usage::record::Record;
use riglm_ports::token_counter::TokenCounter;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::counting_budget::CountingBudget;
use super::lossy_journal::LossyJournal;
use super::text_queue::TextQueue;

/// Estimated cost of a record in the journal and the database; charged to the budget.
const RECORD_COST: Duration = Duration::from_micros(25);

/// The longest wait for queued texts at the end.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) enum CallText<'a> {
    /// The JSON text of its arguments.
    Arguments(&'a str),
    /// The JSON text of its result.
    Result(&'a str),
}

/// Counts texts of calls and appends the counts to the journal. Its thread ends on drop.
#[derive(Debug)]
pub(super) struct TokenMeter {
    shared: Arc<TextQueue<QueuedText>>,
    /// Closed when the thread ends.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

#[derive(Debug)]
struct QueuedText {
    call: InvocationId,
    is_result: bool,
    text: Box<str>,
}

impl TokenMeter {
    /// Starts the thread that counts with `counter` and appends to `journal`.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be started, or outside of a runtime.
    pub(super) fn start(
        journal: Arc<LossyJournal>,
        counter: Arc<dyn TokenCounter>,
        mut budget: CountingBudget,
    ) -> io::Result<Self> {
        let shared = Arc::new(TextQueue::new(budget.pause(Instant::now()).is_zero()));
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

    /// Queues a text for counting, if it is short enough and there is capacity. Never blocks.
    pub(super) fn enqueue(&self, call: InvocationId, text: CallText<'_>) {
        let (text, is_result) = match text {
            CallText::Arguments(text) => (text, false),
            CallText::Result(text) => (text, true),
        };
        self.shared.enqueue(text.len(), || QueuedText {
            call,
            is_result,
            text: text.into(),
        });
    }

    /// Accepts no more texts and waits until the queued ones are counted, for a second at most.
    pub(super) async fn close(&self) {
        self.shared.close();
        // The guard is dropped before the wait.
        let ended = self.ended.lock().take();
        let Some(ended) = ended else {
            return;
        };
        if tokio::time::timeout(CLOSING_LIMIT, ended).await.is_err() {
            tracing::warn!(
                "timeout while counting tokens at the end; some calls have no token count"
            );
        }
    }
}

impl Drop for TokenMeter {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// The state of the thread.
#[derive(Debug)]
struct Worker {
    shared: Arc<TextQueue<QueuedText>>,
    journal: Arc<LossyJournal>,
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
            let counts = self.count(&batch).into_iter();
            let records: Vec<Record> = counts.map(Record::CallMeasured).collect();
            self.runtime.block_on(self.journal.append_all(&records));
        }
    }

    /// Counts the texts of a batch, with one entry for each call, and charges the budget.
    fn count(&mut self, batch: &[QueuedText]) -> Vec<CallTokens> {
        let start = Instant::now();
        let mut calls = BTreeMap::new();
        for QueuedText {
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
