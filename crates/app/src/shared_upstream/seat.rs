//! The place of one session at a hub: what is reported to it, in order, without holding up others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use riglm_domain::message::{Message, RequestId};
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How many reports may wait for one session.
const MAX_WAITING: usize = 256;

/// How long the others wait for a session that takes no more.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a session is told.
#[derive(Debug)]
pub(super) enum Report {
    /// A message, and the request on whose stream it came.
    Message(Message, Option<RequestId>),
    /// A request will get no answer.
    Unanswered(RequestId, UpstreamError),
}

/// On which way a report reaches its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// At once: only the stream that it came on waits for the session.
    Direct,
    /// Behind what was reported before, since one stream carries what concerns all sessions.
    Queued,
}

/// The session does not take what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSlow;

#[derive(Debug)]
struct Ending {
    unanswered: Vec<RequestId>,
    error: UpstreamError,
}

/// One session.
#[derive(Debug)]
pub(super) struct Seat {
    events: Arc<dyn UpstreamEvents>,
    queue: mpsc::Sender<Report>,
    ending: Arc<OnceLock<Ending>>,
    left: CancellationToken,
    wants_log: AtomicBool,
}

impl Seat {
    /// Returns a seat whose reports go to `events`.
    pub(super) fn new(events: Arc<dyn UpstreamEvents>, tasks: &TaskTracker) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let seat = Self {
            events,
            queue,
            ending: Arc::default(),
            left: CancellationToken::new(),
            wants_log: AtomicBool::new(false),
        };
        let told = tell(waiting, Arc::clone(&seat.events), Arc::clone(&seat.ending));
        tasks.spawn(seat.left.clone().run_until_cancelled_owned(told));
        seat
    }

    /// Tells the session something.
    pub(super) async fn tell(&self, report: Report, way: Way) -> Result<(), TooSlow> {
        if self.left.is_cancelled() {
            return Ok(());
        }
        match way {
            Way::Direct => {
                pass(&*self.events, report).await;
                Ok(())
            }
            // A queue that nobody reads any more belongs to a session that is gone.
            Way::Queued => match tokio::time::timeout(PATIENCE, self.queue.send(report)).await {
                Ok(_) => Ok(()),
                Err(_) => Err(TooSlow),
            },
        }
    }

    /// Tells the session, behind everything else, that these requests get no answer and that the
    /// connection is over. Takes effect when the seat is dropped.
    pub(super) fn end(&self, unanswered: Vec<RequestId>, error: UpstreamError) {
        // A seat that ended already stays ended as it is.
        let _ = self.ending.set(Ending { unanswered, error });
    }

    /// Returns what is cancelled for the session to be told nothing more.
    pub(super) fn left(&self) -> CancellationToken {
        self.left.clone()
    }

    /// Notes that the session asked for log messages.
    pub(super) fn want_log(&self) {
        self.wants_log.store(true, Ordering::Relaxed);
    }

    /// Returns whether the session asked for log messages.
    pub(super) fn wants_log(&self) -> bool {
        self.wants_log.load(Ordering::Relaxed)
    }
}

async fn pass(events: &dyn UpstreamEvents, report: Report) {
    match report {
        Report::Message(message, related) => events.received(message, related).await,
        Report::Unanswered(id, error) => events.unanswered(id, error).await,
    }
}

/// Reports what waits until the seat is dropped, and then how it ended.
async fn tell(
    mut waiting: mpsc::Receiver<Report>,
    events: Arc<dyn UpstreamEvents>,
    ending: Arc<OnceLock<Ending>>,
) {
    while let Some(report) = waiting.recv().await {
        pass(&*events, report).await;
    }
    let Some(Ending { unanswered, error }) = ending.get() else {
        return;
    };
    for id in unanswered {
        events.unanswered(id.clone(), error.clone()).await;
    }
    events.lost(error.clone()).await;
}
