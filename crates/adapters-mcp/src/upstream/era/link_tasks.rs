//! The tasks of one link, which end with it.

use riglm_ports::upstream::Exchange;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[derive(Debug, Default)]
pub(super) struct LinkTasks {
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl LinkTasks {
    /// Returns the token that ends the tasks.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Runs a task until it ends or the link is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            // Unlike `run_until_cancelled`, this makes no further step after the end of the link.
            tokio::select! {
                biased;
                () = closing.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Runs a task to its end, even if the link is closed meanwhile.
    pub(super) fn spawn_to_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Runs an exchange to its end.
    pub(super) fn drive(&self, exchange: Exchange) {
        self.spawn(exchange.run);
    }

    /// Waits for the end of all tasks. `closing` must have been cancelled before.
    pub(super) async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
