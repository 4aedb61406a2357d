//! The switch between a client session and the connections to its upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::super::detection::{Answer, ping_id};
use super::super::legacy_client::LegacyClientLink;
use super::super::link_tasks::LinkTasks;
use super::super::options::BridgeOptions;
use super::memory::EraMemory;
use super::receiver::Receiver;

/// The maximum number of replaced connections that stay open until the end of the session.
const MAX_RETIRED: usize = 4;
/// The time in which answers may arrive in another order than their requests.
const OUT_OF_ORDER: Duration = Duration::from_millis(500);

/// A connection to the upstream, which both eras may use.
#[derive(Clone, Debug)]
pub(super) struct EraConnection {
    pub(super) link: Arc<dyn UpstreamLink>,
    pub(super) receiver: Arc<Receiver>,
    /// Whether it carried other messages than a probe.
    pub(super) is_used: bool,
}

/// The destination of messages.
#[derive(Debug)]
pub(super) enum Mode {
    /// The era is not detected yet. A connection may exist.
    Undecided(Option<Arc<dyn UpstreamLink>>),
    /// Pass-through of all messages: the upstream answered a handshake.
    Legacy(Arc<dyn UpstreamLink>),
    /// Pass-through while the knowledge of `epoch` is valid.
    Modern {
        inner: EraConnection,
        epoch: u64,
    },
    /// The bridge for a legacy client.
    LegacyClient(Arc<LegacyClientLink>),
    /// The bridge for a modern client, while the knowledge of `epoch` is valid.
    ModernClient {
        link: Arc<dyn UpstreamLink>,
        epoch: u64,
    },
    Closed,
}

/// The locked slot of the connection. Only the holder of the lock may detect the era. Every holder
/// has a deadline.
pub(super) type ConnectionSlot = OwnedMutexGuard<Option<EraConnection>>;

/// The links to close at the end.
#[derive(Debug, Default)]
struct Links {
    /// The open connection.
    opened: Option<Arc<dyn UpstreamLink>>,
    /// Replaced links that may still have requests in flight.
    retired: Vec<Arc<dyn UpstreamLink>>,
}

/// The switch between a client session and its upstream connections.
#[derive(Debug)]
pub(super) struct EraSwitch {
    pub(super) connector: Arc<dyn UpstreamConnector>,
    pub(super) memory: Arc<EraMemory>,
    pub(super) principal: Principal,
    pub(super) events: Arc<dyn UpstreamEvents>,
    pub(super) options: BridgeOptions,
    pub(super) face: ArcSwap<Mode>,
    pub(super) place: Arc<tokio::sync::Mutex<Option<EraConnection>>>,
    links: Mutex<Links>,
    pub(super) tasks: LinkTasks,
}

impl EraSwitch {
    /// Returns a switch without a connection.
    pub(super) fn new(
        connector: Arc<dyn UpstreamConnector>,
        memory: Arc<EraMemory>,
        principal: Principal,
        events: Arc<dyn UpstreamEvents>,
        options: BridgeOptions,
    ) -> Self {
        Self {
            connector,
            memory,
            principal,
            events,
            options,
            face: ArcSwap::from_pointee(Mode::Undecided(None)),
            place: Arc::default(),
            links: Mutex::default(),
            tasks: LinkTasks::default(),
        }
    }

    /// Returns the open connection, or opens one.
    pub(super) async fn open(
        self: &Arc<Self>,
        place: &mut ConnectionSlot,
    ) -> Result<EraConnection, UpstreamError> {
        if let Some(inner) = place.as_ref().filter(|inner| !inner.receiver.is_over()) {
            return Ok(inner.clone());
        }
        let receiver = Arc::new(Receiver::new(Arc::downgrade(self)));
        let connecting = self.connector.connect(&self.principal, receiver.clone());
        let link = tokio::select! {
            link = connecting => link?,
            () = self.tasks.closing().cancelled() => return Err(link_closed()),
        };
        // `close` may have run in the meantime without seeing this link.
        let is_closing = {
            let mut links = self.links.lock();
            links.opened = Some(Arc::clone(&link));
            self.tasks.closing().is_cancelled()
        };
        if is_closing {
            if let Some(link) = self.take_opened() {
                link.close().await;
            }
            return Err(link_closed());
        }
        receiver.receives_from(&link);
        let inner = EraConnection {
            link: Arc::clone(&link),
            receiver,
            is_used: false,
        };
        **place = Some(inner.clone());
        if matches!(&**self.face.load(), Mode::Undecided(_)) {
            self.settle(Mode::Undecided(Some(link)));
        }
        Ok(inner)
    }

    /// Returns the connection for a message of the client. A failure to open it is reported as a
    /// lost connection, because the session assumes that it exists.
    pub(super) async fn open_for_client(
        self: &Arc<Self>,
        place: &mut ConnectionSlot,
    ) -> Result<EraConnection, UpstreamError> {
        match self.open(place).await {
            Ok(inner) => {
                if let Some(inner) = place.as_mut() {
                    inner.is_used = true;
                }
                Ok(inner)
            }
            Err(error) => {
                self.events.on_lost(error.clone()).await;
                Err(error)
            }
        }
    }

    /// Closes the connection and removes it.
    pub(super) async fn discard(&self, place: &mut ConnectionSlot) {
        if let Some(inner) = place.take() {
            inner.receiver.retire();
            if let Some(link) = self.take_opened() {
                link.close().await;
            }
        }
    }

    /// Sends a request of the bridge and waits for its answer. Returns `None` after the timeout.
    pub(super) async fn ask(
        &self,
        inner: &EraConnection,
        id: &RequestId,
        request: Message,
        limit: Duration,
    ) -> Option<Answer> {
        let answer = inner.receiver.expect(id.clone());
        let asked = async {
            match inner.link.send(request).await {
                Ok(SendOutcome::UnderWay(exchange)) => self.tasks.drive(exchange),
                Ok(SendOutcome::Delivered) => {}
                Err(error) => return Err(error),
            }
            answer.await.unwrap_or_else(|_| Err(link_closed()))
        };
        let answer = tokio::select! {
            answer = tokio::time::timeout(limit, asked) => answer.ok(),
            () = self.tasks.closing().cancelled() => Some(Err(link_closed())),
        };
        inner.receiver.expect_no_more(id);
        answer
    }

    /// Sends a request whose answer tells the era of the server, and waits for its answer. Returns
    /// `None` if the server has not answered within `limit`. A server that is still starting has the
    /// time for its start, unless it answers a question that follows.
    pub(super) async fn probe(
        &self,
        inner: &EraConnection,
        id: &RequestId,
        request: Message,
        limit: Duration,
    ) -> Option<Answer> {
        let Some(start) = inner.link.time_to_start() else {
            return self.ask(inner, id, request, limit).await;
        };
        let ping = ping_id();
        let is_asked = AtomicBool::new(false);
        let start = start.max(limit);
        let asking = self.ask(inner, id, request, start);
        let pinging = async {
            tokio::time::sleep(limit).await;
            is_asked.store(true, Ordering::Relaxed);
            let question = Message::request(&ping, method::PING, None);
            self.ask(inner, &ping, question, start).await
        };
        tokio::pin!(asking, pinging);
        tokio::select! {
            biased;
            answer = &mut asking => {
                if is_asked.load(Ordering::Relaxed) {
                    // A process with a request in flight cannot be handed over.
                    let _ = timeout(OUT_OF_ORDER, pinging).await;
                    inner.receiver.expect_no_more(&ping);
                }
                answer
            }
            Some(Ok(_)) = &mut pinging => {
                let answer = timeout(OUT_OF_ORDER, asking).await;
                inner.receiver.expect_no_more(id);
                answer.ok().flatten()
            }
        }
    }

    /// Changes the destination of messages, unless the link is closed.
    pub(super) fn settle(&self, face: Mode) {
        let mut links = self.links.lock();
        if self.tasks.closing().is_cancelled() {
            return;
        }
        let old = self.face.swap(Arc::new(face));
        if let Mode::ModernClient { link, .. } = &*old {
            links.retired.push(Arc::clone(link));
            if links.retired.len() > MAX_RETIRED {
                let oldest = links.retired.remove(0);
                self.tasks.spawn_to_end(async move { oldest.close().await });
            }
        }
    }

    fn take_opened(&self) -> Option<Arc<dyn UpstreamLink>> {
        self.links.lock().opened.take()
    }

    /// Closes all links. The token of the tasks must have been cancelled before.
    pub(super) async fn close(&self) {
        let (face, links) = {
            let mut links = self.links.lock();
            let face = self.face.swap(Arc::new(Mode::Closed));
            (face, std::mem::take(&mut *links))
        };
        match &*face {
            Mode::LegacyClient(client) => client.close().await,
            Mode::ModernClient { link, .. } => link.close().await,
            _ => {}
        }
        // Without locking the slot, because its holder may wait for this very connection.
        for link in links.retired.into_iter().chain(links.opened) {
            link.close().await;
        }
        self.tasks.wait().await;
    }
}

/// Returns the error for messages over a closed link.
pub(super) fn link_closed() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection is closed".into(),
    }
}
