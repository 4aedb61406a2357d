//! The handle of one session at a hub: delivers reports to the session in order and without
//! delaying other sessions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The maximum number of reports in the queue of one session.
const MAX_WAITING: usize = 256;

/// The time for which other sessions wait for a session whose queue is full.
const SLOW_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum Report {
    /// A message, and the request on whose stream it arrived.
    Message(Message, Option<RequestId>),
    /// A request that will not be answered.
    Unanswered(RequestId, UpstreamError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryPath {
    /// Delivers at once. Only the stream of the report waits for the session.
    Direct,
    /// Delivers after earlier reports, because one stream carries the messages for all sessions.
    Queued,
}

/// The error for a session whose queue stays full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSlow;

#[derive(Debug)]
struct Ending {
    unanswered: Vec<RequestId>,
    error: UpstreamError,
}

#[derive(Debug)]
pub(super) struct SharedSessionHandle {
    events: Arc<dyn UpstreamEvents>,
    queue: mpsc::Sender<Report>,
    ending: Arc<OnceLock<Ending>>,
    left: CancellationToken,
    wants_log: AtomicBool,
}

impl SharedSessionHandle {
    /// Returns a handle whose reports go to `events`.
    pub(super) fn new(events: Arc<dyn UpstreamEvents>, tasks: &TaskTracker) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let seat = Self {
            events,
            queue,
            ending: Arc::default(),
            left: CancellationToken::new(),
            wants_log: AtomicBool::new(false),
        };
        let told = deliver_queue(waiting, Arc::clone(&seat.events), Arc::clone(&seat.ending));
        tasks.spawn(seat.left.clone().run_until_cancelled_owned(told));
        seat
    }

    pub(super) async fn deliver(&self, report: Report, way: DeliveryPath) -> Result<(), TooSlow> {
        if self.left.is_cancelled() {
            return Ok(());
        }
        match way {
            DeliveryPath::Direct => {
                deliver_report(&*self.events, report).await;
                Ok(())
            }
            // A queue that nobody reads any more belongs to a session that is gone.
            DeliveryPath::Queued => {
                // If the queue is closed, the session has ended. That is no error.
                match tokio::time::timeout(SLOW_SESSION_TIMEOUT, self.queue.send(report)).await {
                    Ok(_) => Ok(()),
                    Err(_) => Err(TooSlow),
                }
            }
        }
    }

    /// Reports, after everything in the queue, that these requests get no answer and that the
    /// connection has ended. Takes effect when the handle is dropped.
    pub(super) fn end(&self, unanswered: Vec<RequestId>, error: UpstreamError) {
        // The first ending is kept.
        let _ = self.ending.set(Ending { unanswered, error });
    }

    /// Returns the token that stops all reports to the session when it is cancelled.
    pub(super) fn stop_token(&self) -> CancellationToken {
        self.left.clone()
    }

    pub(super) fn want_log(&self) {
        self.wants_log.store(true, Ordering::Relaxed);
    }

    pub(super) fn wants_log(&self) -> bool {
        self.wants_log.load(Ordering::Relaxed)
    }
}

async fn deliver_report(events: &dyn UpstreamEvents, report: Report) {
    match report {
        Report::Message(message, related) => events.on_message(message, related).await,
        Report::Unanswered(id, error) => events.on_unanswered(id, error).await,
    }
}

/// Delivers the reports in the queue until the handle is dropped, then reports the ending.
async fn deliver_queue(
    mut waiting: mpsc::Receiver<Report>,
    events: Arc<dyn UpstreamEvents>,
    ending: Arc<OnceLock<Ending>>,
) {
    while let Some(report) = waiting.recv().await {
        deliver_report(&*events, report).await;
    }
    let Some(Ending { unanswered, error }) = ending.get() else {
        return;
    };
    for id in unanswered {
        events.on_unanswered(id.clone(), error.clone()).await;
    }
    events.on_lost(error.clone()).await;
}
