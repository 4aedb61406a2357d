//! Flushes to disk for many at a time: all that wait while a flush runs share the next one.

use std::io;
use std::sync::Arc;

use riglm_ports::analytics::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::journal::Shared;
use crate::error::failing;

/// How many callers may wait in the queue; further ones wait for a place in it.
const MAX_QUEUED: usize = 1_024;

type Answer = Result<(), Arc<io::Error>>;

/// The way to the thread that flushes. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Flusher {
    queue: mpsc::Sender<oneshot::Sender<Answer>>,
}

impl Flusher {
    pub(super) fn spawn(shared: Arc<Shared>) -> io::Result<Self> {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED);
        std::thread::Builder::new()
            .name("riglm-flusher".into())
            .spawn(move || serve(&shared, waiting))?;
        Ok(Self { queue })
    }

    /// Waits until every line that was written before this call survives the loss of power.
    pub(super) async fn flushed(&self) -> Result<(), StoreError> {
        let (answer, flushed) = oneshot::channel();
        let gone = || Arc::new(io::Error::from(io::ErrorKind::BrokenPipe));
        let outcome = match self.queue.send(answer).await {
            Ok(()) => flushed.await.unwrap_or_else(|_| Err(gone())),
            Err(_) => Err(gone()),
        };
        outcome.map_err(failing("flush the journal to disk"))
    }
}

fn serve(shared: &Shared, mut waiting: mpsc::Receiver<oneshot::Sender<Answer>>) {
    let mut callers = Vec::new();
    while let Some(first) = waiting.blocking_recv() {
        callers.push(first);
        while let Ok(caller) = waiting.try_recv() {
            callers.push(caller);
        }
        let files = shared.writer().take_unflushed();
        let outcome = files.iter().try_for_each(|file| file.sync_data());
        let outcome = outcome.map_err(Arc::new);
        if outcome.is_err() {
            shared.writer().put_unflushed(files);
        }
        for caller in callers.drain(..) {
            // A caller that gave up waiting needs no answer.
            drop(caller.send(outcome.clone()));
        }
    }
}
