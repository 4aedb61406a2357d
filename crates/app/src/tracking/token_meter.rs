//! Counts the tokens of the texts of calls, after their records and beside their way.
//!
//! A call copies its texts into a [`TextQueue`] and goes on. One thread empties the queue, and appends
//! what it counted to the journal. It keeps to a [`CountingBudget`]; what comes while that is
//! exhausted or the queue is full is not counted, and its size stays an estimate. Both texts of a
//! quick call share a record.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use riglm_domain::id::InvocationId;
use riglm_domain::invocation::CallTokens;
use riglm_domain::record::Record;
use riglm_ports::token_counter::TokenCounter;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::counting_budget::CountingBudget;
use super::text_queue::TextQueue;
use super::watched_journal::WatchedJournal;

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
    shared: Arc<TextQueue<Queued>>,
    /// Its sender is dropped when the thread ends.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
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

    /// Has a text counted, if it is short enough and there is time for it. Never waits.
    pub(super) fn offer(&self, call: InvocationId, text: Text<'_>) {
        let (text, is_result) = match text {
            Text::Arguments(text) => (text, false),
            Text::Result(text) => (text, true),
        };
        self.shared.offer(text.len(), || Queued {
            call,
            is_result,
            text: text.into(),
        });
    }

    /// Takes no more texts and waits until those that are queued are counted, for a second at
    /// most.
    pub(super) async fn close(&self) {
        self.shared.close();
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
        self.shared.abandon();
    }
}

/// What the thread has.
#[derive(Debug)]
struct Worker {
    shared: Arc<TextQueue<Queued>>,
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
