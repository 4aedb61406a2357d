//! Processing of long texts from clients and servers.

use riglm_domain::privacy::principal::Principal;

use riglm_discovery::fair_permits::{FairPermit, FairPermits};

// A few threads are enough: requests must be served even if a peer sends many long texts.
const MAX_AT_ONCE: usize = 2;

/// Processes texts of peers outside of the request workers, a few at a time.
#[derive(Debug)]
pub(crate) struct LongTextWork {
    turns: FairPermits,
}

/// A permit for one piece of such work.
#[derive(Debug)]
pub(crate) struct LongTextPermit {
    _turn: FairPermit,
}

impl Default for LongTextWork {
    fn default() -> Self {
        Self {
            turns: FairPermits::new(MAX_AT_ONCE),
        }
    }
}

impl LongTextWork {
    /// Sets the number of pieces of one principal that run in parallel; `of_one` maps the total to
    /// it.
    pub(crate) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        self.turns.share(of_one);
    }

    /// Waits for a permit. The pieces of one principal wait for each other before they wait for
    /// others. Copy the input only with the permit, to save memory.
    pub(crate) async fn turn(&self, principal: &Principal) -> LongTextPermit {
        LongTextPermit {
            _turn: self.turns.take(principal).await,
        }
    }

    /// Runs a piece of work for a principal after waiting for a permit; `None` if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        principal: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.turn(principal).await.run(work).await
    }
}

impl LongTextPermit {
    /// Runs a piece of work; `None` if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            // The permit is held until here, even if the caller was cancelled.
            drop(self);
            result
        });
        // The panic is dropped, because its message may repeat the text.
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn long_work_of_one_principal_does_not_delay_others() {
        let all = LongTextWork::default();
        all.share(|n| n / 2);
        let [one, other] = ["one", "other"].map(Principal::from_name);
        let (go_on, waits) = channel::<()>();
        let busy = all.turn(&one).await;
        let mut busy = Box::pin(busy.run(move || waits.recv().is_ok()));
        assert!(futures_util::poll!(&mut busy).is_pending());
        let more = (0..1_000).map(|n| Box::pin(all.run(&one, move || n)));
        let mut more = Box::pin(futures_util::future::join_all(more));
        assert!(futures_util::poll!(&mut more).is_pending());
        assert_eq!(all.run(&other, || "done").await, Some("done"));
        assert!(futures_util::poll!(&mut more).is_pending());
        go_on.send(()).unwrap();
        assert_eq!(busy.await, Some(true));
        assert_eq!(more.await.len(), 1_000);
    }
}
