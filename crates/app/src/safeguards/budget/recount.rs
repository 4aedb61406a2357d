//! Background counting of texts whose token count was estimated.
//!
//! It is limited to a share of a core ([`CountingBudget`]); under heavy load estimates stay.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use riglm_domain::safeguards::budget::TokenUseKind;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::token_counter::TokenCounter;

use super::ledger::Ledger;
use crate::tracking::{CountingBudget, TextQueue};

#[derive(Debug)]
struct QueuedText {
    session_key: SessionKey,
    part: TokenUseKind,
    estimated: u64,
    text: Box<str>,
}

/// Counts texts and corrects the ledger. Its thread starts with the first text and ends on drop.
#[derive(Debug)]
pub(super) struct Recount {
    ledger: Arc<Ledger>,
    counter: Arc<dyn TokenCounter>,
    /// `None` if no thread could be started; estimates stay then.
    queue: OnceLock<Option<Arc<TextQueue<QueuedText>>>>,
}

impl Recount {
    pub(super) fn new(ledger: Arc<Ledger>, counter: Arc<dyn TokenCounter>) -> Self {
        Self {
            ledger,
            counter,
            queue: OnceLock::new(),
        }
    }

    /// Queues an estimated text for counting, if it is short enough and there is capacity. Never
    /// blocks.
    pub(super) fn enqueue(
        &self,
        session_key: SessionKey,
        part: TokenUseKind,
        text: &str,
        estimated: u64,
    ) {
        if text.is_empty() {
            return;
        }
        if let Some(queue) = self.queue.get_or_init(|| self.start()) {
            queue.enqueue(text.len(), || QueuedText {
                session_key,
                part,
                estimated,
                text: text.into(),
            });
        }
    }

    fn start(&self) -> Option<Arc<TextQueue<QueuedText>>> {
        let queue = Arc::new(TextQueue::new(true));
        let (own, ledger) = (Arc::clone(&queue), Arc::clone(&self.ledger));
        let counter = Arc::clone(&self.counter);
        let thread = std::thread::Builder::new().name("riglm-budget".into());
        let started = thread.spawn(move || run(&own, &ledger, &*counter));
        if let Err(error) = &started {
            tracing::warn!(
                "token budgets use estimates: failed to start the counting thread: {error}"
            );
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

fn run(queue: &TextQueue<QueuedText>, ledger: &Ledger, counter: &dyn TokenCounter) {
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
            ledger.correct(queued.session_key, queued.part, sizes.0, sizes.1);
        }
        let now = Instant::now();
        budget.charge(now, now - start);
    }
}
