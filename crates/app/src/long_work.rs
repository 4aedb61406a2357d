//! Work on texts of peers that may take long.

use riglm_domain::principal::Principal;

use crate::turns::{Turn, Turns};

/// How much of it is done at once.
const MAX_AT_ONCE: usize = 2;

/// Does work on texts of peers beside the request workers, a few pieces at a time: others are served
/// meanwhile, whatever somebody sends and however often.
#[derive(Debug)]
pub(crate) struct LongWork {
    turns: Turns,
}

/// A turn at such work.
#[derive(Debug)]
pub(crate) struct WorkTurn {
    _turn: Turn,
}

impl Default for LongWork {
    fn default() -> Self {
        Self {
            turns: Turns::new(MAX_AT_ONCE),
        }
    }
}

impl LongWork {
    /// Lets one principal have as many pieces done at once as `of_one` says of their number.
    pub(crate) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        self.turns.share(of_one);
    }

    /// Waits for a turn of a principal: its pieces wait for each other before they wait for those of
    /// others. What is worked on is best copied when the turn has come.
    pub(crate) async fn turn(&self, principal: &Principal) -> WorkTurn {
        WorkTurn {
            _turn: self.turns.take(principal).await,
        }
    }

    /// Does a piece of work for a principal when it is its turn, and returns what comes of it; `None`
    /// if it broke off.
    pub(crate) async fn done<T: Send + 'static>(
        &self,
        principal: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.turn(principal).await.done(work).await
    }
}

impl WorkTurn {
    /// Does a piece of work, and returns what comes of it; `None` if it broke off.
    pub(crate) async fn done<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            // Held until here, also when nobody waits for it any more.
            drop(self);
            result
        });
        // What a panic says may repeat the text.
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_principal_with_much_work_holds_nobody_else_up() {
        let all = LongWork::default();
        all.share(|n| n / 2);
        let [one, other] = ["one", "other"].map(Principal::named);
        let (go_on, waits) = channel::<()>();
        let busy = all.turn(&one).await;
        let mut busy = Box::pin(busy.done(move || waits.recv().is_ok()));
        assert!(futures_util::poll!(&mut busy).is_pending());
        let more = (0..1_000).map(|n| Box::pin(all.done(&one, move || n)));
        let mut more = Box::pin(futures_util::future::join_all(more));
        assert!(futures_util::poll!(&mut more).is_pending());
        assert_eq!(all.done(&other, || "done").await, Some("done"));
        assert!(futures_util::poll!(&mut more).is_pending());
        go_on.send(()).unwrap();
        assert_eq!(busy.await, Some(true));
        assert_eq!(more.await.len(), 1_000);
    }
}
