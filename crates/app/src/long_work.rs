//! Work on texts of peers that may take long.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// How much of it is done at once.
const MAX_AT_ONCE: usize = 2;

/// Does work on texts of peers beside the request workers, a few pieces at a time: others are served
/// meanwhile, whatever somebody sends and however often.
#[derive(Debug)]
pub(crate) struct LongWork {
    turns: Arc<Semaphore>,
}

impl Default for LongWork {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MAX_AT_ONCE)),
        }
    }
}

impl LongWork {
    /// Does a piece of work when it is its turn, and returns what comes of it; `None` if it broke off.
    pub(crate) async fn done<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            // Held until here, also when nobody waits for it any more.
            drop(turn);
            result
        });
        // What a panic says may repeat the text.
        done.await.ok()
    }
}
