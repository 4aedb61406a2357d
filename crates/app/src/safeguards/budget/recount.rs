//! Counts the tokens of texts whose size was estimated, beside the way of calls.
//!
//! It keeps to a share of a core ([`CountingBudget`]): in a flood estimates stay.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use riglm_domain::invocation::CallSession;
use riglm_domain::safeguard::budget::UsePart;
use riglm_ports::token_counter::TokenCounter;

use super::ledger::Ledger;
use crate::tracking::{CountingBudget, TextQueue};

/// A text whose tokens are counted.
#[derive(Debug)]
struct Queued {
    together: CallSession,
    part: UsePart,
    estimated: u64,
    text: Box<str>,
}

/// Takes texts and puts their counts into the ledger. Its thread begins with the first text and ends
/// with it.
#[derive(Debug)]
pub(super) struct Recount {
    ledger: Arc<Ledger>,
    counter: Arc<dyn TokenCounter>,
    /// `None` where there is no thread to be had: estimates stay.
    queue: OnceLock<Option<Arc<TextQueue<Queued>>>>,
}

impl Recount {
    pub(super) fn new(ledger: Arc<Ledger>, counter: Arc<dyn TokenCounter>) -> Self {
        Self {
            ledger,
            counter,
            queue: OnceLock::new(),
        }
    }

    /// Has a text counted that was estimated, if it is short enough and there is time for it. Never
    /// waits.
    pub(super) fn offer(&self, together: CallSession, part: UsePart, text: &str, estimated: u64) {
        if text.is_empty() {
            return;
        }
        if let Some(queue) = self.queue.get_or_init(|| self.start()) {
            queue.offer(text.len(), || Queued {
                together,
                part,
                estimated,
                text: text.into(),
            });
        }
    }

    fn start(&self) -> Option<Arc<TextQueue<Queued>>> {
        let queue = Arc::new(TextQueue::new(true));
        let (own, ledger) = (Arc::clone(&queue), Arc::clone(&self.ledger));
        let counter = Arc::clone(&self.counter);
        let thread = std::thread::Builder::new().name("riglm-budget".into());
        let started = thread.spawn(move || run(&own, &ledger, &*counter));
        if let Err(error) = &started {
            tracing::warn!("sizes of budgets stay estimates, there is no thread to count: {error}");
        }
        started.ok().map(|_| queue)
    }
}

impl Drop for Recount {
    fn drop(&mut self) {
        if let Some(Some(queue)) = self.queue.get() {
            queue.abandon();
        }
    }
}

fn run(queue: &TextQueue<Queued>, ledger: &Ledger, counter: &dyn TokenCounter) {
    let mut budget = CountingBudget::new(Instant::now());
    loop {
        let pause = budget.pause(Instant::now());
        if !pause.is_zero() {
            queue.rest(pause);
        }
        let Some(batch) = queue.next_batch() else {
            return;
        };
        let start = Instant::now();
        for queued in &batch {
            let sizes = (queued.estimated, counter.count(&queued.text));
            ledger.correct(queued.together, queued.part, sizes);
        }
        let now = Instant::now();
        budget.charge(now, now - start);
    }
}
