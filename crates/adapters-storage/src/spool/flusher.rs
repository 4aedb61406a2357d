//! Group flush to disk: all callers that wait during a flush share the next one.

use std::io;
use std::sync::Arc;

use riglm_ports::analytics::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::journal::SharedState;
use crate::error::operation_error;

// The maximum number of queued callers. Further ones wait for a place in the queue.
const MAX_QUEUED: usize = 1_024;

type Answer = Result<(), Arc<io::Error>>;

/// A handle to the thread that flushes. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Flusher {
    queue: mpsc::Sender<oneshot::Sender<Answer>>,
}

impl Flusher {
    pub(super) fn spawn(shared: Arc<SharedState>) -> io::Result<Self> {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED);
        std::thread::Builder::new()
            .name("riglm-flusher".into())
            .spawn(move || serve(&shared, waiting))?;
        Ok(Self { queue })
    }

    /// Waits until every line that was written before this call survives a loss of power.
    pub(super) async fn flush(&self) -> Result<(), StoreError> {
        let (answer, flushed) = oneshot::channel();
        let gone = || Arc::new(io::Error::from(io::ErrorKind::BrokenPipe));
        let outcome = match self.queue.send(answer).await {
            Ok(()) => flushed.await.unwrap_or_else(|_| Err(gone())),
            Err(_) => Err(gone()),
        };
        outcome.map_err(operation_error("flush the journal to disk"))
    }
}

fn serve(shared: &SharedState, mut waiting: mpsc::Receiver<oneshot::Sender<Answer>>) {
    let mut callers = Vec::new();
    while let Some(first) = waiting.blocking_recv() {
        callers.push(first);
        while let Ok(caller) = waiting.try_recv() {
            callers.push(caller);
        }
        let files = shared.writer.lock().take_unflushed();
        let outcome = files.iter().try_for_each(|file| file.sync_data());
        let outcome = outcome.map_err(Arc::new);
        if outcome.is_err() {
            // The next flush tries these files again.
            shared.writer.lock().put_unflushed(files);
        }
        for caller in callers.drain(..) {
            // A caller that stopped waiting needs no answer.
            drop(caller.send(outcome.clone()));
        }
    }
}
